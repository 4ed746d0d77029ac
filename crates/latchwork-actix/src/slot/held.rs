use std::ops::Deref;

use actix_web::{HttpMessage, dev::ServiceRequest};
use latchwork_core::Permit;
use latchwork_http::Hold;

/// The slot that the request being handled holds, as its handler sees it: an extractor.
///
/// All it can do is in [`latchwork_http::HeldPermit`].
///
/// # Examples
///
/// ```
/// use actix_web::{HttpResponse, rt};
/// use latchwork_actix::HeldPermit;
///
/// async fn events(held: HeldPermit) -> HttpResponse {
///     let permit = held.take();
///     rt::spawn(async move {
///         // Work that outlives the response.
///         drop(permit);
///     });
///     HttpResponse::Accepted().finish()
/// }
/// # let _ = actix_web::web::get().to(events);
/// ```
#[derive(Clone, Debug)]
pub struct HeldPermit(latchwork_http::HeldPermit);

impl HeldPermit {
    /// Puts the view of a permit where the handler finds it. What is returned keeps the slot.
    pub(super) fn put(permit: Permit, request: &ServiceRequest) -> Hold<Permit> {
        let (view, hold) = latchwork_http::HeldPermit::new(permit);
        let mut extensions = request.extensions_mut();
        let outer = extensions.remove().map(|Self(outer)| outer);
        extensions.insert(Self(view.within(outer)));
        hold
    }
}

impl Deref for HeldPermit {
    type Target = latchwork_http::HeldPermit;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
