//! At most so many requests at once.

mod body;
mod future;
mod held;
mod layer;
mod service;
mod work;

pub use body::SlotBody;
pub use future::SlotFuture;
pub use held::HeldPermit;
pub use layer::SlotLayer;
pub use service::SlotService;
