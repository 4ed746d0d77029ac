//! What is promised, a function a promise.

pub mod cancellation;
pub mod exclusion;
pub mod fairness;
pub mod limits;
pub mod loss;
pub mod outages;
pub mod release;
pub mod scale;
pub mod slots;
pub mod tasks;

use latchwork_core::{Key, Mode};

const MODES: [Mode; 2] = [Mode::Exclusive, Mode::Shared];

/// A key that no other test has.
fn fresh_key() -> Key {
    if fastrand::bool() {
        Key::bigint(fastrand::i64(..))
    } else {
        Key::pair(fastrand::i32(..), fastrand::i32(..))
    }
}
