use std::{fmt, sync::Arc, time::Duration};

use super::{Candidate, campaign::Campaign, office::Office};
use crate::{
    key::{Key, KeyError},
    locks::Inner,
};

/// Collects how a process campaigns. It begins with [`campaign`](Self::campaign).
#[must_use = "nobody campaigns before this is told to"]
pub struct LeaderBuilder {
    inner: Arc<Inner>,
    key: Result<Key, KeyError>,
    campaign_delay: Duration,
    resign_delay: Duration,
    drain_limit: Option<Duration>,
    eligible: bool,
}

impl LeaderBuilder {
    pub(crate) const fn new(inner: Arc<Inner>, key: Result<Key, KeyError>) -> Self {
        Self {
            inner,
            key,
            campaign_delay: Duration::ZERO,
            resign_delay: RESIGN_DELAY,
            drain_limit: None,
            eligible: true,
        }
    }

    /// Leaves the leadership to others for so long each time that it is vacant: those with a shorter delay come first.
    /// It takes nobody's leadership away who has it. Default: none.
    pub fn with_campaign_delay(self, campaign_delay: Duration) -> Self {
        Self { campaign_delay, ..self }
    }

    /// Leaves the leadership to others for so long once this candidate has [resigned](Candidate::resign), also where its
    /// [work](Candidate::run) has ended by itself. Default: 2 s.
    ///
    /// Those who wait without a campaign delay lead at once whatever this is. Those with one lead before this candidate
    /// does if their delay is shorter than this, so it is to be longer than the longest of all candidates'. Where nobody
    /// else is there, nobody leads for so long.
    pub fn with_resign_delay(self, resign_delay: Duration) -> Self {
        Self { resign_delay, ..self }
    }

    /// Limits how long work may go on when its leadership has ended. Default: for ever.
    ///
    /// The lock of a leadership that was resigned is given up then, although work has not returned. Such work is told of as
    /// [`Undrained`](super::LeaderState::Undrained), as is work that goes on for so long after a loss, and the next leader may
    /// begin beside it; only its fenced transactions are stopped. This process campaigns again when it has returned.
    pub fn with_drain_limit(self, drain_limit: Duration) -> Self {
        Self {
            drain_limit: Some(drain_limit),
            ..self
        }
    }

    /// Does not campaign until [`Candidate::set_eligible`]. Default: campaigns.
    pub fn ineligible(self) -> Self {
        Self {
            eligible: false,
            ..self
        }
    }

    /// Campaigns from now on, in a task of the runtime that this is called in.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the name does not make a key.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn campaign(self) -> Result<Candidate, KeyError> {
        let key = self.key?;
        let office = Arc::new(Office::new(self.eligible));
        let campaign = Campaign {
            inner: Arc::clone(&self.inner),
            office: Arc::clone(&office),
            key,
            campaign_delay: self.campaign_delay,
            resign_delay: self.resign_delay,
            drain_limit: self.drain_limit,
        };
        tokio::spawn(campaign.run());
        Ok(Candidate::new(self.inner, office, key))
    }
}

const RESIGN_DELAY: Duration = Duration::from_secs(2);

impl fmt::Debug for LeaderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderBuilder")
            .field("key", &self.key)
            .field("campaign_delay", &self.campaign_delay)
            .field("resign_delay", &self.resign_delay)
            .field("drain_limit", &self.drain_limit)
            .field("eligible", &self.eligible)
            .finish_non_exhaustive()
    }
}
