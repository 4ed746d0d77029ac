use std::ops::Deref;

use latchwork_core::Permit;
use latchwork_http::Hold;

use crate::RequestHead;

/// The slot that the request being handled holds, as its handler sees it.
///
/// With feature `axum` it is an extractor, elsewhere it is found in the request's extensions. All it can do is in
/// [`latchwork_http::HeldPermit`].
///
/// # Examples
///
/// ```
/// use latchwork_tower::HeldPermit;
///
/// async fn events(held: HeldPermit) {
///     let permit = held.take();
///     tokio::spawn(async move {
///         // Work that outlives the response.
///         drop(permit);
///     });
/// }
/// # let _ = events;
/// ```
#[derive(Clone, Debug)]
pub struct HeldPermit(latchwork_http::HeldPermit);

impl HeldPermit {
    /// Puts the view of a permit where the handler finds it. What is returned keeps the slot.
    pub(super) fn put(permit: Permit, head: &mut RequestHead) -> Hold<Permit> {
        let (view, hold) = latchwork_http::HeldPermit::new(permit);
        if let Some(Self(outer)) = head.insert(Self(view.clone())) {
            head.insert(Self(view.within(Some(outer))));
        }
        hold
    }
}

impl Deref for HeldPermit {
    type Target = latchwork_http::HeldPermit;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
