//! Who may do what, and when. It is the same for all instances, whatever they run on, or they would not keep each other
//! out: these names and numbers are what they agree on.

use latchwork::{
    Slots,
    rate::{Quota, Quotas},
};
use latchwork_http::{
    RequestView,
    key::{ExtractError, ExtractKey, KeyParts, client, header, param},
};

use crate::{failure::Failure, instance::Shop};

/// What charges of one order have in common, and no others.
pub fn order<R: RequestView + 'static>() -> impl ExtractKey<R> {
    ("order", param("id"))
}

/// The slots of AI calls.
///
/// # Errors
///
/// Fails for a number of slots that no pool can have.
pub fn ai_slots(shop: &Shop) -> Result<Slots, Failure> {
    Ok(shop.locks.slots("ai", 5)?)
}

/// Whose `Idempotency-Key` it is: those of different customers have nothing to do with each other. A real shop takes
/// the customer from its authentication, and not from a header that anybody can send.
pub fn customer<R: RequestView + 'static>() -> impl ExtractKey<R> {
    header(API_KEY).optional()
}

/// Who searches: the API key, or the address of those who have none.
pub fn searcher<R: RequestView + 'static>() -> impl ExtractKey<R> {
    ("search", Searcher)
}

/// How often each may search.
///
/// # Errors
///
/// Fails for numbers that make no quota.
pub fn searches() -> Result<Quotas, Failure> {
    Ok(Quota::per_second(10)?.with_burst(20)?.into())
}

#[derive(Debug)]
struct Searcher;

impl<R: RequestView + 'static> ExtractKey<R> for Searcher {
    fn extract(&self, request: &R, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
        let mut has_key = false;
        request.headers(API_KEY, &mut |_| has_key = true);
        // The words keep an address apart from a key that looks like one.
        if has_key {
            ("api key", header(API_KEY)).extract(request, parts)
        } else {
            ("address", client()).extract(request, parts)
        }
    }
}

const API_KEY: &str = "x-api-key";
