use std::{error::Error, sync::Arc, time::SystemTime};

use crate::once::{LastRun, OnceError};

/// What is known of a job.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JobReport {
    /// Its name.
    pub name: String,
    /// Its last run, on whichever node; `None` if there was none yet.
    pub last: Option<LastRun>,
    /// When it is due next, without its jitter; `None` if never again.
    pub next: Option<SystemTime>,
    /// What its work has failed with when this process ran it last; `None` if it has not, was ended before, or never ran
    /// here.
    pub work_error: Option<Arc<dyn Error + Send + Sync>>,
    /// Why this process could not run it when it was due last; `None` if it could, or another did.
    pub failure: Option<Arc<OnceError>>,
}
