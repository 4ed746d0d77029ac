use std::io::Write;
use std::process::{Command, Stdio};

use latchwork_harness::{Cluster, HarnessError, PgBouncer, PoolMode, Process};

/// A client that stays connected.
struct Session(Process);

impl Session {
    fn open(pooler: &PgBouncer) -> Self {
        let mut psql = Command::new("psql");
        Self(Process::spawn(psql.args(["-XqAt", &pooler.url()]).stdin(Stdio::piped())).unwrap())
    }

    fn ask(&mut self, sql: &str) -> String {
        let input = self.0.child_mut().stdin.as_mut().unwrap();
        writeln!(input, "{sql};").unwrap();
        self.0.next_line().unwrap().expect("psql answers")
    }
}

fn two_backends(mode: PoolMode, pool_size: u32) -> (String, String) {
    let cluster = Cluster::start().unwrap();
    let pooler = PgBouncer::builder(&cluster, mode)
        .setting("default_pool_size", pool_size)
        .start()
        .unwrap();
    let (mut first, mut second) = (Session::open(&pooler), Session::open(&pooler));
    (
        first.ask("SELECT pg_backend_pid()"),
        second.ask("SELECT pg_backend_pid()"),
    )
}

#[test]
fn in_transaction_mode_two_clients_share_a_backend() {
    let (first, second) = two_backends(PoolMode::Transaction, 1);
    assert_eq!(first, second);
}

#[test]
fn in_session_mode_each_client_has_its_backend() {
    let (first, second) = two_backends(PoolMode::Session, 2);
    assert_ne!(first, second);
}

#[test]
fn in_statement_mode_there_are_no_transactions() {
    let cluster = Cluster::start().unwrap();
    let pooler = PgBouncer::start(&cluster, PoolMode::Statement).unwrap();
    let mut session = Session::open(&pooler);
    assert_eq!(session.ask("SELECT 1"), "1");
    let refused = Command::new("psql")
        .args(["-Xq", &pooler.url(), "-c", "BEGIN"])
        .output()
        .unwrap();
    assert!(!refused.status.success());
}

#[test]
fn a_refused_setting_is_an_error_with_the_poolers_reason() {
    let cluster = Cluster::start().unwrap();
    let error = PgBouncer::builder(&cluster, PoolMode::Session)
        .setting("no_such_setting", 1)
        .start()
        .unwrap_err();
    assert!(matches!(error, HarnessError::StartFailed { .. }), "{error:?}");
    assert!(error.to_string().contains("no_such_setting"), "{error}");
}
