use std::{fmt, sync::Arc};

use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::{LeaderState, office::Office};

/// The transitions of a candidate, each in order. Begins with the state that it is in.
pub struct Transitions {
    office: Arc<Office>,
    /// Where a reader begins, and begins again after a gap.
    current: Option<LeaderState>,
    coming: Receiver<LeaderState>,
    ended: bool,
}

/// What [`Transitions`] tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transition {
    /// The candidate is in this state now.
    To(LeaderState),
    /// The reader was more than [`Transitions::KEPT`] behind, and has missed so many. The current state comes next.
    Lagged(u64),
}

impl Transitions {
    /// How many transitions are kept for a slow reader.
    pub const KEPT: usize = 64;

    pub(super) fn of(office: &Arc<Office>) -> Self {
        let (current, coming) = office.subscribe();
        Self {
            office: Arc::clone(office),
            current: Some(current),
            coming,
            ended: false,
        }
    }

    /// Waits for the next transition; `None` after [`LeaderState::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect: no transition is missed.
    pub async fn next(&mut self) -> Option<Transition> {
        if self.ended {
            return None;
        }
        let state = match self.current.take() {
            Some(state) => state,
            None => match self.coming.recv().await {
                Ok(state) => state,
                Err(RecvError::Lagged(missed)) => return Some(self.skip(missed)),
                // The office has the other end.
                Err(RecvError::Closed) => return None,
            },
        };
        self.ended = state == LeaderState::Closed;
        Some(Transition::To(state))
    }

    fn skip(&mut self, missed: u64) -> Transition {
        let (kept, current, coming) = self.office.subscribe_anew(&self.coming);
        self.current = Some(current);
        self.coming = coming;
        Transition::Lagged(missed + kept)
    }
}

impl fmt::Debug for Transitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transitions").finish_non_exhaustive()
    }
}
