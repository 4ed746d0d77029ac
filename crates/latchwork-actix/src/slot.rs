//! At most so many requests at once.

mod body;
mod held;
mod middleware;
mod policy;

pub use body::SlotBody;
pub use held::HeldPermit;
pub use middleware::SlotMiddleware;
