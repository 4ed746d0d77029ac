use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;
use std::time::Duration;

use diesel::result::Error;
use latchwork_core::{
    Mode,
    fence::Fence,
    xact::{FencedLimits, KeySet, LockedError, XactLockError, XactOptions, XactRequest, XactWait, pause_after},
};
use tracing::warn;

use crate::{
    begin::{self, ALREADY_OPEN},
    commit::commit,
    errors, lock, state,
};

/// Transactions that hold locks from their beginning to their end. Implemented for every connection to PostgreSQL that
/// begins its transactions as diesel's own does, and for those of r2d2 pools; nobody else can.
///
/// The closure gets the connection, with the transaction open and the locks held. A `conn.transaction(..)` in it is a
/// savepoint. It must leave COMMIT and ROLLBACK of the whole to the method, which finds out if it does not.
///
/// Any error of the body will do. One that is no [`Error`](std::error::Error) itself, such as `anyhow::Error`, joins those of
/// the transaction by [`LockedError::into_body`].
///
/// Begin and lock are one message, and so are COMMIT and the question before it: with a free lock, the transaction
/// costs no more round trips than one without. When a wait takes longer than about 1 second, the server writes an error
/// about `lock_timeout` to its log once; further waits are quiet.
///
/// The instrumentation of the connection is told of the beginning and of a rollback as by diesel itself. The commit it
/// sees only as a query, since the question before it travels with it.
pub trait LockedTransactionExt: sealed::Transacts {
    /// Begins a READ COMMITTED transaction, takes the locks, runs the body, and commits if it says `Ok`. If it says
    /// `Err` or panics, the transaction is rolled back, and the panic goes on.
    ///
    /// Afterwards no transaction is open on the connection, whatever happened.
    ///
    /// # Errors
    ///
    /// - [`LockedError::Lock`] with [`TimedOut`](XactLockError::TimedOut) when the limit ran out. If the connection
    ///   turns out to have ended, it is [`ConnectionLost`](XactLockError::ConnectionLost) here, or `Begin`.
    /// - [`LockedError::Begin`] if a transaction is open already. One that was begun by an SQL text, so that diesel
    ///   does not know of it, is rolled back. A test transaction is one too.
    /// - [`LockedError::Body`], the body's own error.
    /// - [`LockedError::Aborted`] if the body says `Ok` though one of its statements had failed, or if the server
    ///   refuses the commit. Nothing was stored.
    /// - [`LockedError::OutcomeUnknown`] if the connection ended during the commit, or the body has ended the
    ///   transaction itself.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use diesel::{PgConnection, RunQueryDsl, result::Error, sql_query};
    /// use latchwork_diesel::{Key, LockedError, LockedTransactionExt as _, XactOptions};
    ///
    /// # fn example(conn: &mut PgConnection) -> Result<(), LockedError<Error>> {
    /// let both = [Key::bigint(7), Key::bigint(3)];
    /// conn.locked_transaction(both, XactOptions::within(Duration::from_secs(2)), |conn| {
    ///     sql_query("UPDATE accounts SET balance = balance - 5 WHERE id = 7").execute(conn)?;
    ///     sql_query("UPDATE accounts SET balance = balance + 5 WHERE id = 3").execute(conn)
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    fn locked_transaction<T, E, F>(
        &mut self,
        keys: impl Into<KeySet>,
        options: XactOptions,
        body: F,
    ) -> Result<T, LockedError<E>>
    where
        F: FnOnce(&mut Self) -> Result<T, E>,
    {
        begin_locked(self, keys.into(), &options, || true)?;
        run(self, body)
    }

    /// Does the same if all of the keys are free, with exclusive locks; `Ok(None)` if others have one of them. Nothing
    /// is waited for, and the body has not run then.
    ///
    /// Costs one round trip more than [`locked_transaction`](Self::locked_transaction), or two for several keys, and
    /// leaves nothing in the server's log when others have the lock.
    ///
    /// # Errors
    ///
    /// As [`locked_transaction`](Self::locked_transaction), never [`TimedOut`](XactLockError::TimedOut).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use diesel::{PgConnection, RunQueryDsl, result::Error, sql_query};
    /// use latchwork_diesel::{Key, LockedError, LockedTransactionExt as _};
    ///
    /// # fn example(conn: &mut PgConnection) -> Result<(), LockedError<Error>> {
    /// let swept = conn.try_locked_transaction(Key::bigint(42), |conn| {
    ///     sql_query("DELETE FROM carts WHERE abandoned").execute(conn)
    /// })?;
    /// if swept.is_none() {
    ///     println!("another instance is at it");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    fn try_locked_transaction<T, E, F>(&mut self, keys: impl Into<KeySet>, body: F) -> Result<Option<T>, LockedError<E>>
    where
        F: FnOnce(&mut Self) -> Result<T, E>,
    {
        try_locked_while(self, keys.into(), || true, body)
    }

    /// Does the same as [`locked_transaction`](Self::locked_transaction), and again from the beginning if a
    /// serialization failure (40001) or a deadlock (40P01) ended it, in the lock, the body or the commit.
    ///
    /// There are `attempts` runs at most, with a pause of 5 to 160 ms after each that failed; each has the whole limit
    /// for its locks. The body is cloned for each run. Its error is searched for diesel's, or for an
    /// [`XactLockError::Deadlock`], along [`source()`](std::error::Error::source).
    ///
    /// # Errors
    ///
    /// As [`locked_transaction`](Self::locked_transaction), those of the last run.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::{num::NonZeroU32, time::Duration};
    ///
    /// use diesel::{PgConnection, RunQueryDsl, result::Error, sql_query};
    /// use latchwork_diesel::{Key, LockedError, LockedTransactionExt as _, XactOptions};
    ///
    /// # fn example(conn: &mut PgConnection) -> Result<(), LockedError<Error>> {
    /// let options = XactOptions::within(Duration::from_secs(2));
    /// let attempts = const { NonZeroU32::new(5).unwrap() };
    /// conn.retrying_locked_transaction(Key::bigint(42), options, attempts, |conn| {
    ///     sql_query("UPDATE stock SET left = left - 1 WHERE item IN (SELECT item FROM orders)").execute(conn)
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    fn retrying_locked_transaction<T, E, F>(
        &mut self,
        keys: impl Into<KeySet>,
        options: XactOptions,
        attempts: NonZeroU32,
        body: F,
    ) -> Result<T, LockedError<E>>
    where
        F: FnOnce(&mut Self) -> Result<T, E> + Clone,
        E: std::error::Error + 'static,
    {
        let keys = keys.into();
        for failed in 1..attempts.get() {
            match self.locked_transaction(keys.clone(), options.clone(), body.clone()) {
                Err(error) if error.is_worth_another_run(errors::is_conflict) => thread::sleep(pause_after(failed)),
                other => return other,
            }
        }
        self.locked_transaction(keys, options, body)
    }

    /// Runs the body in a transaction that has [proved](latchwork_core::fence) a fence: it commits before any later
    /// grant of the lock is handed out, or not at all.
    ///
    /// The limits say after what time the server ends it, so that one that is paused does not keep the next holder
    /// waiting. The proof is waited for for at most `limit`; it is the first thing after BEGIN, and costs two round
    /// trips.
    ///
    /// # Errors
    ///
    /// [`LockedError::Lock`] with [`Superseded`](XactLockError::Superseded) if the grant is not in force any more: the
    /// body did not run. Otherwise as [`locked_transaction`](Self::locked_transaction).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use diesel::{PgConnection, RunQueryDsl, result::Error, sql_query};
    /// use latchwork_diesel::{Fence, FencedLimits, LockedError, LockedTransactionExt as _};
    ///
    /// # fn example(conn: &mut PgConnection, fence: Fence) -> Result<(), LockedError<Error>> {
    /// conn.fenced_transaction(&fence, FencedLimits::default(), Duration::from_secs(2), |conn| {
    ///     sql_query("UPDATE totals SET n = n + 1").execute(conn)
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    fn fenced_transaction<T, E, F>(
        &mut self,
        fence: &Fence,
        limits: FencedLimits,
        limit: Duration,
        body: F,
    ) -> Result<T, LockedError<E>>
    where
        F: FnOnce(&mut Self) -> Result<T, E>,
    {
        // It counts from here, so that BEGIN is in the limit.
        let wait = XactWait::within(XactRequest::fenced(fence, limits), Some(limit));
        begin::begin(self, &begin::alone()).map_err(not_begun)?;
        take_while(self, wait, || true)?;
        run(self, body)
    }
}

impl<C: sealed::Transacts> LockedTransactionExt for C {}

mod sealed {
    use diesel::Connection;

    use crate::{begin::BeginsBy, lock::sealed::OnPostgres};

    #[expect(unnameable_types, reason = "nobody else can implement a trait that they cannot name")]
    pub trait Transacts: OnPostgres + Connection<TransactionManager: BeginsBy<Self>> {}

    impl<C> Transacts for C
    where
        C: OnPostgres,
        C::TransactionManager: BeginsBy<C>,
    {
    }
}

/// Does the same as [`LockedTransactionExt::locked_transaction`], for as long as anybody wants it: `None` if nobody did
/// before the body ran.
#[cfg(feature = "tokio")]
pub(crate) fn locked_while<C, T, E, F>(
    conn: &mut C,
    keys: KeySet,
    options: &XactOptions,
    is_wanted: impl Fn() -> bool,
    body: F,
) -> Result<Option<T>, LockedError<E>>
where
    C: LockedTransactionExt,
    F: FnOnce(&mut C) -> Result<T, E>,
{
    let is_granted = begin_locked(conn, keys, options, &is_wanted)?;
    run_if(is_granted && is_wanted(), conn, body)
}

/// Does the same as [`LockedTransactionExt::try_locked_transaction`], for as long as anybody wants it.
pub(crate) fn try_locked_while<C, T, E, F>(
    conn: &mut C,
    keys: KeySet,
    is_wanted: impl Fn() -> bool,
    body: F,
) -> Result<Option<T>, LockedError<E>>
where
    C: LockedTransactionExt,
    F: FnOnce(&mut C) -> Result<T, E>,
{
    begin::begin(conn, &begin::alone()).map_err(not_begun)?;
    let is_granted = take_while(conn, XactWait::attempt(XactRequest::new(keys)), &is_wanted)?;
    run_if(is_granted && is_wanted(), conn, body)
}

fn run_if<C, T, E, F>(is_to: bool, conn: &mut C, body: F) -> Result<Option<T>, LockedError<E>>
where
    C: LockedTransactionExt,
    F: FnOnce(&mut C) -> Result<T, E>,
{
    if is_to {
        return run(conn, body).map(Some);
    }
    state::roll_back(conn);
    Ok(None)
}

/// Begins and locks in one message, if that may wait. If it fails for whatever reason, the transaction begins again
/// without a lock, and the lock is asked for in a way that tells the reason. `false` if nobody wants it any more.
fn begin_locked<C, E>(
    conn: &mut C,
    keys: KeySet,
    options: &XactOptions,
    is_wanted: impl Fn() -> bool,
) -> Result<bool, LockedError<E>>
where
    C: LockedTransactionExt,
{
    let request = XactRequest::new(keys).with_mode(options.mode());
    // It counts from here, so that the first message is in the limit.
    let wait = XactWait::within(request.clone(), options.limit());
    let limit = options.limit().unwrap_or(Duration::MAX);
    if !limit.is_zero() {
        match at_once(conn, request.keys(), options.mode(), limit) {
            Ok(()) => return Ok(true),
            Err(error) if errors::is_lost(&error) => return Err(wait.lost(error).into()),
            Err(error @ Error::AlreadyInTransaction) => return Err(not_begun(error)),
            Err(error) if errors::says(&error, ALREADY_OPEN) => return Err(not_begun(error)),
            Err(_) => {}
        }
    }
    begin::begin(conn, &begin::alone()).map_err(not_begun)?;
    take_while(conn, wait, is_wanted)
}

fn at_once<C: LockedTransactionExt>(conn: &mut C, keys: &KeySet, mode: Mode, limit: Duration) -> Result<(), Error> {
    let slice = limit.min(SLICE.mul_f64(0.8 + 0.4 * fastrand::f64()));
    begin::begin(conn, &begin::with_locks(keys, mode, slice))
}

/// Takes the locks in the transaction that is open, or rolls it back.
fn take_while<C, E>(conn: &mut C, mut wait: XactWait, is_wanted: impl Fn() -> bool) -> Result<bool, LockedError<E>>
where
    C: LockedTransactionExt,
{
    lock::run_while(conn, &mut wait, is_wanted).map_err(|error: XactLockError| {
        state::roll_back(conn);
        error.into()
    })
}

fn not_begun<E>(error: Error) -> LockedError<E> {
    LockedError::Begin(error.into())
}

fn run<C, T, E, F>(conn: &mut C, body: F) -> Result<T, LockedError<E>>
where
    C: LockedTransactionExt,
    F: FnOnce(&mut C) -> Result<T, E>,
{
    match catch_unwind(AssertUnwindSafe(|| body(conn))) {
        Ok(Ok(value)) => commit(conn).map(|()| value),
        Ok(Err(error)) => {
            if matches!(state::depth(conn), Ok(None)) {
                warn!(target: "latchwork::diesel", "a body that failed had ended its transaction itself, and may have stored something");
                state::clean(conn);
            }
            state::roll_back(conn);
            Err(LockedError::Body(error))
        }
        Err(panic) => {
            state::roll_back(conn);
            resume_unwind(panic)
        }
    }
}

/// How long the server waits in one message. A waiting statement holds up vacuum.
const SLICE: Duration = Duration::from_secs(1);
