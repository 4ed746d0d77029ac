//! How long those who have failed wait before they try again.

use std::time::Duration;

/// The pause after so many failures in a row: longer after each, up to a bound, and random, so that processes do not come
/// all at once.
pub(crate) fn after_failures(failures: u32) -> Duration {
    let longest = FIRST_PAUSE
        .saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)))
        .min(LONGEST_PAUSE);
    longest.mul_f64(fastrand::f64().mul_add(0.5, 0.5))
}

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound_and_never_vanish() {
        for (failures, longest) in [(1, 100), (2, 200), (6, 3_200), (7, 5_000), (u32::MAX, 5_000)] {
            let (pause, longest) = (after_failures(failures), Duration::from_millis(longest));
            assert!(pause >= longest / 2 && pause <= longest, "{pause:?} after {failures}");
        }
    }
}
