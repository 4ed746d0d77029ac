//! The process that ends what this one started, once this one is gone.

use std::io::{self, PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use crate::HarnessError;
use crate::wait::lock;

const SCRIPT: &str = include_str!("supervisor.sh");

/// A shell that reads a pipe until our end of it closes, then ends the processes it was told of and removes a folder.
///
/// The write end is close-on-exec, so only this process holds it. A parent-death signal would not do: it fires when the
/// thread that spawned the child ends, not when the process does.
#[derive(Debug)]
pub(crate) struct Supervisor {
    orders: Mutex<Option<PipeWriter>>,
    shell: Child,
}

impl Supervisor {
    /// Starts a supervisor that has nothing to end yet.
    ///
    /// It runs as ourselves: the server's user could not remove what we have not yet handed over.
    pub(crate) fn start(folder: Option<&Path>) -> Result<Self, HarnessError> {
        let (reader, writer) = io::pipe().map_err(HarnessError::io("open a pipe"))?;
        let shell = Command::new("/bin/sh")
            .arg("-c")
            .arg(SCRIPT)
            .arg("latchwork-supervisor")
            .arg(folder.unwrap_or_else(|| Path::new("")))
            .current_dir("/")
            .stdin(reader)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C goes to the whole foreground group; the supervisor must outlive it.
            .process_group(0)
            .spawn()
            .map_err(HarnessError::io("start the supervisor /bin/sh"))?;
        Ok(Self {
            orders: Mutex::new(Some(writer)),
            shell,
        })
    }

    /// Has `pid` ended by `signal` (a name such as `QUIT`) when this process is gone.
    pub(crate) fn watch(&self, signal: &str, pid: u32) -> Result<(), HarnessError> {
        self.send(format!("{signal} {pid}\n"))
    }

    /// Takes `pid` back: it has ended and its number may belong to somebody else soon.
    pub(crate) fn forget(&self, pid: u32) -> Result<(), HarnessError> {
        self.send(format!("forget {pid}\n"))
    }

    /// Gives the supervisor up before it has anything to do.
    pub(crate) fn abandon(mut self) {
        // Killed before the pipe closes, so that it removes nothing.
        drop(self.shell.kill());
        drop(self.shell.wait());
    }

    /// Ends everything now and waits until that is done.
    pub(crate) fn finish(&mut self) {
        *lock(&self.orders) = None;
        drop(self.shell.wait());
    }

    fn send(&self, order: String) -> Result<(), HarnessError> {
        match lock(&self.orders).as_mut() {
            Some(pipe) => pipe
                .write_all(order.as_bytes())
                .map_err(HarnessError::io("tell the supervisor")),
            None => Ok(()),
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.finish();
    }
}
