//! Two processes at once migrate one database, with each of four tools: under `Locks::migrate`, one after the other.

mod diesel;
mod refinery;
mod sea_orm;
mod sqlx;

use std::{
    env,
    error::Error,
    process::{Child, Command, ExitCode},
    time::Duration,
};

use latchwork::{
    Locks,
    postgres::{Postgres, PostgresOptions},
};
use latchwork_harness::Cluster;

type Failure = Box<dyn Error + Send + Sync>;

/// What all instances lock while they migrate.
const LOCK: &str = "migrations";
/// How long an instance waits until the others have migrated.
const PATIENCE: Duration = Duration::from_secs(300);

/// The tools, with the table that each keeps its history in.
const TOOLS: [(&str, &str); 4] = [
    ("diesel", "__diesel_schema_migrations"),
    ("sea-orm", "seaql_migrations"),
    ("sqlx", "_sqlx_migrations"),
    ("refinery", "refinery_schema_history"),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let ended = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => TOOLS.iter().try_for_each(|(tool, history)| try_out(tool, history)),
        [tool, url] => migrate(tool, url),
        _ => Err("it takes no arguments".into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                eprintln!("  because: {error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}

/// What an instance of a service does when it starts.
fn migrate(tool: &str, url: &str) -> Result<(), Failure> {
    if tool == "diesel" {
        return diesel::migrate(url);
    }
    tokio::runtime::Runtime::new()?.block_on(async {
        let locks = Postgres::connect(url.parse()?, PostgresOptions::default())
            .await?
            .locks();
        migrate_with(tool, locks, url).await
    })
}

async fn migrate_with(tool: &str, locks: Locks, url: &str) -> Result<(), Failure> {
    match tool {
        "sea-orm" => sea_orm::migrate(locks, url).await,
        "sqlx" => sqlx::migrate(locks, url).await,
        "refinery" => refinery::migrate(locks, url).await,
        _ => Err(format!("there is no tool {tool:?}").into()),
    }
}

/// Has two processes migrate a database of their own, and looks at what has come of it.
fn try_out(tool: &str, history: &str) -> Result<(), Failure> {
    let cluster = Cluster::start()?;
    let start = || Command::new(env::current_exe()?).args([tool, &cluster.url()]).spawn();
    let instances: [Child; 2] = [start()?, start()?];
    for mut instance in instances {
        let ended = instance.wait()?;
        if !ended.success() {
            return Err(format!("an instance that migrates with {tool} has failed: {ended}").into());
        }
    }
    let migrations = cluster.psql(&format!("SELECT count(*) FROM {history}"))?;
    // The first migration inserts an order, and cannot run twice; of an index that failed midway an invalid one is left.
    let orders = cluster.psql("SELECT count(*) FROM orders")?;
    let indexes =
        "SELECT count(*) FROM pg_index WHERE indisvalid AND indrelid = 'orders'::regclass AND NOT indisprimary";
    let indexes = cluster.psql(indexes)?;
    println!("{tool}: {migrations} migrations were applied once by two processes.");
    if [&*migrations, &*orders, &*indexes] == ["2", "1", "1"] {
        return Ok(());
    }
    Err(format!("not 2, but {migrations} migrations, with {orders} orders and {indexes} indexes").into())
}
