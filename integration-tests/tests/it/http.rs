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

mod grpc;
mod idempotency;
mod instance;
mod keys;
mod leaving;
mod rate;
mod scenarios;
mod servers;
mod shop;
mod tx;
