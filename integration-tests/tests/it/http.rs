//! Locks and slots for requests on PostgreSQL: one list of scenarios, for each framework.

/// Functions of the module outside as tests on one server.
macro_rules! scenarios_on {
    ($server:ty: $($scenario:ident),+ $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $scenario() {
            super::$scenario::<$server>().await;
        }
    )+};
}

mod idempotency;
mod instance;
mod rate;
mod scenarios;
mod servers;
mod shop;
mod tx;

macro_rules! scenarios {
    ($server:ty: $($scenario:ident),+ $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $scenario() {
            $crate::http::scenarios::$scenario::<$server>().await;
        }
    )+};
}

/// Every scenario, on one server.
macro_rules! every_scenario_on {
    ($server:ty) => {
        scenarios!(
            $server:
            one_request_an_order_at_a_time_over_two_instances,
            those_who_wait_get_their_turn_over_two_instances,
            never_more_than_n_slots_over_two_instances_while_bodies_stream,
            a_killed_backend_cancels_its_handlers_and_frees_their_locks,
            a_database_that_is_down_is_503_and_never_busy,
            clients_that_leave_at_random_leave_no_lock_in_the_server,
            a_client_that_leaves_frees_its_lock_in_the_server,
        );
    };
}

mod axum {
    every_scenario_on!(crate::http::servers::Axum);
}

mod actix {
    every_scenario_on!(crate::http::servers::Actix);
}
