use std::{fmt, sync::Arc};

use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    Lost,
    fence::{Fence, FencedGuard, Term},
    session::{HoldState, SessionHealth},
};

/// One time of leading: from a grant to its end.
///
/// Clones are the same. Keeping one keeps nothing up.
#[derive(Clone)]
pub struct Leading {
    tenure: Arc<Tenure>,
}

struct Tenure {
    number: u64,
    fence: Fence,
    term: Term,
    session: Arc<SessionHealth>,
    /// Cancelled when it is lost or resigned.
    ended: CancellationToken,
    /// How many are at work under it.
    at_work: watch::Sender<usize>,
}

impl Leading {
    pub(super) fn new(number: u64, guard: &FencedGuard) -> Self {
        let tenure = Tenure {
            number,
            fence: guard.fence(),
            term: guard.term(),
            session: Arc::clone(guard.session()),
            ended: CancellationToken::new(),
            at_work: watch::Sender::new(0),
        };
        Self {
            tenure: Arc::new(tenure),
        }
    }

    /// The fencing token of this leadership, for what is outside of the database. Each leader's is greater than the last
    /// one's.
    #[must_use]
    pub fn term(&self) -> Term {
        self.tenure.term
    }

    /// What the fenced transactions of this leader prove: they commit before the next leader begins, or not at all.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.tenure.fence
    }

    /// Whether this process may believe right now that it leads. Never blocks, and asks nobody.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        !self.tenure.ended.is_cancelled() && self.tenure.session.is_trusted()
    }

    /// Resolves when this process may believe that it leads: at once, or when the server has confirmed it. Work that
    /// pauses while its leadership is in doubt waits here.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// # Errors
    ///
    /// [`Lost`] if it does not lead any more.
    pub async fn confirmed(&self) -> Result<(), Lost> {
        let confirmed = async {
            loop {
                match self.tenure.session.state() {
                    HoldState::Held => return true,
                    HoldState::Lost => {
                        // Before the campaign comes to it: who is told of a loss here was cancelled.
                        self.end();
                        return false;
                    }
                    state @ HoldState::Suspended => self.tenure.session.left(state).await,
                };
            }
        };
        tokio::select! {
            biased;
            () = self.tenure.ended.cancelled() => Err(Lost::new(self.tenure.fence.key())),
            held = confirmed => held.then_some(()).ok_or_else(|| Lost::new(self.tenure.fence.key())),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.tenure.number
    }

    pub(super) fn session(&self) -> &SessionHealth {
        &self.tenure.session
    }

    /// Lets work begin, unless this has ended. The lock is kept until what is returned is dropped.
    pub(super) fn begin_work(&self) -> Option<(AtWork, CancellationToken)> {
        self.tenure.at_work.send_modify(|count| *count += 1);
        let at_work = AtWork(Arc::clone(&self.tenure));
        // After it was counted: whoever ends this looks at the count afterwards.
        (!self.tenure.ended.is_cancelled()).then(|| (at_work, self.tenure.ended.clone()))
    }

    /// Ends this when it is dropped.
    pub(super) fn end_on_drop(&self) -> DropGuard {
        self.tenure.ended.clone().drop_guard()
    }

    pub(super) fn end(&self) {
        self.tenure.ended.cancel();
    }

    /// Resolves when nobody is at work any more.
    pub(super) async fn drained(&self) {
        let mut at_work = self.tenure.at_work.subscribe();
        // Its sender is here.
        let _ = at_work.wait_for(|count| *count == 0).await;
    }
}

/// Work under way.
pub(super) struct AtWork(Arc<Tenure>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.at_work.send_modify(|count| *count -= 1);
    }
}

impl fmt::Debug for Leading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leading")
            .field("term", &self.term())
            .field("is_leader", &self.is_leader())
            .finish_non_exhaustive()
    }
}
