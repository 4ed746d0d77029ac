//! Two instances on one database.

use crate::args::NAMES;
use crate::database::Database;
use crate::failure::Failure;
use crate::instance::{Instance, Setting};

/// Two instances, and the database that they share.
#[derive(Debug)]
pub(crate) struct Pair {
    // Dropped in this order: the instances end before their database does.
    pub(crate) instances: [Instance; 2],
    pub(crate) database: Database,
}

impl Pair {
    /// Starts both instances: on `port` and the next one, or on free ports.
    pub(crate) async fn start(database: Database, port: Option<u16>) -> Result<Self, Failure> {
        let namespace = format!("quickstart-{:016x}", fastrand::u64(..));
        let [first, second] = [port, port.map(|port| port + 1)].map(|port| Setting {
            port: port.unwrap_or(0),
            namespace: namespace.clone(),
        });
        // One after the other, so that a server that cannot be reached is reported once.
        let a = start(NAMES[0], first, &database).await?;
        let b = start(NAMES[1], second, &database).await?;
        Ok(Self {
            instances: [a, b],
            database,
        })
    }
}

async fn start(name: &'static str, setting: Setting, database: &Database) -> Result<Instance, Failure> {
    if let Database::Memory(memory, _) = database {
        return Instance::start_task(name, &setting, memory).await;
    }
    let url = database.url();
    tokio::task::spawn_blocking(move || Instance::start_process(name, &setting, url)).await?
}
