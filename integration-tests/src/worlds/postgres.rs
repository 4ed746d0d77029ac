use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use latchwork_core::{Key, Locks};
use latchwork_harness::StopMode;
use latchwork_postgres::{Config, Postgres, PostgresOptions};

use crate::server::{self, Database};
use crate::world::LONG;
use crate::{Breakable, Counting, SessionWorld, Setup, View, World};

/// One way to use the PostgreSQL engine.
pub trait Flavour: Debug {
    /// Whether waits stand in the server's queue.
    const QUEUES: bool = true;

    /// Whether the cluster is this test's own.
    const ALONE: bool = false;

    /// Whether a pooler is between.
    const POOLED: bool = false;

    /// Changes the options of a process.
    fn tune(options: PostgresOptions) -> PostgresOptions {
        options
    }
}

/// With nothing between, on default settings.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "a name for a type parameter")]
pub struct Direct;

impl Flavour for Direct {}

/// Through a PgBouncer in session mode.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "a name for a type parameter")]
pub struct Pooled;

impl Flavour for Pooled {
    const POOLED: bool = true;
}

/// Without waiter sessions, so that all waiting is polling.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "a name for a type parameter")]
pub struct Polling;

impl Flavour for Polling {
    const QUEUES: bool = false;

    fn tune(options: PostgresOptions) -> PostgresOptions {
        options
            .with_waiter_sessions(0)
            .with_poll_interval(Duration::from_millis(10))
    }
}

/// With so few locks a session that there are many sessions, and with one that waits.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "a name for a type parameter")]
pub struct Crowded;

impl Flavour for Crowded {
    fn tune(options: PostgresOptions) -> PostgresOptions {
        options
            .with_locks_per_session(2)
            .with_waiter_sessions(1)
            .with_poll_interval(Duration::from_millis(10))
    }
}

/// On a server of its own, which can be stopped.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "a name for a type parameter")]
pub struct Alone;

impl Flavour for Alone {
    const ALONE: bool = true;
}

/// The PostgreSQL engine, a database for each test.
#[derive(Debug)]
pub struct Postgresql<F> {
    database: Database,
    processes: Mutex<Vec<Locks>>,
    flavour: PhantomData<F>,
}

impl<F: Flavour> World for Postgresql<F> {
    type Party = Locks;

    const QUEUES: bool = F::QUEUES;

    async fn start() -> Self {
        let database = if F::ALONE {
            Database::on(Arc::new(server::start())).await
        } else {
            Database::shared().await
        };
        Self {
            database,
            processes: Mutex::default(),
            flavour: PhantomData,
        }
    }

    async fn party(&self) -> Locks {
        self.process().await
    }

    async fn view(&self) -> View {
        self.database.view().await
    }

    async fn end_holders_of(&self, key: Key) {
        self.database.terminate_holders_of(key).await;
    }

    async fn complaints(&self) -> Vec<String> {
        self.database.complaints()
    }

    fn allow(&self, words: &'static str, most: usize) {
        self.database.allow(words, most);
    }

    fn leftovers(&self) -> Option<String> {
        leftovers(&self.processes.lock().unwrap())
    }

    async fn end(self) {
        for process in self.processes.into_inner().unwrap() {
            process.close_within(LONG).await.unwrap();
        }
    }
}

impl<F: Flavour> SessionWorld for Postgresql<F> {
    async fn process_with(&self, setup: Setup) -> Locks {
        let url = if F::POOLED {
            self.database.pooled_url()
        } else {
            self.database.url()
        };
        // On a busy machine it takes long to find out what a pooler does.
        let config: Config = format!("{url}?connect_timeout=60").parse().unwrap();
        let mut options = PostgresOptions::default().with_application_name("conformance");
        options.hand_over = setup.hand_over;
        options = F::tune(options);
        if let Some(locks) = setup.locks {
            options = options.with_max_locks(locks).with_locks_per_session(locks);
        }
        let process = Postgres::connect(config, options).await.unwrap().locks();
        self.processes.lock().unwrap().push(process.clone());
        process
    }
}

impl<F: Flavour> Counting for Postgresql<F> {
    async fn count_attempts(&self) {
        self.database.log_statements().await;
    }

    fn attempts(&self) -> usize {
        self.database.logged("pg_try_advisory_lock")
    }
}

impl Breakable for Postgresql<Alone> {
    fn stop_server(&self) {
        self.database
            .allow("terminating connection due to administrator command", usize::MAX);
        // Sessions ask again while it is stopping, and while it is starting.
        self.database.allow("the database system is shutting down", usize::MAX);
        self.database.cluster.stop(StopMode::Fast).unwrap();
    }

    fn start_server(&self) {
        self.database.allow("the database system is starting up", usize::MAX);
        self.database.cluster.restart(StopMode::Fast).unwrap();
    }
}

/// What gates still know of, where nobody holds or wants anything.
pub(crate) fn leftovers(processes: &[Locks]) -> Option<String> {
    let left = processes
        .iter()
        .map(Locks::stats)
        .find(|stats| stats.keys > 0 || stats.holders > 0);
    left.map(|stats| format!("{stats:?}"))
}
