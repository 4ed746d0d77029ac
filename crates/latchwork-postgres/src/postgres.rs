//! The front of the engine.

use std::{fmt, sync::Arc};

use latchwork_core::{Locks, key::Registry, rate::RateLimits};
use tokio::runtime::Handle;

use crate::{
    checks::ServerFacts,
    config::Config,
    connect::{ConnectError, Connected},
    engine::PostgresEngine,
    identity::Identity,
    inspect::{self, Holder, InspectError, Inspection},
    options::PostgresOptions,
    rates::{PostgresRates, RateOptions},
    schema::{self, SchemaError, SchemaState},
    shared::{Availability, Shared},
    survey::Survey,
};

/// One process on one PostgreSQL database.
///
/// A service makes one when it starts, and clones it, or the [`Locks`] that it makes, freely. Its sessions end with
/// [`Locks::close`], or when the last clone, guard and permit is gone.
#[derive(Clone)]
pub struct Postgres {
    locks: Locks,
    shared: Arc<Shared>,
}

impl Postgres {
    /// Connects, and checks that the server can be trusted with locks.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was opened.
    ///
    /// # Errors
    ///
    /// [`ConnectError`], whose text says what to do. A hot standby, a pooler in transaction mode, and a server without
    /// real advisory locks are refused.
    ///
    /// # Panics
    ///
    /// When polled outside of a tokio runtime.
    pub async fn connect(config: Config, options: PostgresOptions) -> Result<Self, ConnectError> {
        let shared = Arc::new(Shared::new(config, options, Handle::current()));
        let first = shared.connect().await?;
        Ok(Self::begin(shared, Some(first)))
    }

    /// Returns at once, and connects in the background for as long as it takes. What is asked for meanwhile waits, if it
    /// waits at all, within its own limit.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn connect_in_background(config: Config, options: PostgresOptions) -> Self {
        Self::begin(Arc::new(Shared::new(config, options, Handle::current())), None)
    }

    fn begin(shared: Arc<Shared>, first: Option<Connected>) -> Self {
        let engine = Arc::new(PostgresEngine {
            shared: Arc::clone(&shared),
        });
        let locks = Locks::new(engine, shared.options.for_locks());
        if first.is_some() {
            // Else one who asks before the session's task has begun would be told of an outage.
            shared.set_availability(Availability::Up);
        }
        shared.begin(first);
        Self { locks, shared }
    }

    /// The locks of this process.
    #[must_use]
    pub fn locks(&self) -> Locks {
        self.locks.clone()
    }

    /// Rate limits over all processes that use this database. They need the tables of [`schema`].
    ///
    /// They have a session of their own, which connects in the background, and which ends with
    /// [`RateLimits::close`] or when the last clone is gone; closing the locks does not end it. A service makes them once
    /// and clones them: those of a second call have another session, though they count together.
    ///
    /// The namespace is that of `options`, not that of the locks.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use latchwork_core::rate::Quota;
    /// # use latchwork_postgres::{Postgres, RateOptions};
    /// # async fn search(postgres: &Postgres) -> Result<(), Box<dyn std::error::Error>> {
    /// let rates = postgres.rate_limits(RateOptions::default());
    /// let quota = Quota::per_second(10)?.with_burst(20)?;
    /// if !rates.check(["search", "user 42"], quota, 1).await?.is_allowed() {
    ///     println!("too many");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn rate_limits(&self, options: RateOptions) -> RateLimits {
        let engine = PostgresRates::begin(&self.shared, &options);
        RateLimits::new(Arc::new(engine), options.limits)
    }

    /// Makes the tables of [`schema`] that are missing, over a connection of its own. It may run at each
    /// start of each instance.
    ///
    /// # Cancel safety
    ///
    /// As for [`schema::install`].
    ///
    /// # Errors
    ///
    /// As for [`schema::install`], and [`SchemaError::Connect`] if there is no connection to be had.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use latchwork_postgres::{Postgres, RateOptions, schema::SchemaError};
    /// # async fn start(postgres: &Postgres) -> Result<(), SchemaError> {
    /// postgres.install_schema().await?;
    /// let rates = postgres.rate_limits(RateOptions::default());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn install_schema(&self) -> Result<(), SchemaError> {
        let Connected { client, mut wire, .. } = self.shared.connect().await?;
        wire.drive(async { Ok(schema::install(&client).await) })
            .await
            .map_err(SchemaError::from_driver)?
    }

    /// Finds out which version of the tables of [`schema`] is there, over a connection of its own.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time; it only reads.
    ///
    /// # Errors
    ///
    /// As for [`schema::check`], and [`SchemaError::Connect`] if there is no connection to be had.
    pub async fn check_schema(&self) -> Result<SchemaState, SchemaError> {
        let Connected { client, mut wire, .. } = self.shared.connect().await?;
        wire.drive(async { Ok(schema::check(&client).await) })
            .await
            .map_err(SchemaError::from_driver)?
    }

    /// Looks who holds which advisory key of this database, and who queues for it. The question goes over a connection
    /// of its own, so that it stands in no lock's way. `names` gives keys their names.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    ///
    /// # Errors
    ///
    /// [`InspectError`] if there is no connection to be had, or the server reports an error.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use latchwork_core::key::Registry;
    /// # use latchwork_postgres::Postgres;
    /// # async fn show(postgres: &Postgres) -> Result<(), Box<dyn std::error::Error>> {
    /// for holder in postgres.inspect(&Registry::new()).await?.holders {
    ///     if let Some(session) = &holder.session {
    ///         println!("{} is held {} by {session}", holder.key, holder.mode);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn inspect(&self, names: &Registry) -> Result<Inspection, InspectError> {
        Inspection::take(self.shared.connect().await?, names).await
    }

    /// Ends the session of a holder, with all that it holds, if it holds the key still: false if it does not any more, or
    /// is a prepared transaction, which has no session. The server ends it a moment later.
    ///
    /// A holder of ours notices at once, and cancels the work that it runs under its guard. Other programs may go on
    /// without the lock.
    ///
    /// # Cancel safety
    ///
    /// Dropped midway, the session may still be ended.
    ///
    /// # Errors
    ///
    /// [`InspectError`] if there is no connection to be had, or this role may not end that session: it must be of the same
    /// role, or have `pg_signal_backend`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use latchwork_core::{Key, key::Registry};
    /// # use latchwork_postgres::Postgres;
    /// # async fn free(postgres: &Postgres, key: Key) -> Result<(), Box<dyn std::error::Error>> {
    /// for holder in postgres.inspect(&Registry::new()).await?.holders_of(key) {
    ///     postgres.end_holder(holder).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn end_holder(&self, holder: &Holder) -> Result<bool, InspectError> {
        inspect::end_holder(self.shared.connect().await?, holder).await
    }

    /// Looks at what there is to know about the server, and the way to it, before it is trusted with locks. It goes over
    /// a connection of its own, and takes a few dozen round trips.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    ///
    /// # Errors
    ///
    /// [`InspectError`] if there is no connection to be had, or the server reports an error.
    pub async fn survey(&self) -> Result<Survey, InspectError> {
        Survey::take(self.shared.connect().await?).await
    }

    /// How this process shows itself to others.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.shared.identity
    }

    /// What was found out about the server; `None` before the first connection.
    #[must_use]
    pub fn server(&self) -> Option<ServerFacts> {
        self.shared.facts()
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("locks", &self.locks)
            .finish_non_exhaustive()
    }
}
