//! Probes with a second session. They leave nothing held and cause no warning in the server's log.

use tokio_postgres::SimpleQueryMessage;

use super::facts::is_unknown_to_the_server;
use super::{CheckError, PoolMode};
use crate::connect::{ConnectError, Opened};

const OWN_PID: &str = "SELECT pg_catalog.pg_backend_pid()";

/// Finds out whether a pooler gives each client a session of its own, and refuses if not. `backend_pid` is the
/// server process that `first` had.
///
/// While `first` is between two transactions, `second` opens one. If it lands on the server process of `first`, or
/// `first` finds itself on another one, the sessions are shared. Under load a third client may come between, so the
/// process of `first` is also looked at from outside: the last statement that it ran must be ours.
pub(super) async fn pool_mode(first: &mut Opened, second: &mut Opened, backend_pid: i32) -> Result<(), ConnectError> {
    const ROUNDS: usize = 3;
    let pid = Some(i64::from(backend_pid));
    for _ in 0..ROUNDS {
        let mark = format!("latchwork {:016x}", fastrand::u64(..));
        let marked = number(first, &format!("{OWN_PID} /* {mark} */")).await?;
        if marked != pid || number(second, OWN_PID).await? == pid {
            return Err(shared(first, PoolMode::Transaction));
        }
        match second.wire.drive(second.client.batch_execute("BEGIN")).await {
            Ok(()) => {}
            Err(error) if error.code().is_some() => return Err(shared(first, PoolMode::Statement)),
            Err(error) => return Err(ConnectError::from_driver(error, &second.server)),
        }
        let look = format!(
            "SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity WHERE pid = {backend_pid} \
             AND state = 'idle' AND pg_catalog.strpos(query, '{mark}') > 0"
        );
        let untouched = number(second, &look).await? == Some(1);
        let apart = number(second, OWN_PID).await? != pid && number(first, OWN_PID).await? == pid;
        let ended = second.wire.drive(second.client.batch_execute("COMMIT")).await;
        ended.map_err(|error| ConnectError::from_driver(error, &second.server))?;
        if !apart || !untouched {
            return Err(shared(first, PoolMode::Transaction));
        }
    }
    Ok(())
}

fn shared(opened: &Opened, mode: PoolMode) -> ConnectError {
    ConnectError::Refused {
        server: opened.server.clone(),
        source: CheckError::SharedSessions { mode },
    }
}

/// Proves with a random key that what one session holds another is refused until it is given up, and that `pg_locks`
/// shows it.
pub(super) async fn exclusion(first: &mut Opened, second: &mut Opened, product: &str) -> Result<(), ConnectError> {
    let bits = fastrand::i64(..);
    let (high, low) = ((bits >> 32) as u32, bits as u32);
    let key = format!("'{bits}'::pg_catalog.int8");
    let take = format!("SELECT pg_catalog.pg_try_advisory_lock({key})::pg_catalog.int4");
    let give = format!("SELECT pg_catalog.pg_advisory_unlock({key})::pg_catalog.int4");
    let see = format!(
        "SELECT pg_catalog.count(*) FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND granted \
         AND pid = pg_catalog.pg_backend_pid() AND classid = {high} AND objid = {low} AND objsubid = 1"
    );
    // Never an unlock of what was not granted: that would be a warning in the server's log.
    let take_and_give = format!(
        "SELECT CASE WHEN pg_catalog.pg_try_advisory_lock({key}) \
         THEN pg_catalog.pg_advisory_unlock({key})::pg_catalog.int4 END"
    );
    let refusal = ConnectError::Refused {
        server: first.server.clone(),
        source: CheckError::NoExclusion {
            product: product.to_owned(),
        },
    };
    if number(first, &take).await? != Some(1) {
        return Err(refusal);
    }
    let seen = number(first, &see).await? == Some(1);
    let kept_out = number(second, &take_and_give).await?.is_none();
    let given = number(first, &give).await? == Some(1);
    let free_again = number(second, &take_and_give).await? == Some(1);
    if seen && kept_out && given && free_again {
        Ok(())
    } else {
        Err(refusal)
    }
}

/// Proves with a random key that `pg_locks` shows what a session holds, in one round trip. A server that only says yes
/// to everything does not.
pub(super) async fn own_lock(opened: &mut Opened, product: &str) -> Result<(), ConnectError> {
    let bits = fastrand::i64(..);
    let (high, low) = ((bits >> 32) as u32, bits as u32);
    // The transaction's lock goes with the implicit transaction of the statements, whatever becomes of them.
    let question = format!(
        "SELECT pg_catalog.pg_try_advisory_xact_lock('{bits}'::pg_catalog.int8); \
         SELECT pg_catalog.count(*) FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND granted \
         AND pid = pg_catalog.pg_backend_pid() AND classid = {high} AND objid = {low} AND objsubid = 1"
    );
    let answer = match opened.wire.drive(opened.client.simple_query(&question)).await {
        Ok(messages) => messages,
        Err(error) if is_unknown_to_the_server(&error) => Vec::new(),
        Err(error) => return Err(ConnectError::from_driver(error, &opened.server)),
    };
    let values: Vec<&str> = answer
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        })
        .collect();
    if values == ["t", "1"] {
        return Ok(());
    }
    Err(ConnectError::Refused {
        server: opened.server.clone(),
        source: CheckError::NoExclusion {
            product: product.to_owned(),
        },
    })
}

/// Runs a query that gives one number. A server that does not know what is asked for gives none.
async fn number(opened: &mut Opened, sql: &str) -> Result<Option<i64>, ConnectError> {
    let messages = match opened.wire.drive(opened.client.simple_query(sql)).await {
        Ok(messages) => messages,
        Err(error) if is_unknown_to_the_server(&error) => return Ok(None),
        Err(error) => return Err(ConnectError::from_driver(error, &opened.server)),
    };
    Ok(messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
        _ => None,
    }))
}
