//! `run` with a tick, and with a time for which the lock is held at least.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use latchwork_harness::{Cluster, StopMode, wait_until};

use crate::support::{END_HOLDERS, PATIENCE, exit_status, held, latchwork, start, stdout, without_database};

fn status_of(cluster: &Cluster, arguments: &[&str]) -> Option<i32> {
    latchwork(&cluster.url(), arguments).status().unwrap().code()
}

fn with_tables() -> Cluster {
    let cluster = Cluster::start().unwrap();
    assert_eq!(status_of(&cluster, &["schema", "install"]), Some(0));
    cluster
}

fn outcome(cluster: &Cluster, name: &str) -> String {
    let row = format!("SELECT outcome FROM latchwork.ticks WHERE name = '{name}' AND ended_at IS NOT NULL");
    cluster.psql(&row).unwrap()
}

#[test]
fn a_tick_runs_once_and_who_comes_second_is_told_75() {
    let cluster = with_tables();
    // A tick in a year that is long past: it is the same for all who come.
    for (name, command, status, end) in [
        ("fine", &["/bin/sh", "-c", "exit 0"][..], 0, "done"),
        ("fails", &["/bin/sh", "-c", "exit 3"], 3, "failed"),
        ("killed", &["/bin/sh", "-c", "kill -KILL $$"], 137, "failed"),
        // Taken before the command is started, the tick is not given back.
        ("missing", &["/no/such/program"], 127, "failed"),
        ("folder", &["/"], 126, "failed"),
    ] {
        let yearly = [
            "run",
            "--tick",
            "0 0 1 1 *",
            "--time-zone",
            "Europe/Berlin",
            "--hold-at-least",
            "1ms",
            name,
            "--",
        ];
        let run = || status_of(&cluster, &[&yearly[..], command].concat());
        assert_eq!(run(), Some(status), "{name}");
        assert_eq!(outcome(&cluster, name), end, "{name}");
        assert_eq!(run(), Some(75), "{name}");
        assert_eq!(outcome(&cluster, name), end, "{name}");
    }
}

#[test]
fn who_does_not_run_says_why_in_words() {
    let cluster = with_tables();
    let told = |arguments: &[&str]| {
        let output = latchwork(&cluster.url(), arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(75), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let yearly = ["run", "--tick", "0 0 1 1 *", "report", "--", "true"];
    assert_eq!(status_of(&cluster, &yearly), Some(0));
    assert_eq!(
        told(&yearly),
        "latchwork: report has run for this tick, or a later one; the command was not run\n"
    );
    let _holder = start(&cluster, &["run", "mail"], "echo ready; exec sleep 60");
    assert_eq!(
        told(&["run", "--hold-at-least", "1s", "mail", "--", "true"]),
        "latchwork: others hold the lock mail; the command was not run\n"
    );
}

#[test]
fn the_first_run_of_a_job_is_for_the_last_tick_and_the_help_says_so() {
    let cluster = with_tables();
    let yearly = ["run", "--tick", "0 3 1 1 *", "new", "--", "echo", "it runs"];
    assert_eq!(
        stdout(&latchwork(&cluster.url(), &yearly).output().unwrap()),
        "it runs\n"
    );
    let help = stdout(&without_database(&["help", "run"]).output().unwrap());
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "the first run of a name that has never run begins at once",
        "as with --try: there is no --wait",
        "ends with 124",
    ] {
        assert!(help.contains(words), "{words}: {help}");
    }
}

#[test]
fn now_is_the_minute_and_the_next_minute_is_another_tick() {
    let cluster = with_tables();
    let minute = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 60;
    let now = ["run", "--tick", "now", "minutely", "--", "true"];
    loop {
        let begun = minute();
        cluster.psql("DELETE FROM latchwork.ticks").unwrap();
        assert_eq!(status_of(&cluster, &now), Some(0));
        let again = status_of(&cluster, &now);
        // It says nothing where the minute was over meanwhile.
        if minute() == begun {
            assert_eq!(again, Some(75));
            break;
        }
    }
    let back = "UPDATE latchwork.ticks SET tick = tick - interval '1 minute'";
    cluster.psql(back).unwrap();
    assert_eq!(status_of(&cluster, &now), Some(0));
}

#[test]
fn without_its_table_a_tick_is_no_skip() {
    let cluster = Cluster::start().unwrap();
    let now = ["run", "--tick", "now", "minutely", "--", "true"];
    assert_eq!(status_of(&cluster, &now), Some(69));
    assert_eq!(
        status_of(&cluster, &["run", "--tick", "at noon", "x", "--", "true"]),
        Some(64)
    );
}

#[test]
fn a_schedule_that_cannot_be_read_is_told_of_without_a_database() {
    for schedule in [["--tick", "at noon"], ["--tick=0 3 * * *", "--time-zone=Mars/Olympus"]] {
        let mut command = latchwork("host=/nowhere", &["run"]);
        let status = command.args(schedule).args(["x", "--", "true"]).status().unwrap();
        assert_eq!(status.code(), Some(64), "{schedule:?}");
    }
}

#[test]
fn the_lock_is_held_for_as_long_as_was_said_although_the_command_has_ended() {
    let cluster = Cluster::start().unwrap();
    // On a machine that is busy the time may be over before the other has come: then there is more of it.
    for seconds in [2, 8, 32] {
        let hold = format!("{seconds}s");
        let begun = Instant::now();
        let arguments = ["run", "--hold-at-least", &hold, "brief"];
        let mut process = start(&cluster, &arguments, "echo ready; exit 4");
        let other = status_of(&cluster, &[&arguments[..], &["--", "true"]].concat());
        let is_late = process.wait_within(Duration::ZERO).unwrap().is_some();
        if is_late {
            continue;
        }
        assert_eq!(other, Some(75));
        assert_eq!(exit_status(&mut process), 4);
        let took = begun.elapsed();
        assert!(took >= Duration::from_secs(seconds), "{took:?}");
        assert!(wait_until(PATIENCE, || held(&cluster) == "0"));
        return;
    }
    panic!("the other has never come in time");
}

#[test]
fn a_lock_that_is_lost_while_it_is_only_kept_is_told() {
    let cluster = with_tables();
    let arguments = ["run", "--tick", "0 0 1 1 *", "--hold-at-least", "60s", "kept"];
    let mut process = start(&cluster, &arguments, "echo ready; exit 0");
    assert!(wait_until(PATIENCE, || outcome(&cluster, "kept") == "done"));
    cluster.psql(END_HOLDERS).unwrap();
    assert_eq!(exit_status(&mut process), 74);
}

#[test]
fn a_command_that_runs_too_long_or_loses_its_lock_is_ended() {
    let cluster = with_tables();
    let long = [
        "run",
        "--tick",
        "now",
        "--max-run",
        "500ms",
        "long",
        "--",
        "sleep",
        "60",
    ];
    assert_eq!(status_of(&cluster, &long), Some(124));
    assert_eq!(outcome(&cluster, "long"), "overran");
    let tick = ["run", "--tick", "0 0 1 1 *", "lost"];
    let mut process = start(&cluster, &tick, "echo ready; exec sleep 60");
    cluster.psql(END_HOLDERS).unwrap();
    assert_eq!(exit_status(&mut process), 74);
    assert_eq!(outcome(&cluster, "lost"), "lost");

    let mut process = start(
        &cluster,
        &["run", "--hold-at-least", "60s", "lost"],
        "echo ready; exec sleep 60",
    );
    cluster.stop(StopMode::Immediate).unwrap();
    assert_eq!(exit_status(&mut process), 74);
}
