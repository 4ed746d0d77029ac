//! So many at once over both instances.

use super::crowd;
use crate::account::Account;
use crate::checks::{SLOTS_FULL, at_once_at_most, count, each_slot_used_by_one_at_a_time, let_in, refused_properly};
use crate::client::{Client, Reply};
use crate::failure::Failure;
use crate::instance::Instance;
use crate::service::MODEL_SLOTS;

const EACH: usize = 6;

pub(super) async fn show(client: &Client, a: &Instance, b: &Instance, account: &mut Account) -> Result<(), Failure> {
    account.begin(&format!(
        "{} requests at once want one of {MODEL_SLOTS} slots, {EACH} at each instance",
        2 * EACH
    ));
    let request = |number: usize, ms| client.ask_model([a, b][number % 2], ms);
    let some_refused = |replies: &[Reply]| replies.iter().any(|reply| reply.status != 200);
    let replies = crowd(account, request, 2 * EACH, some_refused).await?;
    for instance in [a.name(), b.name()] {
        let slots = slots_of(&replies, instance);
        let (entered, refused) = (count(&replies, instance, 200), count(&replies, instance, 503));
        account.tell(&format!(
            "{instance} let {entered} in{slots}, and told {refused} that all are taken (503)"
        ));
    }
    let limit = MODEL_SLOTS as usize;
    account.promise(
        &format!("never more than {MODEL_SLOTS} over both"),
        at_once_at_most(&replies, limit),
    );
    let used = each_slot_used_by_one_at_a_time(&replies, MODEL_SLOTS);
    account.promise("every slot was used, by one request at a time", used);
    account.promise(
        "each of the others got 503 with Retry-After",
        refused_properly(&replies, SLOTS_FULL),
    );
    Ok(())
}

fn slots_of(replies: &[Reply], instance: &str) -> String {
    let of_it = let_in(replies).filter(|reply| reply.instance == instance);
    let mut slots: Vec<u32> = of_it.filter_map(|reply| reply.entry()?.slot).collect();
    slots.sort_unstable();
    let slots: Vec<String> = slots.iter().map(u32::to_string).collect();
    if slots.is_empty() {
        String::new()
    } else {
        format!(" (slots {})", slots.join(", "))
    }
}
