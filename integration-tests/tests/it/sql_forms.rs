//! The forms of SQL that the engine rests on, on every major that is installed.
//!
//! The texts are not repeated here: the server logs what the engine really sends, and the tests run that.

mod batches;
mod slices;

use std::collections::BTreeSet;

use futures_util::future::join_all;
use latchwork_core::{Key, Locks, Mode};
use latchwork_harness::{Cluster, Installation};
use latchwork_postgres::PostgresOptions;

use crate::onlooker::{Onlooker, connect};

/// Everything that the engine has sent, prepared or simple, as the server logs it.
fn sent(cluster: &Cluster) -> Vec<String> {
    let log = cluster.log();
    let texts = log.lines().filter_map(|line| {
        let (_, said) = line.split_once("LOG:  ")?;
        let said = said
            .strip_prefix("execute ")
            .or_else(|| said.strip_prefix("statement"))?;
        said.split_once(": ").map(|(_, text)| text.to_owned())
    });
    texts.collect()
}

/// The last statement that has all `parts` in it.
#[track_caller]
fn find(texts: &[String], parts: &[&str]) -> String {
    let found = texts
        .iter()
        .rev()
        .find(|text| parts.iter().all(|part| text.contains(part)));
    found
        .unwrap_or_else(|| panic!("nothing with {parts:?} was sent: {texts:#?}"))
        .clone()
}

fn verbose(installation: Installation) -> Cluster {
    Cluster::builder()
        .installation(installation)
        .setting("log_statement", "all")
        .start()
        .unwrap()
}

/// Name of the setting that has the planner use parallel workers wherever it can.
fn parallel_setting(installation: &Installation) -> &'static str {
    if installation.major() >= 16 {
        "debug_parallel_query"
    } else {
        "force_parallel_mode"
    }
}

/// What the engine sends to try keys of one kind, and to release them.
struct Form {
    tries: String,
    unlocks: String,
}

impl Form {
    /// Whether the keys are pairs.
    fn pairs(&self) -> bool {
        self.tries.contains("int4")
    }

    /// Whether the answer lists the keys that were refused, and not an answer for each.
    fn lists_refused(&self) -> bool {
        self.tries.contains("FILTER")
    }

    /// Whether it takes one key and not an array.
    fn lone(&self) -> bool {
        !self.tries.contains("[]")
    }
}

/// All statements of a batch: to try and to release keys, and to take some of several bigints or pairs.
struct Forms {
    keys: Vec<Form>,
    some: [String; 2],
}

impl Forms {
    async fn of(installation: &Installation) -> Self {
        let cluster = verbose(installation.clone());
        let postgres = connect(&cluster.url(), PostgresOptions::default()).await;
        let locks = postgres.locks();
        for (mode, count) in [
            (Mode::Exclusive, 1),
            (Mode::Exclusive, 9),
            (Mode::Shared, 1),
            (Mode::Shared, 9),
        ] {
            pass_through(&locks, mode, (0..count).map(Key::bigint)).await;
            pass_through(&locks, mode, (0..count).map(|number| Key::pair(number as i32, -1))).await;
        }
        for pool in [locks.slots("pool", 3), locks.slots_of_resource(7, 3)] {
            let permit = pool.unwrap().try_acquire().await.unwrap().unwrap();
            permit.release().await.unwrap();
        }
        locks.close().await;

        let texts = sent(&cluster);
        let is_try = |text: &&String| {
            text.starts_with("SELECT ") && text.contains("pg_try_advisory_lock") && text.contains("$1")
        };
        let tries: BTreeSet<&String> = texts.iter().filter(is_try).collect();
        let keys = tries.into_iter().map(|tries| Form {
            tries: tries.clone(),
            unlocks: find(&texts, &[&tries.replace("pg_try_advisory_lock", "pg_advisory_unlock")]),
        });
        let keys: Vec<Form> = keys.collect();
        for (pairs, lone) in [(false, false), (false, true), (true, false), (true, true)] {
            let count = keys
                .iter()
                .filter(|form| (form.pairs(), form.lone()) == (pairs, lone))
                .count();
            assert_eq!(count, 2, "exclusive and shared; pairs {pairs}, lone {lone}: {texts:#?}");
        }
        Self {
            keys,
            some: ["int8[]", "int4[]"].map(|kind| find(&texts, &["WITH RECURSIVE", "pg_try_advisory_lock", kind])),
        }
    }
}

/// Acquires keys and releases them, in one batch each: nothing runs between the polls.
async fn pass_through(locks: &Locks, mode: Mode, keys: impl Iterator<Item = Key>) {
    let tries = keys.map(|key| locks.try_acquire(key).mode(mode));
    let guards = join_all(tries.collect::<Vec<_>>()).await;
    let releases = guards.into_iter().map(|guard| guard.unwrap().unwrap().release());
    for released in join_all(releases.collect::<Vec<_>>()).await {
        released.unwrap();
    }
}

/// A session whose plans are forced one way or the other.
async fn planner(cluster: &Cluster, parallel: &str, plans: &str) -> Onlooker {
    let session = Onlooker::new(&cluster.url()).await;
    let setting = parallel_setting(cluster.installation());
    let costs = "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0";
    session
        .value(&format!(
            "SET {setting} = {parallel}; SET plan_cache_mode = {plans}; {costs}"
        ))
        .await;
    session
}

/// All ways in which the planner can be pushed.
fn pushes() -> impl Iterator<Item = (&'static str, &'static str)> {
    let plans = ["auto", "force_generic_plan", "force_custom_plan"];
    ["off", "on"]
        .into_iter()
        .flat_map(move |parallel| plans.map(|plans| (parallel, plans)))
}
