//! Policies for requests on PostgreSQL: lists of scenarios, each for every framework.

/// Functions of the module outside as tests on one server.
macro_rules! scenarios_on {
    ($server:ty: $($scenario:ident),+ $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $scenario() {
            super::$scenario::<$server>().await;
        }
    )+};
}

/// Functions of this module as tests, on the server of each framework.
macro_rules! on_each_framework {
    ($($servers:ident)::+: $($scenario:ident),+ $(,)?) => {
        mod axum {
            scenarios_on!($($servers)::+::Axum: $($scenario),+);
        }

        mod actix {
            scenarios_on!($($servers)::+::Actix: $($scenario),+);
        }
    };
}

/// Functions of this module as tests, on the server of each framework, whose handlers have transactions of each library.
macro_rules! on_each_framework_and_library {
    ($($scenarios:tt)+) => {
        on_each_framework_with!(
            deadpool Deadpool, sqlx Sqlx, sea_orm SeaOrm, diesel_async DieselAsync, bb8 Bb8, diesel Diesel;
            { $($scenarios)+ }
        );
    };
}

/// The same for some libraries: a name for each, and which it is.
macro_rules! on_each_framework_with {
    ($($module:ident $library:ident),+; $scenarios:tt) => {
        $(on_each_framework_with!(@ $module $library $scenarios);)+
    };
    (@ $module:ident $library:ident { $($servers:ident)::+: $($scenario:ident),+ $(,)? }) => {
        mod $module {
            use super::{$($scenario),+};

            mod axum {
                scenarios_on!($($servers)::+::Axum<crate::http::library::$library>: $($scenario),+);
            }

            mod actix {
                scenarios_on!($($servers)::+::Actix<crate::http::library::$library>: $($scenario),+);
            }
        }
    };
}

mod grpc;
mod idempotency;
mod instance;
mod keys;
mod leaving;
mod library;
mod rate;
mod scenarios;
mod servers;
mod shop;
mod tx;
