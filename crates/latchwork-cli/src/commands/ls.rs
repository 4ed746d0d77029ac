use std::{
    io::{self, IsTerminal as _, Write as _},
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use latchwork_core::{Key, Mode, key::Registry};
use latchwork_postgres::{
    Inspection,
    inspect::{Holder, Session, Waiter},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    args::some_duration,
    connection::ConnectionArgs,
    failure::{Failure, Status, chain},
    name::{NamespaceArgs, key_of},
    names::{Names, Natural},
    output::{ago, line, news, printable, short, table, time},
    tool::Tool,
};

/// Shows who holds which lock and who waits for it
///
/// Keys have no names in them: those of --key, of --names and of other tools' migrations are named, others are numbers.
///
/// A lock is shown with the scope "transaction" if its session has a transaction open: its own end may be that of the
/// session all the same. "<5m" means that it has been held for five minutes at most. Who waits asks anew every 5 s or so,
/// and FOR is the time since then: how long it has waited in all is not known. Who polls for a lock is not seen.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Shows this lock alone, with its slots, its shards and the workers that share them
    #[arg(long, value_name = "NAME", num_args = 1.., allow_negative_numbers = true)]
    key: Vec<String>,
    #[command(flatten)]
    namespace: NamespaceArgs,
    /// The lock of --key is that of another tool
    #[arg(long, value_name = "TOOL", requires = "key")]
    compat: Option<Tool>,
    /// --key is a number, a pair of two numbers, or classid/objid/objsubid
    #[arg(long, requires = "key", conflicts_with = "compat")]
    raw: bool,
    /// A file with names to show in place of numbers: NAME or NAMESPACE:NAME, a line each
    #[arg(long, value_name = "FILE", env = "LATCHWORK_NAMES")]
    names: Option<PathBuf>,
    /// Shows it again and again, also after an outage of the server
    #[arg(long, short)]
    watch: bool,
    /// How often, with --watch; longer than 0
    #[arg(long, value_name = "DUR", value_parser = some_duration, default_value = "2s", requires = "watch")]
    every: Duration,
    /// Writes JSON, a line for each holder and each waiter
    #[arg(long)]
    json: bool,
}

impl LsArgs {
    pub(crate) async fn perform(self, connection: &ConnectionArgs) -> Result<Status, Failure> {
        let mut names = self.names()?;
        let postgres = connection.connect("latchwork ls").await?;
        if let Some(server) = postgres.server().filter(|_| self.key.is_empty()) {
            names.add_migrations(&server.database);
        }
        let (mut has_shown, mut is_away) = (false, false);
        loop {
            let mut seen = match postgres.inspect(&Registry::new()).await {
                Ok(seen) => seen,
                // Once for each outage. Whoever watches wants to see the end of it.
                Err(error) if self.watch && has_shown => {
                    if !is_away {
                        news(&format_args!("{}; looking again", chain(&error)));
                    }
                    is_away = true;
                    sleep(self.every).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            (has_shown, is_away) = (true, false);
            for holder in &seen.holders {
                names.learn(holder.key);
            }
            for holder in &mut seen.holders {
                holder.name = names.of(holder.key);
            }
            for waiter in &mut seen.waiters {
                waiter.name = names.of(waiter.key);
            }
            if !self.key.is_empty() {
                // What has no name then is of others.
                seen.holders.retain(|holder| holder.name.is_some());
                seen.waiters.retain(|waiter| waiter.name.is_some());
            }
            seen.holders
                .sort_by_cached_key(|holder| place(holder.name.as_deref(), holder.key));
            seen.waiters
                .sort_by_cached_key(|waiter| place(waiter.name.as_deref(), waiter.key));
            self.show(&seen)?;
            if !self.watch {
                return Ok(Status::SUCCESS);
            }
            sleep(self.every).await;
        }
    }

    /// The names of --key, or else those of the file.
    fn names(&self) -> Result<Names, Failure> {
        let mut names = Names::default();
        if self.key.is_empty() {
            if let Some(file) = &self.names {
                names.read(file)?;
            }
            return Ok(names);
        }
        let key = key_of(&self.key, &self.namespace, self.compat, self.raw)?;
        names.add(key, &self.key.join("/"));
        Ok(names)
    }

    fn show(&self, seen: &Inspection) -> Result<(), Failure> {
        if self.json {
            for holder in &seen.holders {
                line(&holder_json(holder, seen))?;
            }
            for waiter in &seen.waiters {
                line(&waiter_json(waiter))?;
            }
            return Ok(());
        }
        if self.watch && io::stdout().is_terminal() {
            // To the top, and everything below it away.
            write!(io::stdout(), "\x1b[H\x1b[J")?;
        }
        if seen.holders.is_empty() && seen.waiters.is_empty() {
            return line(&"nobody holds a lock, or waits for one");
        }
        let mut rows: Vec<(Place, Vec<String>)> = Vec::new();
        rows.extend(seen.holders.iter().map(|holder| {
            let place = place(holder.name.as_deref(), holder.key);
            (place, holder_row(holder, seen))
        }));
        rows.extend(seen.waiters.iter().map(|waiter| {
            let place = place(waiter.name.as_deref(), waiter.key);
            (place, waiter_row(waiter))
        }));
        // Those of one key come together, the holders first.
        rows.sort_by(|(one, _), (other, _)| one.cmp(other));
        let rows: Vec<Vec<String>> = rows.into_iter().map(|(_, row)| row).collect();
        table(HEAD, &rows)
    }
}

/// What locks are sorted by: their names, and after those the keys that have none.
type Place = (bool, Natural, (u32, u32, u32));

fn place(name: Option<&str>, key: Key) -> Place {
    let key = (u32::from(key.objsubid()), key.classid(), key.objid());
    (name.is_none(), Natural::of(name.unwrap_or_default()), key)
}

const HEAD: &[&str] = &[
    "NAME",
    "MODE",
    "SCOPE",
    "",
    "FOR",
    "APPLICATION",
    "HOST",
    "PID",
    "BLOCKS",
];

fn holder_row(holder: &Holder, seen: &Inspection) -> Vec<String> {
    let since = held_for(holder).map(|held| {
        let at_most = if held.is_exact { "" } else { "<" };
        format!("{at_most}{}", short(held.time))
    });
    let blocks = blocked(holder, seen);
    let blocks = if blocks.is_empty() {
        String::new()
    } else {
        list(&blocks)
    };
    let mut row = row_begin(&holder.name, holder.key, holder.mode);
    row.extend([
        scope(holder.session.as_ref()).to_owned(),
        "holds".to_owned(),
        since.unwrap_or_default(),
    ]);
    row.extend(whose(holder.session.as_ref()));
    row.push(blocks);
    row
}

fn waiter_row(waiter: &Waiter) -> Vec<String> {
    let mut row = row_begin(&waiter.name, waiter.key, waiter.mode);
    let since = waiter.since.map(ago).unwrap_or_default();
    row.extend([String::new(), "waits".to_owned(), since]);
    row.extend(whose(Some(&waiter.session)));
    row.push(format!("by {}", list(&waiter.blocked_by)));
    row
}

fn row_begin(name: &Option<String>, key: Key, mode: Mode) -> Vec<String> {
    let name = name.as_ref().map_or_else(|| key.to_string(), |name| printable(name));
    vec![name, mode.to_string()]
}

/// The application, the host and the process id.
fn whose(session: Option<&Session>) -> [String; 3] {
    let Some(session) = session else {
        return ["a prepared transaction".to_owned(), String::new(), String::new()];
    };
    let application = match &session.identity {
        Some(identity) => identity.to_string(),
        None => session.application_name.clone(),
    };
    let host = session.client.clone().unwrap_or_else(|| "local".to_owned());
    [printable(&application), host, session.pid.to_string()]
}

fn list(pids: &[i32]) -> String {
    let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
    pids.join(" ")
}

/// Those who wait because of a holder.
fn blocked(holder: &Holder, seen: &Inspection) -> Vec<i32> {
    let Some(session) = &holder.session else {
        return Vec::new();
    };
    seen.waiters_for(holder.key)
        .filter(|waiter| waiter.blocked_by.contains(&session.pid))
        .map(|waiter| waiter.session.pid)
        .collect()
}

fn scope(session: Option<&Session>) -> &'static str {
    match session {
        None => "transaction",
        // Our sessions hold locks of the session only.
        Some(session) if session.identity.is_some() || session.transaction_since.is_none() => "session",
        Some(_) => "transaction",
    }
}

struct HeldFor {
    time: Duration,
    is_exact: bool,
}

/// The server does not tell when a lock was granted. A fenced one tells itself; no other is older than its session, or
/// than its transaction.
fn held_for(holder: &Holder) -> Option<HeldFor> {
    let session = holder.session.as_ref()?;
    let is_transaction = scope(Some(session)) == "transaction";
    let bound = session.transaction_since.filter(|_| is_transaction).or(session.since);
    let since = session.granted.map(|granted| granted.since).or(bound)?;
    Some(HeldFor {
        time: since.elapsed().unwrap_or_default(),
        is_exact: session.granted.is_some(),
    })
}

fn holder_json(holder: &Holder, seen: &Inspection) -> Value {
    let mut value = common_json(
        "holder",
        holder.key,
        holder.name.as_deref(),
        holder.mode,
        holder.session.as_ref(),
    );
    let held = held_for(holder);
    value["scope"] = json!(scope(holder.session.as_ref()));
    value["held_seconds"] = json!(held.as_ref().map(|held| held.time.as_secs()));
    value["held_seconds_is_exact"] = json!(held.is_some_and(|held| held.is_exact));
    value["term"] = json!(
        holder
            .session
            .as_ref()
            .and_then(|session| session.granted)
            .map(|granted| granted.term.to_string())
    );
    value["blocks"] = json!(blocked(holder, seen));
    value
}

fn waiter_json(waiter: &Waiter) -> Value {
    let mut value = common_json(
        "waiter",
        waiter.key,
        waiter.name.as_deref(),
        waiter.mode,
        Some(&waiter.session),
    );
    value["waits_since"] = json!(waiter.since.map(time));
    value["blocked_by"] = json!(waiter.blocked_by);
    value
}

fn common_json(kind: &str, key: Key, name: Option<&str>, mode: Mode, session: Option<&Session>) -> Value {
    json!({
        "kind": kind,
        "key": key.to_string(),
        "name": name,
        "classid": key.classid(),
        "objid": key.objid(),
        "objsubid": key.objsubid(),
        "mode": mode.to_string(),
        "application": session.map(|session| match &session.identity {
            Some(identity) => identity.to_string(),
            None => session.application_name.clone(),
        }),
        "user": session.and_then(|session| session.user.as_ref()),
        "host": session.and_then(|session| session.client.as_ref()),
        "pid": session.map(|session| session.pid),
        "session_since": session.and_then(|session| session.since).map(time),
    })
}
