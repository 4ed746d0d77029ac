//! The way to the ledger of ticks.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{LastRun, LedgerError, RunEnd, TickAnswer, TickClaim};
use crate::{
    engine::{EngineError, LedgerRequest},
    key::Key,
    locks::Inner,
};

#[derive(Clone, Debug)]
pub(super) struct Ledger(Arc<Inner>);

impl Ledger {
    pub(super) const fn new(inner: Arc<Inner>) -> Self {
        Self(inner)
    }

    pub(super) async fn claim(&self, claim: &TickClaim) -> Result<TickAnswer, LedgerError> {
        let (request, answer) = LedgerRequest::claim(claim.clone());
        self.ask(request, answer).await
    }

    /// Says how the run of a claim has ended. That is on its way by the call itself.
    pub(super) fn record(
        &self,
        claim: &TickClaim,
        end: RunEnd,
    ) -> impl Future<Output = Result<bool, LedgerError>> + use<> {
        let (request, answer) = LedgerRequest::record(claim.key, claim.number, end);
        self.0.engine.ledger(request);
        answered(answer)
    }

    /// The last run of a job, by its key in the ledger.
    pub(super) async fn last_run(&self, key: Key) -> Result<Option<LastRun>, LedgerError> {
        let (request, answer) = LedgerRequest::read(key);
        self.ask(request, answer).await
    }

    async fn ask<T>(
        &self,
        request: LedgerRequest,
        answer: oneshot::Receiver<Result<T, EngineError>>,
    ) -> Result<T, LedgerError> {
        self.0.engine.ledger(request);
        answered(answer).await
    }
}

async fn answered<T>(answer: oneshot::Receiver<Result<T, EngineError>>) -> Result<T, LedgerError> {
    let answer = answer.await.unwrap_or_else(|_| Err(EngineError::connection_lost()));
    answer.map_err(|error| LedgerError::from_engine(&error))
}
