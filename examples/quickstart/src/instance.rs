//! One running instance of the service.

use std::io;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::{self, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use latchwork::memory::MemoryServer;
use latchwork::{Config, Locks, LocksOptions, Namespace, Postgres, PostgresOptions};
use latchwork_harness::{Process, Signal};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::args::INSTANCE;
use crate::failure::Failure;
use crate::service;

/// An instance as the observer has it. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Instance {
    name: &'static str,
    url: String,
    life: Life,
}

#[derive(Debug)]
enum Life {
    /// A process of its own.
    Process(Process),
    /// A task of this process, on its own session of the in-memory engine.
    Task {
        locks: Locks,
        server: JoinHandle<io::Result<()>>,
    },
}

/// What both instances are told: where to listen, and what to mix into their keys.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// 0 for a free one.
    pub(crate) port: u16,
    /// One for each run, so that two runs on one database do not get in each other's way.
    pub(crate) namespace: String,
}

impl Instance {
    /// Starts this program again as an instance. Blocks until it takes requests.
    pub(crate) fn start_process(
        name: &'static str,
        setting: &Setting,
        database: Option<String>,
    ) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args([INSTANCE, name, &setting.port.to_string(), &setting.namespace])
            // Its end of file tells the instance that we are gone, however we went.
            .stdin(Stdio::piped())
            // Ctrl-C is for us alone: we end the instances.
            .process_group(0);
        if let Some(url) = database {
            command.env("DATABASE_URL", url);
        }
        let mut process = Process::spawn(&mut command)?;
        let url = process
            .wait_for_line(LISTENING)
            .map_err(|_| Failure::new(format!("instance {name} did not start")))?;
        Ok(Self {
            name,
            url,
            life: Life::Process(process),
        })
    }

    /// Starts an instance inside this process.
    pub(crate) async fn start_task(
        name: &'static str,
        setting: &Setting,
        memory: &MemoryServer,
    ) -> Result<Self, Failure> {
        let mut options = LocksOptions::default();
        options.namespace = Namespace::new(&setting.namespace)?;
        let locks = memory.locks_with(options);
        let listener = listen(setting.port).await?;
        let url = url_of(&listener)?;
        let router = service::router(&locks, name)?;
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self {
            name,
            url,
            life: Life::Task { locks, server },
        })
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// Where it listens, without a slash at the end.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// What the account calls it.
    pub(crate) fn description(&self) -> String {
        let Self { name, url, life } = self;
        match life {
            Life::Process(process) => format!("instance {name}: {url}, process {}", process.id()),
            Life::Task { .. } => format!("instance {name}: {url}"),
        }
    }

    pub(crate) const fn is_process(&self) -> bool {
        matches!(self.life, Life::Process(_))
    }

    /// Ends it without giving it time for anything: a process by `kill -9`, a task by the end of its session.
    pub(crate) async fn kill(&mut self) -> Result<(), Failure> {
        match &mut self.life {
            Life::Process(process) => {
                process.signal(Signal::KILL);
                process.wait()?;
            }
            Life::Task { locks, server } => {
                // What it holds is lost, which is the point, and not worth the error that says so.
                let _ = locks.close_within(Duration::ZERO).await;
                server.abort();
            }
        }
        Ok(())
    }

    /// How its process has ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>, Failure> {
        match &mut self.life {
            Life::Process(process) => Ok(process.wait_within(Duration::ZERO)?),
            Life::Task { .. } => Ok(None),
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Life::Task { server, .. } = &self.life {
            server.abort();
        }
    }
}

/// Is an instance, until the process that started it is gone.
pub(crate) async fn run(name: &'static str, setting: Setting) -> Result<(), Failure> {
    end_with_standard_input();
    let listener = listen(setting.port).await?;
    let options = PostgresOptions::default()
        .with_namespace(Namespace::new(&setting.namespace)?)
        .with_application_name(format!("quickstart-{name}"));
    let postgres = Postgres::connect(Config::from_env()?, options).await?;
    let router = service::router(&postgres.locks(), name)?;
    println!("{LISTENING}{}", url_of(&listener)?);
    Ok(axum::serve(listener, router).await?)
}

/// What an instance prints in front of its URL once it takes requests.
pub(crate) const LISTENING: &str = "listening on ";

/// Ends this process when its standard input does, whatever the runtime is busy with.
fn end_with_standard_input() {
    thread::spawn(|| {
        // An input that cannot be read has ended too.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        process::exit(0);
    });
}

async fn listen(port: u16) -> Result<TcpListener, Failure> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    bound.map_err(|error| {
        Failure::because(
            &format!("cannot listen on port {port}; name another with --port"),
            &error,
        )
    })
}

fn url_of(listener: &TcpListener) -> Result<String, Failure> {
    Ok(format!("http://{}", listener.local_addr()?))
}
