use std::time::{Duration, Instant};

use super::{
    Cause, XactLockError, XactRequest,
    sql::{self, ANSWERS, Outcome, Standing},
    statement::XactStatement,
};
use crate::sqlstate::Condition;

/// How long the server waits in one statement. A waiting statement holds up vacuum, and an abandoned one the
/// connection.
const SLICE: Duration = Duration::from_secs(1);

/// A transaction's way to its locks: one attempt, then waits in slices within the limit.
///
/// A lock that is free costs one round trip. For one that is not the server waits in slices of about 1 second, so that
/// vacuum is not held up for longer; in between, a waiter loses its place in the queue. When the limit runs out the
/// transaction is usable, and its `lock_timeout` is what it was, as it is after a grant.
#[derive(Debug)]
pub struct XactWait {
    request: XactRequest,
    patience: Patience,
    begun: Instant,
    state: State,
}

#[derive(Debug)]
enum Patience {
    /// One attempt, and losing it is no error.
    None,
    Within(Duration),
    Endless,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    New,
    Busy,
    Granted,
}

impl XactWait {
    /// One attempt. Afterwards [`is_granted`](Self::is_granted) says whether it has succeeded.
    #[must_use]
    pub fn attempt(request: XactRequest) -> Self {
        Self::new(request, Patience::None)
    }

    /// Waits, at most for `limit`, or for ever. Zero makes one attempt.
    #[must_use]
    pub fn within(request: XactRequest, limit: Option<Duration>) -> Self {
        Self::new(request, limit.map_or(Patience::Endless, Patience::Within))
    }

    fn new(request: XactRequest, patience: Patience) -> Self {
        Self {
            request,
            patience,
            begun: Instant::now(),
            state: State::New,
        }
    }

    /// The statement to send; `None` when it is decided.
    ///
    /// # Errors
    ///
    /// [`XactLockError::TimedOut`] when the limit has run out.
    #[expect(clippy::should_implement_trait, reason = "an iterator has no end with an error")]
    pub fn next(&mut self) -> Result<Option<XactStatement>, XactLockError> {
        self.next_in(Standing::Unknown)
    }

    /// As [`next`](Self::next), in a transaction that has just begun in READ COMMITTED, as whoever sends it finds out by
    /// itself: it does not ask for that again, and costs the server half as much.
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next).
    pub fn next_after_begin(&mut self) -> Result<Option<XactStatement>, XactLockError> {
        self.next_in(Standing::Fresh)
    }

    fn next_in(&self, standing: Standing) -> Result<Option<XactStatement>, XactLockError> {
        let left = match (&self.state, &self.patience) {
            (State::New, patience) => {
                return Ok(Some(match (self.request.fence, patience) {
                    (None, _) => sql::attempt(&self.request, standing),
                    // A grant that is being made has the key for a moment.
                    (Some(_), Patience::Within(limit)) => sql::slice(&self.request, standing, SLICE.min(*limit)),
                    (Some(_), _) => sql::slice(&self.request, standing, SLICE),
                }));
            }
            (State::Granted, _) | (State::Busy, Patience::None) => return Ok(None),
            (State::Busy, Patience::Endless) => Duration::MAX,
            (State::Busy, Patience::Within(limit)) => {
                let left = limit.saturating_sub(self.begun.elapsed());
                if left.is_zero() {
                    let (keys, limit) = (self.request.keys.clone(), *limit);
                    return Err(XactLockError::TimedOut { keys, limit });
                }
                left
            }
        };
        // Slices differ by a fifth either way, so that waiters do not move in step.
        let slice = left.min(SLICE.mul_f64(0.8 + 0.4 * fastrand::f64()));
        Ok(Some(sql::slice(&self.request, standing, slice)))
    }

    /// Takes in what the server has answered: the text in the only column of the only row of
    /// [`XactStatement::ask`].
    ///
    /// # Errors
    ///
    /// [`XactLockError`] if that settles that there is no lock to be had.
    pub fn answered(&mut self, answer: &str) -> Result<(), XactLockError> {
        let keys = || self.request.keys.clone();
        self.state = match Outcome::of(answer) {
            Outcome::Granted => State::Granted,
            Outcome::Busy => State::Busy,
            Outcome::Cancelled => return Err(XactLockError::Cancelled { keys: keys() }),
            Outcome::Deadlock => {
                let (keys, source) = (keys(), None);
                return Err(XactLockError::Deadlock { keys, source });
            }
            Outcome::Full => {
                let (keys, source) = (keys(), None);
                return Err(XactLockError::LockTableFull { keys, source });
            }
            Outcome::Superseded => {
                return Err(match self.request.fence {
                    Some((fence, _)) => XactLockError::Superseded { key: fence.key() },
                    None => XactLockError::NoAnswer { keys: keys() },
                });
            }
            Outcome::Standby => return Err(XactLockError::Standby { keys: keys() }),
            Outcome::NoTransaction => return Err(XactLockError::NoTransaction { keys: keys() }),
            Outcome::Stale(isolation) => {
                let keys = keys();
                return Err(XactLockError::StaleSnapshot { keys, isolation });
            }
            Outcome::Unreadable => return Err(XactLockError::NoAnswer { keys: keys() }),
        };
        Ok(())
    }

    /// Takes in what the server has answered to [`XactStatement::ask_rows`]: how many rows.
    ///
    /// # Errors
    ///
    /// As [`answered`](Self::answered).
    pub fn answered_by_rows(&mut self, rows: u64) -> Result<(), XactLockError> {
        let place = usize::try_from(rows).ok().and_then(|rows| rows.checked_sub(1));
        let answer = place.and_then(|place| ANSWERS.get(place));
        self.answered(answer.copied().unwrap_or("not one of ours"))
    }

    /// What is asked for.
    #[must_use]
    pub const fn request(&self) -> &XactRequest {
        &self.request
    }

    /// Whether the transaction has its locks.
    #[must_use]
    pub fn is_granted(&self) -> bool {
        self.state == State::Granted
    }

    /// What it means that the library says the connection has no transaction open.
    #[must_use]
    pub fn no_transaction(&self) -> XactLockError {
        let keys = self.request.keys.clone();
        XactLockError::NoTransaction { keys }
    }

    /// What it means that the server did not answer in time.
    #[must_use]
    pub fn no_answer(&self) -> XactLockError {
        let keys = self.request.keys.clone();
        XactLockError::NoAnswer { keys }
    }

    /// What it means that the connection ended.
    #[must_use]
    pub fn lost(&self, source: impl Into<Cause>) -> XactLockError {
        let (keys, source) = (self.request.keys.clone(), source.into());
        XactLockError::ConnectionLost { keys, source }
    }

    /// What an error of the server means, by its SQLSTATE, or one of the driver, which has none.
    #[must_use]
    pub fn failed(&self, sqlstate: Option<&str>, source: impl Into<Cause>) -> XactLockError {
        let (keys, source) = (self.request.keys.clone(), source.into());
        match sqlstate.map(Condition::of) {
            Some(Condition::Deadlock) => XactLockError::Deadlock {
                keys,
                source: Some(source),
            },
            Some(Condition::LockTableFull) => XactLockError::LockTableFull {
                keys,
                source: Some(source),
            },
            Some(Condition::TransactionAborted) => XactLockError::Aborted { keys, source },
            Some(Condition::SessionEnded) => XactLockError::ConnectionLost { keys, source },
            _ => XactLockError::Backend { keys, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Key, Mode,
        fence::Fence,
        xact::{FencedLimits, statement::PATIENCE},
    };

    fn request() -> XactRequest {
        XactRequest::new(Key::bigint(1))
    }

    #[test]
    fn an_attempt_is_one_statement_whatever_it_is_answered() {
        for (answer, granted) in [("granted", true), ("busy", false)] {
            let mut wait = XactWait::attempt(request());
            let statement = wait.next().unwrap().unwrap();
            assert_eq!(statement.prepare(), None);
            wait.answered(answer).unwrap();
            assert!(wait.next().unwrap().is_none());
            assert_eq!(wait.is_granted(), granted);
        }
    }

    #[test]
    fn an_attempt_for_one_key_has_the_same_text_for_all_keys_of_its_kind() {
        let ask = |keys: &[Key]| {
            let statement = XactWait::attempt(XactRequest::new(keys)).next().unwrap().unwrap();
            let asked = statement.ask_with_parameters();
            asked.map(|(text, key)| {
                assert_ne!(text, statement.ask());
                assert_eq!([key], keys);
                text
            })
        };
        let (one, pair) = (ask(&[Key::bigint(1)]).unwrap(), ask(&[Key::pair(1, 2)]).unwrap());
        assert_eq!(one, ask(&[Key::bigint(-7)]).unwrap());
        assert_eq!(pair, ask(&[Key::pair(-3, 4)]).unwrap());
        assert!(one.contains("$1") && !one.contains("$2") && pair.contains("$2"));
        assert_eq!(ask(&[Key::bigint(1), Key::bigint(2)]), None);
        let mut wait = XactWait::within(request(), None);
        wait.next().unwrap().unwrap();
        wait.answered("busy").unwrap();
        assert!(wait.next().unwrap().unwrap().ask_with_parameters().is_none());
    }

    #[test]
    fn after_begin_an_attempt_does_not_ask_what_begin_has_settled() {
        for keys in [vec![Key::bigint(1)], vec![Key::bigint(1), Key::bigint(2)]] {
            let next = |after_begin| {
                let mut wait = XactWait::attempt(XactRequest::new(keys.clone()));
                let statement = if after_begin {
                    wait.next_after_begin()
                } else {
                    wait.next()
                };
                statement.unwrap().unwrap().joined()
            };
            let (fresh, unknown) = (next(true), next(false));
            for (question, is_settled) in [
                ("pg_is_in_recovery", false),
                ("statement_timestamp", true),
                ("transaction_isolation", true),
            ] {
                assert!(unknown.contains(question));
                assert_eq!(fresh.contains(question), !is_settled, "{question}");
            }
        }
    }

    #[test]
    fn every_number_of_rows_means_an_answer() {
        let fence = Fence::fresh(Key::bigint(1), Mode::Exclusive);
        for rows in 1..=ANSWERS.len() as u64 {
            let request = XactRequest::fenced(&fence, FencedLimits::default());
            let heard = XactWait::attempt(request).answered_by_rows(rows);
            assert!(!matches!(heard, Err(XactLockError::NoAnswer { .. })), "{rows}");
        }
        for rows in [0, ANSWERS.len() as u64 + 1, u64::MAX] {
            let heard = XactWait::attempt(request()).answered_by_rows(rows);
            assert!(matches!(heard, Err(XactLockError::NoAnswer { .. })), "{rows}");
        }
    }

    #[test]
    fn a_limit_of_zero_is_one_attempt() {
        let mut wait = XactWait::within(request(), Some(Duration::ZERO));
        wait.next().unwrap().unwrap();
        wait.answered("busy").unwrap();
        assert!(wait.next().unwrap_err().is_timeout());
    }

    #[test]
    fn a_wait_goes_on_in_slices_until_it_is_granted() {
        let mut wait = XactWait::within(request(), None);
        assert!(wait.next().unwrap().unwrap().prepare().is_none());
        for _ in 0..100 {
            wait.answered("busy").unwrap();
            let slice = wait.next().unwrap().unwrap();
            assert!(slice.prepare().is_some());
            let (least, most) = (SLICE.mul_f64(0.8) + PATIENCE, SLICE.mul_f64(1.2) + PATIENCE);
            assert!((least..=most).contains(&slice.answer_within()), "{slice:?}");
        }
        wait.answered("granted").unwrap();
        assert!(wait.next().unwrap().is_none() && wait.is_granted());
    }

    #[test]
    fn what_settles_it_is_an_error_of_its_own() {
        for (answer, usable, retryable) in [
            ("cancelled", true, true),
            ("deadlock", true, true),
            ("full", true, false),
            ("standby", true, false),
            ("no transaction", false, false),
            ("isolation serializable", true, false),
            ("something else", false, true),
        ] {
            let error = XactWait::attempt(request()).answered(answer).unwrap_err();
            assert_eq!(error.leaves_transaction_usable(), usable, "{error:?}");
            assert_eq!(error.is_retryable(), retryable, "{error:?}");
            assert!(error.to_string().contains("key 1"), "{error}");
        }
    }

    #[test]
    fn errors_of_the_server_are_sorted_by_their_code() {
        let wait = XactWait::attempt(request());
        let of = |code| wait.failed(code, "as the test wants");
        assert!(matches!(of(Some("40P01")), XactLockError::Deadlock { .. }));
        assert!(matches!(of(Some("53200")), XactLockError::LockTableFull { .. }));
        assert!(matches!(of(Some("25P02")), XactLockError::Aborted { .. }));
        assert!(matches!(of(Some("57P01")), XactLockError::ConnectionLost { .. }));
        assert!(matches!(of(Some("42601")), XactLockError::Backend { .. }));
        assert!(matches!(of(None), XactLockError::Backend { .. }));
        assert!(!of(Some("40P01")).leaves_transaction_usable());
    }
}
