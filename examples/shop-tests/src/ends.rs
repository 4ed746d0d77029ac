//! How it ends, and that nothing is left.

use std::{
    net::{TcpListener, TcpStream},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use latchwork_harness::{Cluster, Process, Signal, wait_until};

use crate::{
    http::{Answer, Request, get},
    program::{PATIENCE, Program, Shop, folder},
};

/// Everything that runs on the cluster in a folder, or keeps it.
fn processes(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(folder)).collect()
}

/// Starts a charge that takes a while, and returns when it is being worked on.
fn busy(shop: &Shop, ms: u32) -> JoinHandle<Option<Answer>> {
    let charge = |ms| Request::new(&format!("POST /orders/42/charge?ms={ms}")).body("{\"amount\": 5}");
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let charged = charge(ms).ask_meanwhile(&shop.address);
        while !charged.is_finished() {
            if charge(0).ask(&shop.address).status == 409 {
                return charged;
            }
        }
    }
    panic!("no charge is ever worked on");
}

pub fn nothing_is_left_of_its_cluster_when_it_returns_from_a_signal(program: &Program) {
    for signal in [Signal::INT, Signal::TERM] {
        let (mut shop, url) = Shop::alone(program);
        let folder = folder(&url);
        assert_eq!(get(&shop.address, "/stats").status, 200);
        assert!(!processes(folder.to_str().unwrap()).is_empty());
        assert_eq!(shop.end(signal), Some(0));
        assert!(!folder.exists());
        assert_eq!(processes(folder.to_str().unwrap()), [""; 0]);
    }
}

pub fn nothing_is_left_of_its_cluster_soon_after_kill_9(program: &Program) {
    let (mut shop, url) = Shop::alone(program);
    let folder = folder(&url);
    assert_eq!(shop.end(Signal::KILL), None);
    assert!(wait_until(PATIENCE, || {
        !folder.exists() && processes(folder.to_str().unwrap()).is_empty()
    }));
}

pub fn a_further_instance_shares_the_throw_away_cluster_of_the_first(program: &Program) {
    let (first, url) = Shop::alone(program);
    let second = Shop::start(&mut program.command(&["--database-url", &url]));
    let charge = Request::new("POST /orders/42/charge").body("{\"amount\": 5}");
    assert_eq!(charge.ask(&second.address).status, 200);
    assert_eq!(get(&first.address, "/stats").json()["orders"]["42"], 5);
}

pub fn a_request_that_runs_is_finished_and_nothing_is_left_on_the_server(program: &Program) {
    let cluster = Cluster::start().unwrap();
    let mut shop = Shop::on(&cluster, program);
    let charged = busy(&shop, 1_000);
    assert_eq!(shop.end(Signal::TERM), Some(0));
    assert_eq!(charged.join().unwrap().unwrap().status, 200);
    let left = "SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory') + (SELECT count(*) FROM \
         pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())";
    // The server takes note of the end of a connection by itself.
    assert!(
        wait_until(PATIENCE, || cluster.psql(left).unwrap() == "0"),
        "{}",
        cluster.psql("SELECT * FROM pg_stat_activity").unwrap()
    );
}

pub fn requests_that_run_are_finished_whoever_made_their_connections(program: &Program) {
    let cluster = Cluster::start().unwrap();
    let mut shop = Shop::on(&cluster, program);
    let address = &*shop.address;
    let charge = |order: u32, ms: u128| {
        let line = format!("POST /orders/{order}/charge?ms={ms}");
        let charge = Request::new(&line).body("{\"amount\": 5}");
        charge.send(address).unwrap()
    };
    let is_charged = |stream| assert_eq!(Answer::read(stream).map(|answer| answer.status), Some(200));
    // At once, so that each thread that serves requests connects to the database.
    let first: Vec<_> = (0..20).map(|order| charge(order, 50)).collect();
    first.into_iter().for_each(is_charged);
    let slow = Duration::from_secs(2);
    // Where four threads take turns, all that takes a while comes to one of them. The others have nothing to finish.
    let all_on_one = || -> Vec<_> {
        let charges = (0..8).map(|order| {
            let running = charge(order, slow.as_millis());
            (0..3).for_each(|_| drop(TcpStream::connect(address).unwrap()));
            running
        });
        charges.collect()
    };
    let open = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'";
    let begun = Instant::now();
    let running = loop {
        let running = all_on_one();
        if wait_until(slow, || cluster.psql(open).unwrap() == "8") {
            break running;
        }
        // On a busy machine the first may have ended before the last has begun.
        running.into_iter().for_each(is_charged);
        assert!(begun.elapsed() < PATIENCE, "they never run at once");
    };
    shop.process.signal(Signal::TERM);
    running.into_iter().for_each(is_charged);
    assert_eq!(shop.process.wait().unwrap().code(), Some(0));
}

pub fn a_request_that_takes_too_long_is_cut_off_and_undone(program: &Program) {
    let cluster = Cluster::start().unwrap();
    let mut shop = Shop::on(&cluster, program);
    let charged = busy(&shop, 600_000);
    let before = cluster.psql("SELECT sum(total) FROM shop.orders").unwrap();
    assert_eq!(shop.end(Signal::INT), Some(0));
    assert!(charged.join().unwrap().is_none());
    assert!(wait_until(PATIENCE, || {
        cluster
            .psql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
            .unwrap()
            == "0"
    }));
    assert_eq!(cluster.psql("SELECT sum(total) FROM shop.orders").unwrap(), before);
}

pub fn it_ends_at_once_when_the_database_never_answers(program: &Program) {
    // A server that takes the connection and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://u@{}/d?sslmode=disable", silent.local_addr().unwrap());
    let mut process = Process::spawn(&mut program.command(&["--database-url", &url])).unwrap();
    let connection = silent.accept().unwrap();
    process.signal(Signal::TERM);
    assert_eq!(process.wait().unwrap().code(), Some(0));
    drop(connection);
}
