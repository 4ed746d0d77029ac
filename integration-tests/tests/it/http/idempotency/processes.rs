//! Processes that are killed midway.

use std::process::Command;

use latchwork_harness::{Process, Signal};

use super::{
    Shop, answered, asks, is_problem, post,
    servers::{Actix, Axum, Server},
};

/// Whose program the test kills.
trait Named {
    const NAME: &'static str;
}

impl Named for Axum {
    const NAME: &'static str = "axum";
}

impl Named for Actix {
    const NAME: &'static str = "actix";
}

async fn a_process_that_is_killed_takes_its_claim_along_and_the_retry_runs_at_once<S: Server + Named>() {
    let shop = Shop::open::<S>().await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_payer"));
    let mut payer = Process::spawn(command.args([S::NAME, &shop.cluster.url()])).unwrap();
    let address = payer.wait_for_line("listens ").unwrap().parse().unwrap();
    let _client = asks(address, "/slow", "idempotency-key: k\r\nx-user: ann\r\n", "").await;
    payer.wait_for_line("paid").unwrap();
    is_problem(
        &post(shop.other.address, "/slow", "k", "").await,
        409,
        "idempotency-in-flight",
    );
    payer.signal(Signal::KILL);
    payer.wait().unwrap();
    shop.other.lets_go(1);
    for replayed in [None, Some("true")] {
        let again = answered(&shop, "/slow", "k", "").await;
        assert_eq!((again.status(), again.header("idempotent-replayed")), (200, replayed));
    }
    assert_eq!((shop.payments().await, shop.records().await), (1, 1));
    shop.close().await;
}

on_each_framework!(
    crate::http::idempotency::servers:
    a_process_that_is_killed_takes_its_claim_along_and_the_retry_runs_at_once,
);
