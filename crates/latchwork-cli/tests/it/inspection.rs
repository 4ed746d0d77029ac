//! What `ls` shows and what `break` ends.

use std::{
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use latchwork_core::shards::ShardEvent;
use latchwork_harness::{Cluster, Process, Signal, StopMode, wait_until};
use latchwork_postgres::{Config, Postgres, PostgresOptions};

use crate::support::{PATIENCE, exit_status, held, latchwork, start, stdout, without_database};

fn show(cluster: &Cluster, arguments: &[&str]) -> String {
    let mut all = vec!["ls"];
    all.extend(arguments);
    stdout(&latchwork(&cluster.url(), &all).output().unwrap())
}

fn waiter(cluster: &Cluster, name: &str) -> Process {
    let waiter = Process::spawn(&mut latchwork(&cluster.url(), &["run", name, "--", "true"])).unwrap();
    let waits = || cluster.psql("SELECT count(*) FROM pg_locks WHERE NOT granted").unwrap() == "1";
    assert!(wait_until(PATIENCE, waits));
    waiter
}

#[test]
fn holders_and_waiters_are_shown_with_who_blocks_whom() {
    let cluster = Cluster::start().unwrap();
    assert_eq!(show(&cluster, &[]), "nobody holds a lock, or waits for one\n");
    assert_eq!(show(&cluster, &["--json"]), "");
    let _holder = start(&cluster, &["run", "billing"], "echo ready; exec sleep 60");
    let _waiter = waiter(&cluster, "billing");

    let table = show(&cluster, &["--key", "billing"]);
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    let [head, holder, waiter] = &lines[..] else {
        panic!("{table}")
    };
    assert_eq!(head[..3], ["NAME", "MODE", "SCOPE"]);
    assert_eq!(holder[..4], ["billing", "exclusive", "session", "holds"]);
    assert_eq!(waiter[..3], ["billing", "exclusive", "waits"]);
    let (holder_pid, waiter_pid) = (holder[7], waiter[6]);
    assert_eq!(holder[8], waiter_pid, "{table}");
    assert_eq!(waiter[7..], ["by", holder_pid], "{table}");
    assert!(
        holder[5].starts_with("sh#") && waiter[4].starts_with("true#"),
        "{table}"
    );

    let json = show(&cluster, &["--json"]);
    let lines: Vec<&str> = json.lines().collect();
    assert!(lines[0].contains("\"kind\":\"holder\"") && lines[0].contains(&format!("\"blocks\":[{waiter_pid}]")));
    assert!(lines[1].contains("\"kind\":\"waiter\"") && lines[1].contains(&format!("\"blocked_by\":[{holder_pid}]")));
    assert!(lines[0].contains("\"name\":null"), "{json}");
}

#[test]
fn names_come_from_a_file_from_slots_and_from_other_tools() {
    let cluster = Cluster::start().unwrap();
    let file = std::env::temp_dir().join(format!("latchwork-cli-names-{}", std::process::id()));
    std::fs::write(&file, "# ours\nshop:nightly\nrender\n").unwrap();
    let _named = start(
        &cluster,
        &["run", "--namespace", "shop", "nightly"],
        "echo ready; exec sleep 60",
    );
    let _slot = start(
        &cluster,
        &["run", "--slots", "3", "render"],
        "echo ready; exec sleep 60",
    );
    let _prisma = start(
        &cluster,
        &["run", "--compat", "prisma-migrate"],
        "echo ready; exec sleep 60",
    );
    let _ruby = start(
        &cluster,
        &["run", "--compat", "with-advisory-lock", "render"],
        "echo ready; exec sleep 60",
    );
    let _number = start(&cluster, &["run", "--raw", "4711"], "echo ready; exec sleep 60");
    let shown = latchwork(&cluster.url(), &["ls"])
        .env("LATCHWORK_NAMES", &file)
        .output()
        .unwrap();
    std::fs::remove_file(&file).unwrap();
    let table = stdout(&shown);
    for name in [
        "shop:nightly ",
        "render slot ",
        "render has 3 slots",
        "compat prisma-migrate",
        "compat with-advisory-lock render",
        "4711 ",
    ] {
        assert!(table.lines().any(|line| line.starts_with(name)), "{name}: {table}");
    }
    let slots = show(&cluster, &["--key", "render"]);
    assert!(slots.contains("render slot ") && !slots.contains("4711"), "{slots}");
}

#[test]
fn names_are_sorted_by_the_numbers_in_them() {
    let cluster = Cluster::start().unwrap();
    let file = std::env::temp_dir().join(format!("latchwork-cli-order-{}", std::process::id()));
    let names = ["part 1", "part 2", "part 9", "part 10", "part 11", "part 100"];
    std::fs::write(&file, names.join("\n")).unwrap();
    let _held: Vec<Process> = names
        .iter()
        .rev()
        .map(|name| start(&cluster, &["run", name], "echo ready; exec sleep 60"))
        .collect();
    let _number = start(&cluster, &["run", "--raw", "1"], "echo ready; exec sleep 60");
    let shown = |arguments: &[&str]| {
        let mut command = latchwork(&cluster.url(), &[&["ls"], arguments].concat());
        stdout(&command.env("LATCHWORK_NAMES", &file).output().unwrap())
    };
    let (table, json) = (shown(&[]), shown(&["--json"]));
    std::fs::remove_file(&file).unwrap();
    let first: Vec<&str> = table
        .lines()
        .skip(1)
        .map(|line| line.split("  ").next().unwrap())
        .collect();
    assert_eq!(first[..6], names, "{table}");
    assert_eq!(first[6], "1", "{table}");
    let in_json: Vec<bool> = json
        .lines()
        .zip(names)
        .map(|(line, name)| line.contains(&format!("\"name\":\"{name}\"")))
        .collect();
    assert_eq!(in_json, [true; 6], "{json}");
}

#[test]
fn a_watch_without_a_pause_is_refused_and_the_help_says_what_for_is() {
    for every in ["0", "0ms"] {
        let watch = latchwork("host=/nowhere", &["ls", "--watch", "--every", every])
            .status()
            .unwrap();
        assert_eq!(watch.code(), Some(64));
    }
    let help = stdout(&without_database(&["help", "ls"]).output().unwrap());
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        help.contains("asks anew every 5 s or so, and FOR is the time since then"),
        "{help}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_are_shown_with_the_workers_that_share_them() {
    // More than are named before their number is known.
    const SHARDS: u32 = 70;
    let cluster = Cluster::start().unwrap();
    let postgres = Postgres::connect(cluster.url().parse::<Config>().unwrap(), PostgresOptions::default()).await;
    let locks = postgres.unwrap().locks();
    let mut shards = locks.shards("mail", SHARDS).unwrap().join();
    let mut has = Vec::new();
    while has.len() < SHARDS as usize {
        if let Some(ShardEvent::Gained(shard)) = shards.next().await {
            has.push(shard);
        }
    }
    let _other = start(&cluster, &["run", "other"], "echo ready; exec sleep 60");
    let table = show(&cluster, &["--key", "mail"]);
    for shard in 0..SHARDS {
        let name = format!("mail shard {shard} ");
        assert!(table.lines().any(|line| line.starts_with(&name)), "{name}: {table}");
    }
    for (name, count) in [("mail worker ", 1), ("mail has 70 shards ", 1), ("mail", 72), ("", 73)] {
        let lines = table.lines().filter(|line| line.starts_with(name));
        assert_eq!(lines.count(), count, "{name}: {table}");
    }
    drop(has);
    shards.leave().await;
}

#[test]
fn a_lock_of_a_transaction_is_told_from_one_of_a_session() {
    let cluster = Cluster::start().unwrap();
    let bin = env!("CARGO_BIN_EXE_latchwork");
    let sql = format!(
        "BEGIN; SELECT pg_advisory_xact_lock_shared(7);\n\\! DATABASE_URL='{}' {bin} ls --key 7 --raw\n",
        cluster.url()
    );
    let table = cluster.psql(&sql).unwrap();
    let line = table.lines().find(|line| line.starts_with("7 ")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..4], ["7", "shared", "transaction", "holds"], "{table}");
}

#[test]
fn a_watch_shows_it_again() {
    let cluster = Cluster::start().unwrap();
    let arguments = ["ls", "--watch", "--every", "50ms"];
    let mut watch = Process::spawn(&mut latchwork(&cluster.url(), &arguments)).unwrap();
    watch.wait_for_line("nobody").unwrap();
    let _holder = start(&cluster, &["run", "--raw", "4712"], "echo ready; exec sleep 60");
    watch.wait_for_line("4712 ").unwrap();
}

#[test]
fn a_watch_outlives_an_outage_and_tells_of_it_once() {
    let cluster = Cluster::start().unwrap();
    let arguments = ["ls", "--watch", "--every", "50ms"];
    let mut command = latchwork(&cluster.url(), &arguments);
    let mut watch = Process::spawn(command.stderr(Stdio::piped())).unwrap();
    let mut told = BufReader::new(watch.child_mut().stderr.take().unwrap()).lines();
    watch.wait_for_line("nobody").unwrap();
    cluster.stop(StopMode::Fast).unwrap();
    let line = told.next().unwrap().unwrap();
    assert!(
        line.starts_with("latchwork: ") && line.ends_with("looking again"),
        "{line}"
    );
    cluster.restart(StopMode::Fast).unwrap();
    let _holder = start(&cluster, &["run", "--raw", "4713"], "echo ready; exec sleep 60");
    watch.wait_for_line("4713 ").unwrap();
    watch.signal(Signal::KILL);
    assert!(told.next().is_none());
    // Where there was nothing to see yet it is an error.
    cluster.stop(StopMode::Fast).unwrap();
    let watch = latchwork(&cluster.url(), &arguments).status().unwrap();
    assert_eq!(watch.code(), Some(69));
}

#[test]
fn break_ends_the_holder_and_the_next_gets_the_lock() {
    let cluster = Cluster::start().unwrap();
    let mut holder = start(&cluster, &["run", "stuck"], "echo ready; exec sleep 60");
    let mut next = waiter(&cluster, "stuck");
    // Nobody is there to be asked.
    let asked = latchwork(&cluster.url(), &["break", "stuck"]).output().unwrap();
    assert_eq!(asked.status.code(), Some(64), "{asked:?}");
    assert_eq!(held(&cluster), "1");

    let broken = latchwork(&cluster.url(), &["break", "--yes", "stuck"])
        .output()
        .unwrap();
    assert!(stdout(&broken).starts_with("ended sh#"), "{broken:?}");
    assert_eq!(exit_status(&mut holder), 74);
    assert_eq!(exit_status(&mut next), 0);
    let broken = latchwork(&cluster.url(), &["break", "--yes", "stuck"])
        .output()
        .unwrap();
    assert!(stdout(&broken).starts_with("nobody holds stuck"), "{broken:?}");
}

#[test]
fn break_needs_the_right_to_and_says_so() {
    let cluster = Cluster::start().unwrap();
    cluster.psql("CREATE ROLE shop LOGIN").unwrap();
    let _holder = start(&cluster, &["run", "stuck"], "echo ready; exec sleep 60");
    let url = cluster.url_for("shop", "postgres");
    let broken = latchwork(&url, &["break", "--yes", "stuck"]).output().unwrap();
    assert_eq!(broken.status.code(), Some(69), "{broken:?}");
    let said = String::from_utf8_lossy(&broken.stderr);
    for words in [
        "which holds stuck: GRANT pg_signal_backend TO shop, or connect as the role",
        "terminate",
    ] {
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(held(&cluster), "1");
}
