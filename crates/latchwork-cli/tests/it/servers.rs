//! What is said of servers, and done to them.

use std::process::Output;

use latchwork_harness::{Cluster, PgBouncer, PoolMode, StopMode};

use crate::support::{cluster, latchwork, run, stdout, without_database};

fn doctor(url: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut all = vec!["doctor"];
    all.extend(arguments);
    let Output { status, stdout, .. } = latchwork(url, &all).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap())
}

#[test]
fn a_fit_server_is_told_line_by_line() {
    let (status, text) = doctor(&cluster().url(), &["--rate", "10"]);
    assert_eq!(status, Some(0), "{text}");
    for about in [
        "connection",
        "version",
        "primary",
        "pooler",
        "exclusion",
        "lock table",
        "timeouts",
        "keepalives",
        "sessions",
        "privileges",
        "clock",
        "schema",
        "round trip",
        "throughput",
    ] {
        assert!(
            text.lines().any(|line| line.starts_with(&format!("ok       {about}"))),
            "{about}: {text}"
        );
    }
    assert!(text.trim_end().ends_with("is fit."), "{text}");
}

#[test]
fn a_load_that_does_not_fit_is_told() {
    let (status, text) = doctor(&cluster().url(), &["--rate", "4000000000", "--json"]);
    assert_eq!(status, Some(2), "{text}");
    let last = text.lines().last().unwrap();
    assert_eq!(last, r#"{"verdict":"not fit for locks"}"#);
    assert!(text.contains(r#""about":"throughput","advice":"more tasks"#), "{text}");
}

#[test]
fn warnings_are_told_with_1_and_what_to_do() {
    let cluster = Cluster::builder()
        .setting("max_connections", "10")
        .setting("idle_in_transaction_session_timeout", "5s")
        .start()
        .unwrap();
    let (status, text) = doctor(&cluster.url(), &[]);
    assert_eq!(status, Some(1), "{text}");
    assert!(
        text.contains("WARNING  sessions") && text.contains("WARNING  timeouts"),
        "{text}"
    );
    assert!(
        text.contains("ALTER ROLE postgres SET idle_in_transaction_session_timeout"),
        "{text}"
    );
}

#[test]
fn tables_that_a_role_may_not_use_are_a_warning_that_says_what_to_grant() {
    let cluster = Cluster::start().unwrap();
    let (status, text) = doctor(&cluster.url(), &[]);
    assert_eq!(status, Some(0), "{text}");
    let missing =
        "the tables are missing: locks need none, and rate limits, idempotency and ticks (`latchwork run --tick`)";
    assert!(text.contains(missing), "{text}");

    cluster.psql("CREATE ROLE shop LOGIN").unwrap();
    latchwork(&cluster.url(), &["schema", "install"]).status().unwrap();
    let url = cluster.url_for("shop", "postgres");
    let (status, text) = doctor(&url, &[]);
    assert_eq!(status, Some(1), "{text}");
    assert!(
        text.contains("WARNING  schema       the role shop may not use the tables"),
        "{text}"
    );
    // It may look, and no more.
    cluster
        .psql("GRANT USAGE ON SCHEMA latchwork TO shop; GRANT SELECT ON ALL TABLES IN SCHEMA latchwork TO shop")
        .unwrap();
    let (status, text) = doctor(&url, &[]);
    assert_eq!(status, Some(1), "{text}");
    let advice = text.split_once("GRANT USAGE").unwrap().1;
    let advice = format!("GRANT USAGE{}", advice.lines().next().unwrap());
    cluster.psql(&advice).unwrap();
    let (status, text) = doctor(&url, &[]);
    assert_eq!(status, Some(0), "{text}");
    assert!(
        text.contains("ok       schema       the tables are those of this version"),
        "{text}"
    );
    let tick = ["run", "--tick", "0 0 1 1 *", "new", "--", "true"];
    assert!(latchwork(&url, &tick).status().unwrap().success());
}

#[test]
fn a_pooler_that_shares_sessions_is_unfit_and_one_that_does_not_is_a_warning() {
    let cluster = Cluster::start().unwrap();
    for (mode, status, says) in [
        (PoolMode::Transaction, 2, "UNFIT    pooler"),
        (PoolMode::Statement, 2, "UNFIT    pooler"),
        (PoolMode::Session, 1, "WARNING  pooler"),
    ] {
        let pooler = PgBouncer::start(&cluster, mode).unwrap();
        let (ended, text) = doctor(&pooler.url(), &[]);
        assert_eq!(ended, Some(status), "{mode:?} {text}");
        assert!(text.contains(says), "{mode:?} {text}");
        let ran = latchwork(&pooler.url(), &["run", "--try", "name", "--", "true"])
            .output()
            .unwrap();
        let expected = if mode == PoolMode::Session { 0 } else { 69 };
        assert_eq!(ran.status.code(), Some(expected), "{mode:?} {ran:?}");
    }
}

#[test]
fn a_standby_is_unfit_and_so_is_a_server_that_is_not_there() {
    let cluster = Cluster::builder().setting("wal_level", "replica").start().unwrap();
    let standby = cluster.standby().unwrap();
    let (status, text) = doctor(&standby.url(), &[]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("UNFIT    primary"), "{text}");
    let ran = latchwork(&standby.url(), &["run", "--try", "name", "--", "true"])
        .status()
        .unwrap();
    assert_eq!(ran.code(), Some(69));

    standby.stop(StopMode::Fast).unwrap();
    let (status, text) = doctor(&standby.url(), &["--json"]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains(r#""about":"connection""#), "{text}");
}

#[test]
fn what_was_found_out_before_an_examination_failed_is_told() {
    let cluster = Cluster::start().unwrap();
    cluster.psql("CREATE ROLE shop LOGIN").unwrap();
    cluster
        .psql("REVOKE SELECT ON pg_catalog.pg_stat_activity FROM PUBLIC")
        .unwrap();
    let (status, text) = doctor(&cluster.url_for("shop", "postgres"), &[]);
    assert_eq!(status, Some(2), "{text}");
    for line in [
        "ok       version",
        "ok       primary",
        "ok       pooler",
        "ok       exclusion",
        "UNFIT    survey",
        "ok       throughput",
    ] {
        assert!(text.lines().any(|shown| shown.starts_with(line)), "{line}: {text}");
    }
    assert!(text.contains("permission denied"), "{text}");
    assert!(text.trim_end().ends_with("is not fit for locks."), "{text}");
}

#[test]
fn the_tables_are_printed_installed_and_checked() {
    let cluster = Cluster::start().unwrap();
    let status = |verb: &str| {
        latchwork(&cluster.url(), &["schema", verb])
            .output()
            .unwrap()
            .status
            .code()
    };
    assert_eq!(status("check"), Some(1));
    assert_eq!(status("install"), Some(0));
    assert_eq!(status("install"), Some(0));
    assert_eq!(status("check"), Some(0));
    cluster.psql("UPDATE latchwork.schema_version SET version = 0").unwrap();
    assert_eq!(status("check"), Some(1));

    let printed = stdout(&without_database(&["schema", "print"]).output().unwrap());
    let other = Cluster::start().unwrap();
    other.psql(&printed).unwrap();
    let checked = latchwork(&other.url(), &["schema", "check"]).status().unwrap();
    assert!(checked.success());
}

#[test]
fn a_bench_is_short_and_says_what_it_measures() {
    let text = stdout(&run(&["bench", "--for", "100ms", "--tasks", "8"]));
    assert!(text.contains("8 tasks:") && text.contains("path"), "{text}");
    let json = stdout(&run(&["bench", "--for", "100ms", "--tasks", "8", "--json"]));
    assert_eq!(
        json.lines().filter(|line| line.contains("cycles_per_second")).count(),
        2,
        "{json}"
    );
}

#[test]
fn there_are_completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stdout(&without_database(&["completions", shell]).output().unwrap());
        assert!(script.contains("doctor"), "{shell}");
    }
}
