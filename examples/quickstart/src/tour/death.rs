//! An instance dies, and what it held is free.

use std::time::Instant;

use super::{Hold, soon, until_let_in};
use crate::account::{Account, millis};
use crate::checks::{LOCK_BUSY, is_refusal};
use crate::client::Client;
use crate::failure::Failure;
use crate::instance::Instance;

const ORDER: &str = "99";

pub(super) async fn show(
    client: &Client,
    victim: &mut Instance,
    survivor: &Instance,
    account: &mut Account,
) -> Result<(), Failure> {
    let (dead, alive) = (victim.name(), survivor.name());
    let end = if victim.is_process() {
        format!("{dead} is killed (kill -9)")
    } else {
        format!("the session of {dead} is ended, for there is no process to kill")
    };
    account.begin(&format!("{dead} keeps order {ORDER}, then {end}"));
    let (hold, refused) = Hold::begin(client, victim, survivor, ORDER).await?;
    account.promise(
        &format!("{alive} got 409 while {dead} was alive"),
        is_refusal(&refused, LOCK_BUSY),
    );
    let killed = Instant::now();
    victim.kill().await?;
    let taken = until_let_in(client, survivor, ORDER, killed).await?;
    account.promise(
        &format!("{alive} has order {ORDER} within 1 s of that (after {})", millis(taken)),
        soon(taken),
    );
    drop(hold);
    Ok(())
}
