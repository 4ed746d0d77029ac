use std::path::Path;

use latchwork_harness::{Cluster, Process, Signal};

use crate::program::{all_processes, is_running, program, run};

fn assert_everything_held(code: i32, output: &str, errors: &str) {
    assert_eq!(code, 0, "{output}{errors}");
    assert!(output.contains("Every promise held: 14 of 14"), "{output}");
    assert!(!output.contains("BROKEN"), "{output}");
    for seen in [
        "to come back later (409)",
        "that all are taken (503)",
        "within 1 s of that (after ",
    ] {
        assert!(output.contains(seen), "{seen}: {output}");
    }
}

fn mentions(pid: u32, words: &str) -> bool {
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.contains(words)
}

#[test]
fn every_promise_holds_on_a_throw_away_cluster_and_nothing_is_left_of_it() {
    let (code, output, errors) = run(&mut program(&[]));
    assert_everything_held(code, &output, &errors);
    assert!(output.contains("A is killed (kill -9)"), "{output}");
    let (_, folder) = output.split_once("cluster in ").unwrap();
    let folder = folder.split_once(":\n").unwrap().0;
    assert!(!Path::new(folder).exists(), "{folder}");
    assert!(!all_processes().any(|pid| mentions(pid, folder)), "{folder}");
    let instances = output.lines().filter_map(|line| line.split_once(", process "));
    let pids: Vec<u32> = instances.map(|(_, pid)| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 2);
    assert!(!pids.iter().any(|pid| is_running(*pid) && mentions(*pid, "quickstart")));
}

#[test]
fn every_promise_holds_in_memory_and_the_notice_says_what_that_does_not_show() {
    let (code, output, errors) = run(&mut program(&["--memory"]));
    assert_everything_held(code, &output, &errors);
    assert!(output.contains("NOTICE") && output.contains("cannot show"), "{output}");
    assert!(
        output.contains("no process to kill") && !output.contains("kill -9"),
        "{output}"
    );
}

#[test]
fn the_server_of_database_url_is_used_and_no_lock_is_left_on_it() {
    let cluster = Cluster::builder()
        .setting("log_connections", "on")
        .setting("log_min_messages", "log")
        .start()
        .unwrap();
    let (code, output, errors) = run(program(&[]).env("DATABASE_URL", cluster.url()));
    assert_everything_held(code, &output, &errors);
    assert!(!output.contains("throw-away"), "{output}");
    assert!(cluster.log().contains("latchwork:quickstart-A#"), "{}", cluster.log());
    let left = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    let gone = latchwork_harness::wait_until(crate::program::PATIENCE, || cluster.psql(left).unwrap().trim() == "0");
    assert!(gone, "{}", cluster.psql("SELECT * FROM pg_locks").unwrap());
}

#[test]
fn two_runs_on_one_server_do_not_get_in_each_others_way() {
    let cluster = Cluster::start().unwrap();
    let start = || {
        let mut command = program(&[]);
        command.env("DATABASE_URL", cluster.url());
        std::thread::spawn(move || run(&mut command))
    };
    for run in [start(), start()] {
        let (code, output, errors) = run.join().unwrap();
        assert_everything_held(code, &output, &errors);
    }
}

#[test]
fn a_run_that_is_interrupted_does_not_count_as_one_that_held() {
    let mut process = Process::spawn(program(&[]).stderr(std::process::Stdio::null())).unwrap();
    let folder = process.wait_for_line("Two instances").unwrap();
    let folder = folder
        .rsplit_once("cluster in ")
        .unwrap()
        .1
        .trim_end_matches(':')
        .to_owned();
    process.signal(Signal::INT);
    assert_eq!(process.wait().unwrap().code(), Some(130));
    assert!(!Path::new(&folder).exists(), "{folder}");
}
