//! Cron expressions in a time zone.

use std::{
    str::FromStr,
    sync::{Arc, OnceLock},
    time::SystemTime,
};

use jiff::{
    Timestamp, Zoned,
    tz::{TimeZone, TimeZoneDatabase},
};

use super::{Kind, Schedule, ScheduleError};

#[derive(Clone, Debug)]
pub(super) struct Cron {
    pattern: croner::Cron,
    zone: TimeZone,
}

impl Schedule {
    /// The ticks of a cron expression, by the clocks of a time zone (`Europe/Berlin`, or `UTC`).
    ///
    /// The expression has five fields (minute, hour, day of the month, month, day of the week), or six with seconds in
    /// front, or is one of `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly`.
    ///
    /// # Daylight saving
    ///
    /// - A job at one time of the day (`30 2 * * *`) runs once each day: where clocks skip that time, at the end of the
    ///   gap, and where it comes twice, the first time.
    /// - A job of several times a day (`*/30 * * * *`) goes by what passes, not by what clocks show: it runs in both of two
    ///   hours that look the same, and not in one that there is not. So does a list of hours, `0 2,14 * * *`: if none of them
    ///   may be missed, give each of them a job of its own.
    ///
    /// The rules of the time zones are those that this program was built with, whatever the machine has: so nodes with the
    /// same program have the same ticks, also in a container with no zones at all. A country that changes its rules needs a
    /// new build.
    ///
    /// # Errors
    ///
    /// [`ScheduleError::Expression`] and [`ScheduleError::Zone`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::SystemTime;
    /// use latchwork_core::once::Schedule;
    ///
    /// let nightly = Schedule::cron("0 3 * * *", "Europe/Berlin")?;
    /// assert!(nightly.next_after(SystemTime::now()).is_some());
    /// # Ok::<(), latchwork_core::once::ScheduleError>(())
    /// ```
    pub fn cron(expression: &str, zone: &str) -> Result<Self, ScheduleError> {
        let pattern = croner::Cron::from_str(expression).map_err(|source| ScheduleError::Expression {
            expression: expression.to_owned(),
            source: source.into(),
        })?;
        let zone = zones().get(zone).map_err(|source| ScheduleError::Zone {
            zone: zone.to_owned(),
            source: source.into(),
        })?;
        Ok(Self(Kind::Cron(Arc::new(Cron { pattern, zone }))))
    }
}

impl Cron {
    pub(super) fn next_after(&self, moment: SystemTime) -> Option<SystemTime> {
        let next = self.pattern.find_next_occurrence(&self.in_zone(moment)?, false).ok()?;
        Some(next.timestamp().into())
    }

    pub(super) fn last_at(&self, moment: SystemTime) -> Option<SystemTime> {
        let last = self
            .pattern
            .find_previous_occurrence(&self.in_zone(moment)?, true)
            .ok()?;
        Some(last.timestamp().into())
    }

    fn in_zone(&self, moment: SystemTime) -> Option<Zoned> {
        Some(Timestamp::try_from(moment).ok()?.to_zoned(self.zone.clone()))
    }
}

/// The zones of this program. What others have put into jiff's own database, or a machine has, would make ticks differ
/// from node to node.
fn zones() -> &'static TimeZoneDatabase {
    static ZONES: OnceLock<TimeZoneDatabase> = OnceLock::new();
    ZONES.get_or_init(TimeZoneDatabase::bundled)
}

#[cfg(test)]
mod tests;
