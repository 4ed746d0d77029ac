use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(5);

/// Looks at a condition every 5 ms until it holds or the limit has passed, and says whether it held.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use latchwork_harness::wait_until;
///
/// assert!(wait_until(Duration::from_secs(1), || true));
/// assert!(!wait_until(Duration::ZERO, || false));
/// ```
pub fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if start.elapsed() >= limit {
            return false;
        }
        thread::sleep(PAUSE);
    }
}

/// Locks, also after a panic elsewhere: the harness must still clean up then.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
