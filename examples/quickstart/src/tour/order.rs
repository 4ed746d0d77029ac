//! One order at a time.

use std::time::Instant;

use super::{crowd, soon, until_let_in};
use crate::account::{Account, millis};
use crate::checks::{LOCK_BUSY, at_once_at_most, count, refused_properly};
use crate::client::{Client, Reply};
use crate::failure::Failure;
use crate::instance::Instance;

const ORDER: &str = "42";
const EACH: usize = 10;

pub(super) async fn show(client: &Client, a: &Instance, b: &Instance, account: &mut Account) -> Result<(), Failure> {
    account.begin(&format!(
        "{} requests at once charge order {ORDER}, {EACH} at each instance",
        2 * EACH
    ));
    let request = |number: usize, ms| client.charge([a, b][number % 2], ORDER, ms);
    let both_refuse = |replies: &[Reply]| [a, b].iter().all(|it| count(replies, it.name(), 409) > 0);
    let replies = crowd(account, request, 2 * EACH, both_refuse).await?;
    for instance in [a.name(), b.name()] {
        let (entered, refused) = (count(&replies, instance, 200), count(&replies, instance, 409));
        account.tell(&format!(
            "{instance} let {entered} in, and told {refused} to come back later (409)"
        ));
    }
    account.promise("one at a time over both instances", at_once_at_most(&replies, 1));
    account.promise(
        "each of the others got 409 with Retry-After",
        refused_properly(&replies, LOCK_BUSY),
    );
    for instance in [a, b] {
        let taken = until_let_in(client, instance, ORDER, Instant::now()).await?;
        account.promise(
            &format!("then free again on {} (after {})", instance.name(), millis(taken)),
            soon(taken),
        );
    }
    Ok(())
}
