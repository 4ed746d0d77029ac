//! The forms of SQL that the engine rests on, on every major that is installed.
//!
//! The texts are not repeated here: the server logs what the engine really sends, and the tests run that.

mod batches;
mod slices;

use latchwork_core::{Key, Mode};
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

/// What the engine sends to try and to release keys of each kind, and to take some of several.
struct Forms {
    tries: [String; 4],
    unlocks: [String; 4],
    one_try: [String; 4],
    one_unlock: [String; 4],
    some: [String; 2],
}

impl Forms {
    async fn of(installation: &Installation) -> Self {
        let cluster = verbose(installation.clone());
        let postgres = connect(&cluster.url(), PostgresOptions::default()).await;
        let locks = postgres.locks();
        for keys in [[Key::bigint(1), Key::bigint(2)], [Key::pair(1, 2), Key::pair(3, 4)]] {
            for mode in [Mode::Exclusive, Mode::Shared] {
                // Two in one poll go into one batch, and one goes alone.
                let [first, second] = keys.map(|key| locks.try_acquire(key).mode(mode));
                let (first, second) = tokio::join!(first, second);
                let [first, second] = [first, second].map(|guard| guard.unwrap().unwrap().release());
                let released = tokio::join!(first, second);
                released.0.and(released.1).unwrap();
                let alone = locks.try_acquire(keys[0]).mode(mode).await.unwrap().unwrap();
                alone.release().await.unwrap();
            }
        }
        for pool in [locks.slots("pool", 3), locks.slots_of_resource(7, 3)] {
            pool.unwrap()
                .try_acquire()
                .await
                .unwrap()
                .unwrap()
                .release()
                .await
                .unwrap();
        }
        locks.close().await;
        let texts = sent(&cluster);
        let functions = |verb: &str| {
            ["(k)", "_shared(k)", "(a, b)", "_shared(a, b)"].map(|rest| find(&texts, &[&format!("{verb}{rest}")]))
        };
        let ones = |verb: &str| {
            let [bigint, pair] = ["($1::pg_catalog.int8)]", "($1::pg_catalog.int4, $2::pg_catalog.int4)]"];
            [("", bigint), ("_shared", bigint), ("", pair), ("_shared", pair)]
                .map(|(mode, rest)| find(&texts, &[&format!("SELECT ARRAY[pg_catalog.{verb}{mode}{rest}")]))
        };
        Self {
            one_try: ones("pg_try_advisory_lock"),
            one_unlock: ones("pg_advisory_unlock"),
            tries: functions("array_agg(pg_catalog.pg_try_advisory_lock"),
            unlocks: functions("array_agg(pg_catalog.pg_advisory_unlock"),
            some: ["int8[]", "int4[]"].map(|kind| find(&texts, &["WITH RECURSIVE", "pg_try_advisory_lock", kind])),
        }
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
