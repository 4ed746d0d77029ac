//! Work that is done once, over servers in memory.

mod run;
mod scheduler;
mod ticks;

use std::time::{Duration, SystemTime};

/// Noon of a day in 2023, in UTC.
fn noon() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_049_600)
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
