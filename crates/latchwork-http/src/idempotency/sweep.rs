use std::{
    error::Error,
    sync::Mutex,
    time::{Duration, Instant},
};

use latchwork_core::Key;
use tokio::spawn;
use tracing::{Instrument, warn};

use super::sql;
use crate::tx::{TxError, TxProvider, TxRequest};

/// How often a process looks for records that have expired.
const EVERY: Duration = Duration::from_secs(60);

/// When a policy has last swept.
#[derive(Debug, Default)]
pub(super) struct Sweeper(Mutex<Option<Instant>>);

impl Sweeper {
    /// Deletes records that have expired, in a task of its own, if the last time was long enough ago.
    pub(super) fn run<P: TxProvider>(&self, provider: &P) {
        if !self.is_due() {
            return;
        }
        let provider = provider.clone();
        let sweeping = async move {
            if let Err(error) = sweep(&provider).await {
                let error: &dyn Error = &error;
                warn!(target: "latchwork::http", error, "expired idempotency records were not deleted");
            }
        };
        spawn(sweeping.in_current_span());
    }

    fn is_due(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let due = last.is_none_or(|last| last.elapsed() >= EVERY);
        if due {
            *last = Some(Instant::now());
        }
        due
    }
}

/// Each piece in a transaction of its own, so that requests have the connection in between.
async fn sweep<P: TxProvider>(provider: &P) -> Result<(), TxError> {
    while let Some(mut tx) = provider.begin(TxRequest::new(turn())).await? {
        let more = match sql::sweep::<P>(&mut tx).await {
            Ok(more) => more,
            Err(error) => {
                // What is wrong with the statement says more than what is wrong with its undoing.
                let _ = P::rollback(tx).await;
                return Err(error);
            }
        };
        P::commit(tx).await?;
        if !more {
            break;
        }
    }
    Ok(())
}

/// One process at a time: whoever finds this locked leaves the work to the one who has it.
fn turn() -> Key {
    Key::bigint(0).derive("idempotency sweep", 0)
}
