//! Commands that run while their process leads.

use std::process::{Command, Stdio};

use latchwork_core::Namespace;
use latchwork_harness::{Cluster, Process, Signal, StopMode, wait_until};

use crate::support::{END_HOLDERS, PATIENCE, ends, exit_status, latchwork, start, stdout, without_database};

const LEAD: &str = "echo leads $LATCHWORK_TERM $$; while :; do sleep 0.05; done";

fn candidate(cluster: &Cluster) -> Process {
    let arguments = ["elect", "billing", "--", "/bin/sh", "-c", LEAD];
    Process::spawn(latchwork(&cluster.url(), &arguments).stderr(Stdio::null())).unwrap()
}

#[test]
fn one_leads_and_the_next_follows_in_a_greater_term() {
    let cluster = Cluster::start().unwrap();
    let mut first = candidate(&cluster);
    let led = first.wait_for_line("leads ").unwrap();
    let mut second = candidate(&cluster);
    let observed = latchwork(&cluster.url(), &["elect", "--observe", "--once", "billing"])
        .output()
        .unwrap();
    let observed = stdout(&observed);
    assert!(
        observed.contains("leads billing") && observed.contains(&led[..25]),
        "{observed}"
    );

    first.signal(Signal::TERM);
    assert_eq!(exit_status(&mut first), 143);
    let follows = second.wait_for_line("leads ").unwrap();
    assert!(follows[..25] > led[..25], "{led} {follows}");
    second.signal(Signal::KILL);
    assert!(ends(follows.split_once(' ').unwrap().1));
}

#[test]
fn a_command_runs_again_after_a_loss() {
    let cluster = Cluster::start().unwrap();
    let mut process = candidate(&cluster);
    let led = process.wait_for_line("leads ").unwrap();
    cluster
        .psql("SELECT count(pg_terminate_backend(pid)) FROM (SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory') AS l")
        .unwrap();
    let again = process.wait_for_line("leads ").unwrap();
    assert!(again[..25] > led[..25], "{led} {again}");
    assert!(ends(led.split_once(' ').unwrap().1));
    process.signal(Signal::INT);
    assert_eq!(exit_status(&mut process), 130);
}

#[test]
fn a_command_that_ends_by_itself_ends_the_campaign_with_its_status() {
    let cluster = Cluster::start().unwrap();
    let output = latchwork(&cluster.url(), &["elect", "short", "--", "/bin/sh", "-c", "exit 7"]).output();
    assert_eq!(output.unwrap().status.code(), Some(7));
    let output = latchwork(&cluster.url(), &["elect", "short", "--", "/no/such/program"]).output();
    assert_eq!(output.unwrap().status.code(), Some(127));
}

#[test]
fn a_follower_ends_with_a_signal() {
    let cluster = Cluster::start().unwrap();
    let mut first = candidate(&cluster);
    first.wait_for_line("leads ").unwrap();
    let second = candidate(&cluster);
    let mut second = second;
    let campaigns = || cluster.psql("SELECT count(*) FROM pg_locks WHERE NOT granted").unwrap() == "1";
    assert!(wait_until(PATIENCE, campaigns));
    second.signal(Signal::TERM);
    assert_eq!(exit_status(&mut second), 143);
}

#[test]
fn observers_are_told_of_each_change() {
    let cluster = Cluster::start().unwrap();
    let mut observer = Process::spawn(&mut latchwork(
        &cluster.url(),
        &["elect", "--observe", "--json", "billing"],
    ))
    .unwrap();
    let first = observer.next_line().unwrap().unwrap();
    assert!(first.contains("\"leader\":null"), "{first}");
    let mut leader = candidate(&cluster);
    let led = leader.wait_for_line("leads ").unwrap();
    let second = observer.next_line().unwrap().unwrap();
    assert!(second.contains(&led[..25]) && second.contains("sh#"), "{second}");
    leader.signal(Signal::TERM);
    let third = observer.next_line().unwrap().unwrap();
    assert!(third.contains("\"leader\":null"), "{third}");
}

#[test]
fn who_has_the_lock_and_does_not_lead_yet_is_told_from_who_leads() {
    let cluster = Cluster::start().unwrap();
    // As a transaction does that the last leader has begun.
    let fence = Namespace::unnamed().key("billing").unwrap().derive("fence", 0);
    let fence = fence.to_string();
    let transaction = start(
        &cluster,
        &["run", "--shared", "--raw", &fence],
        "echo ready; exec sleep 60",
    );
    let mut next = candidate(&cluster);
    let observe = |more: &[&str]| {
        let arguments = [&["elect", "--observe", "--once", "billing"], more].concat();
        stdout(&latchwork(&cluster.url(), &arguments).output().unwrap())
    };
    let mut told = String::new();
    let has_lock = || {
        told = observe(&[]);
        !told.starts_with("nobody leads ")
    };
    assert!(wait_until(PATIENCE, has_lock));
    assert!(
        told.contains("sh#") && told.ends_with(" has the lock of billing, and does not lead yet\n"),
        "{told}"
    );
    let json = observe(&["--json"]);
    assert!(
        json.contains("\"since\":null") && json.contains("\"term\":null") && json.contains("sh#"),
        "{json}"
    );
    transaction.signal(Signal::TERM);
    next.wait_for_line("leads ").unwrap();
    assert!(observe(&[]).contains(" leads billing since "));
}

#[test]
fn who_lacks_observe_is_told_of_that_alone() {
    for option in ["--once", "--json"] {
        let output = without_database(&["elect", option, "billing"]).output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{output:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        let lacking: Vec<&str> = told.lines().skip(1).take_while(|line| !line.is_empty()).collect();
        assert_eq!(lacking, ["  --observe"], "{told}");
    }
}

/// Ends with the second time that it is told to.
const DRAIN: &str = "n=0; trap 'n=$((n + 1)); echo told $n; [ $n -lt 2 ] || exit 9' TERM; echo leads $$; \
     while :; do sleep 0.05; done";

#[test]
fn one_that_was_told_to_end_does_not_run_its_command_again_after_a_loss() {
    let cluster = Cluster::start().unwrap();
    let arguments = ["elect", "drains", "--", "/bin/sh", "-c", DRAIN];
    let lose = || cluster.psql(END_HOLDERS).map(drop).unwrap();
    for signal_first in [true, false] {
        let mut process = Process::spawn(latchwork(&cluster.url(), &arguments).stderr(Stdio::null())).unwrap();
        process.wait_for_line("leads ").unwrap();
        if signal_first {
            process.signal(Signal::TERM);
            process.wait_for_line("told 1").unwrap();
            lose();
        } else {
            lose();
            process.wait_for_line("told 1").unwrap();
            process.signal(Signal::TERM);
        }
        process.wait_for_line("told 2").unwrap();
        assert_eq!(exit_status(&mut process), 9);
        assert_eq!(process.next_line().unwrap(), None, "nothing runs any more");
    }
}

#[test]
fn an_observer_that_can_not_ask_ends_with_69() {
    let cluster = Cluster::start().unwrap();
    // Connected it is, but may not look at the sessions.
    cluster.psql("CREATE ROLE shop LOGIN").unwrap();
    cluster
        .psql("REVOKE SELECT ON pg_catalog.pg_stat_activity FROM PUBLIC")
        .unwrap();
    let url = cluster.url_for("shop", "postgres");
    let ran = latchwork(&url, &["run", "--try", "billing", "--", "true"])
        .status()
        .unwrap();
    assert!(ran.success());
    let output = latchwork(&url, &["elect", "--observe", "--once", "billing"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(69), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("pg_stat_activity"), "{said}");
}

/// A candidate whose standard error is read as its output is.
fn candidate_that_tells(url: &str) -> Process {
    let latchwork = latchwork(url, &["elect", "billing", "--", "/bin/sh", "-c", LEAD]);
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", "exec \"$0\" \"$@\" 2>&1"])
        .arg(latchwork.get_program());
    shell.args(latchwork.get_args()).env("DATABASE_URL", url);
    Process::spawn(&mut shell).unwrap()
}

#[test]
fn campaigns_that_fail_are_told_once_and_so_is_their_end() {
    let cluster = Cluster::start().unwrap();
    let mut first = candidate_that_tells(&cluster.url());
    first.wait_for_line("leads ").unwrap();
    let mut second = candidate_that_tells(&cluster.url());
    let queues = || cluster.psql("SELECT count(*) FROM pg_locks WHERE NOT granted").unwrap() == "1";
    assert!(wait_until(PATIENCE, queues));

    cluster.stop(StopMode::Fast).unwrap();
    for candidate in [&mut first, &mut second] {
        let told = candidate
            .wait_for_line("latchwork: the lock server can't be reached or does not answer")
            .unwrap();
        assert!(told.contains("nothing is known of the lock billing"), "{told}");
    }
    cluster.restart(StopMode::Fast).unwrap();
    for candidate in [&mut first, &mut second] {
        let mut told = Vec::new();
        while let Some(line) = candidate.next_line().unwrap() {
            // Whoever leads before it is sure says that instead.
            if line == "latchwork: campaigns for billing again" || line.starts_with("latchwork: leads billing in term")
            {
                break;
            }
            told.push(line);
        }
        let reasons = told.len();
        told.sort();
        told.dedup();
        assert_eq!(told.len(), reasons, "{told:?}");
    }
}

#[test]
fn a_candidate_tells_that_its_login_is_refused() {
    let cluster = Cluster::start().unwrap();
    cluster.psql("CREATE ROLE shop LOGIN").unwrap();
    let mut candidate = candidate_that_tells(&cluster.url_for("shop", "postgres"));
    candidate.wait_for_line("leads ").unwrap();
    cluster
        .psql("ALTER ROLE shop NOLOGIN; SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'shop'")
        .unwrap();
    let mut told = String::new();
    while !told.contains("\"shop\" is not permitted to log in") {
        told = candidate.wait_for_line("latchwork: ").unwrap();
    }
    cluster.psql("ALTER ROLE shop LOGIN").unwrap();
    candidate.wait_for_line("latchwork: leads billing in term").unwrap();
}
