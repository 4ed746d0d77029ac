//! Whose work a task is in the middle of, so that nobody waits there for the end of that very work.

use std::{
    future::Future,
    ptr,
    sync::{Arc, Weak},
};

use super::office::Office;

tokio::task_local! {
    /// Of which candidates; work of one may be inside that of another.
    static OFFICES: Vec<Weak<Office>>;
}

/// Marks work as that of a candidate.
pub(super) fn work_of<W: Future>(office: &Arc<Office>, work: W) -> impl Future<Output = W::Output> {
    let mut offices = OFFICES.try_with(Clone::clone).unwrap_or_default();
    offices.push(Arc::downgrade(office));
    OFFICES.scope(offices, work)
}

/// Whether this is polled inside the work of a candidate.
pub(super) fn is_inside(office: &Arc<Office>) -> bool {
    let is_ours = |inside: &Weak<Office>| ptr::eq(inside.as_ptr(), Arc::as_ptr(office));
    OFFICES
        .try_with(|offices| offices.iter().any(is_ours))
        .unwrap_or_default()
}
