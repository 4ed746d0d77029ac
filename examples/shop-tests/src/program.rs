//! Programs, and instances of them.

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

/// The program of a shop.
#[derive(Clone, Debug)]
pub struct Program(PathBuf);

impl Program {
    /// The one of the package that is tested: cargo has built it, and tells where.
    #[must_use]
    pub fn at(path: &str) -> Self {
        Self(path.into())
    }

    /// One of another package, which is built into the same folder.
    ///
    /// # Panics
    ///
    /// Panics if it is not there. Cargo builds it only where its own tests are built too.
    #[must_use]
    pub fn beside(&self, name: &str) -> Self {
        let path = self.0.with_file_name(name);
        assert!(
            path.exists(),
            "{name} is not built: test it too, or say `cargo build -p {name}`"
        );
        Self(path)
    }

    /// How to start it, without what the environment of the tests might tell it.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.0);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .env_remove("DATABASE_URL")
            .env_remove("RUST_LOG");
        command
    }
}

/// Runs it to its end.
pub(crate) fn run(command: &mut Command) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// One instance, up.
#[derive(Debug)]
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

    pub(crate) fn on(cluster: &Cluster, program: &Program) -> Self {
        Self::start(&mut program.command(&["--database-url", &cluster.url()]))
    }

    /// On a throw-away cluster, whose URL is returned too.
    pub(crate) fn alone(program: &Program) -> (Self, String) {
        let mut process = Process::spawn(program.command(&[]).stderr(Stdio::piped())).unwrap();
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

/// Two instances on one database.
#[derive(Debug)]
pub struct Pair {
    // Dropped in this order: the instances end before their database does.
    pub(crate) one: Shop,
    pub(crate) other: Shop,
    pub(crate) cluster: Cluster,
}

impl Pair {
    /// Starts both at the same time.
    ///
    /// # Panics
    ///
    /// Panics if that does not work.
    #[must_use]
    pub fn start(one: &Program, other: &Program) -> Self {
        let cluster = Cluster::start().unwrap();
        let (one, other) = thread::scope(|scope| {
            let one = scope.spawn(|| Shop::on(&cluster, one));
            let other = Shop::on(&cluster, other);
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
