use std::{error::Error, future::Future, num::NonZeroU32, time::Duration};

use latchwork_core::xact::LockedError;
use tokio::time::sleep;

use crate::failure::is_conflict;

/// Runs attempts until one ends otherwise than by a conflict, or they are used up.
pub(super) async fn run<T, E, R>(attempts: NonZeroU32, attempt: impl Fn() -> R) -> Result<T, LockedError<E>>
where
    E: Error + 'static,
    R: Future<Output = Result<T, LockedError<E>>>,
{
    let mut attempted = 1;
    loop {
        match attempt().await {
            Err(error) if attempted < attempts.get() && is_worth_another(&error) => {}
            ended => return ended,
        }
        sleep(pause(attempted)).await;
        attempted += 1;
    }
}

fn is_worth_another<E: Error + 'static>(error: &LockedError<E>) -> bool {
    match error {
        LockedError::Lock(error) => is_conflict(error),
        LockedError::Body(error) => is_conflict(error),
        LockedError::Aborted(cause) => is_conflict(&**cause),
        _ => false,
    }
}

/// Differs by a half either way, so that those who ran into each other do not do it again.
fn pause(attempted: u32) -> Duration {
    let grown = STEP * (1 << attempted.saturating_sub(1).min(4));
    grown.mul_f64(0.5 + fastrand::f64())
}

const STEP: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_quarter_of_a_second_and_no_further() {
        for (attempted, least) in [(1, 5), (2, 10), (5, 80), (6, 80), (u32::MAX, 80)] {
            let (least, paused) = (Duration::from_millis(least), pause(attempted));
            assert!((least..=3 * least).contains(&paused), "{attempted}: {paused:?}");
        }
    }
}
