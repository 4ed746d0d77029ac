//! What a request holds while it is handled, and what its handler sees of that.

mod hold;
mod lock;
mod permit;

pub use hold::Hold;
pub use lock::HeldLock;
pub use permit::HeldPermit;
