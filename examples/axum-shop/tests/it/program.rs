use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use latchwork_harness::{Cluster, Process, Signal};

use crate::http::get;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The program, without what the environment of the tests might tell it.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(crate::PROGRAM);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env_remove("DATABASE_URL")
        .env_remove("RUST_LOG");
    command
}

/// Runs it to its end.
pub(crate) fn run(command: &mut Command) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// One instance, up.
pub(crate) struct Shop {
    pub(crate) process: Process,
    /// As `127.0.0.1:PORT`.
    pub(crate) address: String,
}

impl Shop {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut process = Process::spawn(command).unwrap();
        let address = process.wait_for_line("listening on http://").unwrap();
        Self { process, address }
    }

    pub(crate) fn on(cluster: &Cluster) -> Self {
        Self::start(&mut program(&["--database-url", &cluster.url()]))
    }

    /// On a throw-away cluster, whose URL is returned too.
    pub(crate) fn alone() -> (Self, String) {
        let mut process = Process::spawn(program(&[]).stderr(Stdio::piped())).unwrap();
        let mut errors = BufReader::new(process.child_mut().stderr.take().unwrap());
        let mut said = String::new();
        let url = loop {
            assert_ne!(errors.read_line(&mut said).unwrap(), 0, "{said}");
            if let Some((_, rest)) = said.split_once("--database-url '") {
                break rest.split('\'').next().unwrap().to_owned();
            }
        };
        // Read on, or the program could not say more.
        thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        let address = process.wait_for_line("listening on http://").unwrap();
        (Self { process, address }, url)
    }

    /// Asks it to end, and waits for that. Returns its exit status.
    pub(crate) fn end(&mut self, signal: Signal) -> Option<i32> {
        self.process.signal(signal);
        self.process.wait().unwrap().code()
    }
}

/// Two instances on one database, started at the same time.
pub(crate) struct Pair {
    // Dropped in this order: the instances end before their database does.
    pub(crate) one: Shop,
    pub(crate) other: Shop,
    pub(crate) cluster: Cluster,
}

impl Pair {
    pub(crate) fn start() -> Self {
        let cluster = Cluster::start().unwrap();
        let (one, other) = thread::scope(|scope| {
            let one = scope.spawn(|| Shop::on(&cluster));
            let other = Shop::on(&cluster);
            (one.join().unwrap(), other)
        });
        Self { one, other, cluster }
    }

    pub(crate) fn addresses(&self) -> [&str; 2] {
        [&self.one.address, &self.other.address]
    }

    /// What `/stats` says.
    pub(crate) fn stats(&self) -> serde_json::Value {
        let answer = get(&self.other.address, "/stats");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }
}

/// The folder of the cluster that a URL leads to.
pub(crate) fn folder(url: &str) -> PathBuf {
    let (_, host) = url.split_once('@').unwrap();
    PathBuf::from(host.split(':').next().unwrap().replace("%2F", "/"))
}
