//! Those whose requests are on the wire.

use std::{mem, sync::Mutex};

use latchwork_core::engine::EngineError;

use super::batch::Part;
use crate::sync::lock;

/// Those whose requests are on the wire. They are here, and not with the task that waits for the answers, so that a
/// silence of the server can answer them.
#[derive(Debug, Default)]
pub(super) struct Asked(Mutex<Vec<Part>>);

impl Asked {
    pub(super) fn put(&self, parts: Vec<Part>) {
        *lock(&self.0) = parts;
    }

    pub(super) fn take(&self) -> Vec<Part> {
        mem::take(&mut lock(&self.0))
    }

    pub(super) fn fail(&self, error: &EngineError) {
        self.take().into_iter().for_each(|part| part.fail(error));
    }
}
