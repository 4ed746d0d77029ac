//! What one instance does, the other knows.

use std::time::Instant;

use super::{Hold, soon, until_let_in};
use crate::account::{Account, millis};
use crate::checks::{LOCK_BUSY, is_let_in, is_refusal};
use crate::client::Client;
use crate::failure::Failure;
use crate::instance::Instance;

const ORDER: &str = "7";
/// One for each instance: the first may be on its way back to the server for a moment after its answer.
const OTHER_ORDERS: [&str; 2] = ["8", "9"];

pub(super) async fn show(client: &Client, a: &Instance, b: &Instance, account: &mut Account) -> Result<(), Failure> {
    let (holder, other) = (a.name(), b.name());
    account.begin(&format!("{holder} keeps order {ORDER}, until its client goes away"));
    let (hold, refused) = Hold::begin(client, a, b, ORDER).await?;
    account.promise(
        &format!("{other} knows: 409 with Retry-After"),
        is_refusal(&refused, LOCK_BUSY),
    );
    let refused = client.charge(a, ORDER, 0).await?;
    account.promise(&format!("{holder} knows too"), is_refusal(&refused, LOCK_BUSY));
    for (instance, order) in [a, b].into_iter().zip(OTHER_ORDERS) {
        let reply = client.charge(instance, order, 0).await?;
        let promise = format!("{} lets order {order} in meanwhile", instance.name());
        account.promise(&promise, is_let_in(&reply));
    }
    let left = Instant::now();
    drop(hold);
    let taken = until_let_in(client, b, ORDER, left).await?;
    let promise = format!(
        "once the client has gone, {other} has order {ORDER} within 1 s (after {})",
        millis(taken)
    );
    account.promise(&promise, soon(taken));
    Ok(())
}
