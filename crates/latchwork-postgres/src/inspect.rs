//! Who holds what, and who waits for it.

use std::{fmt, time::SystemTime};

use latchwork_core::{
    Key, Mode,
    key::{Registry, registry::Entry},
};
use tokio_postgres::{Row, types::Type};

use crate::{
    connect::{ConnectError, Connected},
    error::StatementError,
    identity::{Granted, Identity},
    link::key_of_row,
    sql,
};

/// Why the locks could not be inspected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// There is no connection to ask on.
    #[error("no connection to inspect the locks on")]
    Connect(#[from] ConnectError),
    /// The server reports an error.
    #[error("the server did not do what the inspection asked for")]
    Statement(#[from] StatementError),
}

/// Ends the session of a holder, on a connection that is closed again afterwards.
pub(crate) async fn end_holder(connected: Connected, holder: &Holder) -> Result<bool, InspectError> {
    let Some(session) = &holder.session else {
        return Ok(false);
    };
    let Connected { client, mut wire, .. } = connected;
    let key = holder.key;
    let (classid, objid) = (key.classid(), key.objid());
    let objsubid = i16::try_from(key.objsubid()).unwrap_or_default();
    let values = [
        (&classid as _, Type::OID),
        (&objid as _, Type::OID),
        (&objsubid as _, Type::INT2),
        (&session.pid as _, Type::INT4),
    ];
    let rows = wire
        .drive(client.query_typed(sql::END_HOLDER, &values))
        .await
        .map_err(StatementError::from_driver)?;
    drop(client);
    wire.finish().await;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}

/// The advisory locks of one database at one moment.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Inspection {
    /// Those who hold a key, sorted by key.
    pub holders: Vec<Holder>,
    /// Those who queue for a key in the server, sorted by key and by how long they have waited. Who polls is not seen.
    pub waiters: Vec<Waiter>,
}

/// One who holds a key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// The key.
    pub key: Key,
    /// Its name, if it is registered.
    pub name: Option<String>,
    /// How it is held.
    pub mode: Mode,
    /// The session that holds it; `None` for a prepared transaction, which has none.
    pub session: Option<Session>,
}

/// One who queues for a key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Waiter {
    /// The key.
    pub key: Key,
    /// Its name, if it is registered.
    pub name: Option<String>,
    /// How it is wanted.
    pub mode: Mode,
    /// The session that waits.
    pub session: Session,
    /// Since when it has waited, on PostgreSQL 14 and later. A wait of ours begins anew with each slice.
    pub since: Option<SystemTime>,
    /// The process ids of those that stand in its way.
    pub blocked_by: Vec<i32>,
}

/// A session of the server. What the asking role may not see of others' sessions is `None`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Session {
    /// The server's process id.
    pub pid: i32,
    /// What the session says it is.
    pub application_name: String,
    /// Which process of ours it belongs to, if it is one of ours.
    pub identity: Option<Identity>,
    /// The fenced grant that it has, if it is one of ours and has one.
    pub granted: Option<Granted>,
    /// The role.
    pub user: Option<String>,
    /// The address of the client; `None` on a unix socket too.
    pub client: Option<String>,
    /// Since when the session is there.
    pub since: Option<SystemTime>,
    /// Since when its transaction is open, if one is.
    pub transaction_since: Option<SystemTime>,
}

impl Inspection {
    /// Asks on a connection that is closed again afterwards.
    pub(crate) async fn take(connected: Connected, names: &Registry) -> Result<Self, InspectError> {
        let Connected {
            client,
            mut wire,
            facts,
            ..
        } = connected;
        let question = sql::inspect(facts.major());
        let rows = wire
            .drive(client.query(&question, &[]))
            .await
            .map_err(StatementError::from_driver)?;
        drop(client);
        wire.finish().await;
        let mut inspection = Self::default();
        for row in &rows {
            inspection.add(row, names);
        }
        Ok(inspection)
    }

    /// The holders of one key.
    pub fn holders_of(&self, key: Key) -> impl Iterator<Item = &Holder> {
        self.holders.iter().filter(move |holder| holder.key == key)
    }

    /// Those who queue for one key.
    pub fn waiters_for(&self, key: Key) -> impl Iterator<Item = &Waiter> {
        self.waiters.iter().filter(move |waiter| waiter.key == key)
    }

    fn add(&mut self, row: &Row, names: &Registry) {
        let Some(key) = key_of_row(row) else { return };
        let name = names.entry(key).as_ref().map(spelt);
        let mode = if row.get(3) { Mode::Shared } else { Mode::Exclusive };
        let session = session(row);
        if row.get(4) {
            self.holders.push(Holder {
                key,
                name,
                mode,
                session,
            });
        } else if let Some(session) = session {
            let (since, blocked_by) = (row.get(11), row.get::<_, Option<_>>(12).unwrap_or_default());
            self.waiters.push(Waiter {
                key,
                name,
                mode,
                session,
                since,
                blocked_by,
            });
        }
    }
}

fn session(row: &Row) -> Option<Session> {
    let application_name: String = row.get::<_, Option<_>>(6).unwrap_or_default();
    Some(Session {
        pid: row.get::<_, Option<_>>(5)?,
        identity: Identity::parse(&application_name),
        granted: Granted::parse(&application_name),
        application_name,
        user: row.get(7),
        client: row.get(8),
        since: row.get(9),
        transaction_since: row.get(10),
    })
}

/// A registered name with its namespace in front.
fn spelt(entry: &Entry<'_>) -> String {
    match entry.namespace() {
        Some(namespace) if !namespace.is_empty() => format!("{namespace}:{}", entry.name()),
        _ => entry.name().to_owned(),
    }
}

/// Shows who it is as `name#number`, else the application's name, and the process id.
impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.identity {
            Some(identity) => write!(f, "{identity} (pid {})", self.pid),
            None if self.application_name.is_empty() => write!(f, "pid {}", self.pid),
            None => write!(f, "{} (pid {})", self.application_name, self.pid),
        }
    }
}
