use std::time::Duration;

use super::sql::{ANSWERS, Attempt};
use crate::Key;

/// What to send next on the transaction.
#[derive(Debug)]
pub struct XactStatement {
    prepare: Option<String>,
    answer: Answer,
    server_waits: Duration,
}

/// The expression that is the answer.
#[derive(Debug)]
enum Answer {
    Attempt(Attempt),
    Text(String),
}

impl XactStatement {
    /// What is asked is an expression of type `text`.
    pub(super) const fn new(prepare: Option<String>, answer: String, server_waits: Duration) -> Self {
        Self {
            prepare,
            answer: Answer::Text(answer),
            server_waits,
        }
    }

    pub(super) const fn attempt(attempt: Attempt) -> Self {
        Self {
            prepare: None,
            answer: Answer::Attempt(attempt),
            server_waits: Duration::ZERO,
        }
    }

    /// A statement without a result that goes before [`ask`](Self::ask), in the same transaction.
    #[must_use]
    pub fn prepare(&self) -> Option<&str> {
        self.prepare.as_deref()
    }

    /// A query with one row of one column, `answer`, of type `text`.
    #[must_use]
    pub fn ask(&self) -> String {
        let answer = match &self.answer {
            Answer::Attempt(attempt) => attempt.text(),
            Answer::Text(text) => text.clone(),
        };
        format!("SELECT {answer} AS answer")
    }

    /// What [`ask`](Self::ask) asks with the key in parameters, and the key: `$1` of type `bigint`, or `$1` and `$2` of type
    /// `integer` for a pair. For a library that keeps statements prepared, since the text is the same for all keys of a kind.
    /// `None` for what is not one attempt for one key.
    #[must_use]
    pub fn ask_with_parameters(&self) -> Option<(String, Key)> {
        match &self.answer {
            Answer::Attempt(attempt) => {
                let answer = attempt.text_with_parameters();
                Some((format!("SELECT {answer} AS answer"), attempt.key))
            }
            Answer::Text(_) => None,
        }
    }

    /// What [`ask`](Self::ask) asks, answered by a number of empty rows, for a library that reads none; for
    /// [`XactWait::answered_by_rows`](super::XactWait::answered_by_rows).
    #[must_use]
    pub fn ask_rows(&self) -> String {
        let place = match &self.answer {
            Answer::Attempt(attempt) => attempt.place(),
            Answer::Text(answer) => {
                let answers = ANSWERS.map(|answer| format!("'{answer}'")).join(", ");
                format!("pg_catalog.array_position(ARRAY[{answers}]::pg_catalog.text[], {answer})")
            }
        };
        format!("SELECT FROM pg_catalog.generate_series(1, {place})")
    }

    /// What goes before and [`ask`](Self::ask), for a library that can send several statements in one simple query.
    #[must_use]
    pub fn joined(&self) -> String {
        self.behind_its_preparation(self.ask())
    }

    /// As [`joined`](Self::joined), with more columns behind the answer.
    #[must_use]
    pub fn joined_with(&self, columns: &str) -> String {
        self.behind_its_preparation(format!("{}, {columns}", self.ask()))
    }

    fn behind_its_preparation(&self, ask: String) -> String {
        match &self.prepare {
            Some(prepare) => format!("{prepare}; {ask}"),
            None => ask,
        }
    }

    /// After how long without an answer the server can be taken for silent.
    #[must_use]
    pub fn answer_within(&self) -> Duration {
        self.server_waits + PATIENCE
    }
}

/// How long an answer may take beyond the time that the server was told to wait.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
