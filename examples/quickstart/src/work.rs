//! Stands in for what a service does.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The work of a handler: it takes `ms` milliseconds.
#[derive(Deserialize)]
pub(crate) struct Work {
    #[serde(default)]
    ms: u64,
}

impl Work {
    pub(crate) async fn run(self) -> Visit {
        let from_us = now_us();
        tokio::time::sleep(Duration::from_millis(self.ms)).await;
        Visit {
            from_us,
            until_us: now_us(),
        }
    }
}

/// When a handler was at work, in microseconds since 1970, so that an observer can see who was there together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Visit {
    pub(crate) from_us: u64,
    pub(crate) until_us: u64,
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
