//! Moments as the ledger has them: microseconds since 1970.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Rounds down, before 1970 too.
pub(crate) fn of(moment: SystemTime) -> i64 {
    match moment.duration_since(UNIX_EPOCH) {
        Ok(since) => span(since),
        Err(before) => {
            let before = before.duration();
            -span(before) - i64::from(before.subsec_nanos() % 1_000 != 0)
        }
    }
}

/// The microseconds of a duration, as far as there is room for them.
pub(crate) fn span(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The moment so many microseconds after 1970, or before.
pub(crate) fn moment(micros: i64) -> SystemTime {
    let away = Duration::from_micros(micros.unsigned_abs());
    let moment = if micros < 0 {
        UNIX_EPOCH.checked_sub(away)
    } else {
        UNIX_EPOCH.checked_add(away)
    };
    moment.unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_come_back_rounded_down() {
        for micros in [0, 1, -1, 1_700_000_000_123_456, -86_400_000_000] {
            assert_eq!(of(moment(micros)), micros);
            assert_eq!(of(moment(micros) + Duration::from_nanos(999)), micros);
        }
    }
}
