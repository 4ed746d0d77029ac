//! Starting, stopping, crashing.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use super::{Cluster, LOG, PATIENCE, StopMode};
use crate::HarnessError;
use crate::process::{children, exists, parent, process_id};
use crate::server::{Server, ServerCommand};
use crate::wait::{lock, wait_until};

impl Cluster {
    /// Whether the server's main process is running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        lock(&self.server)
            .as_mut()
            .is_some_and(|server| server.try_wait().is_none())
    }

    /// The process id of the postmaster.
    ///
    /// # Errors
    ///
    /// [`HarnessError::Stopped`] when there is none.
    pub fn postmaster_pid(&self) -> Result<i32, HarnessError> {
        lock(&self.server)
            .as_ref()
            .map(|server| server.pid().as_raw_pid())
            .ok_or(HarnessError::Stopped)
    }

    /// The process ids of what the postmaster has started: one for each session, and those of the server's own.
    ///
    /// # Errors
    ///
    /// [`HarnessError::Stopped`] when there is no postmaster.
    pub fn server_processes(&self) -> Result<Vec<i32>, HarnessError> {
        let started = lock(&self.server).as_ref().map(|server| children(server.pid()));
        let started = started.ok_or(HarnessError::Stopped)?;
        Ok(started.into_iter().map(Pid::as_raw_pid).collect())
    }

    /// Changes a parameter for the next [`reload`](Self::reload) or [`restart`](Self::restart).
    ///
    /// # Errors
    ///
    /// Fails when the file cannot be written.
    pub fn set(&self, name: impl Into<String>, value: impl ToString) -> Result<(), HarnessError> {
        lock(&self.recipe).settings.push((name.into(), value.to_string()));
        self.write_settings()
    }

    /// Has the server read its settings again; it does so a moment later.
    ///
    /// # Errors
    ///
    /// [`HarnessError::Stopped`] when it is not running.
    pub fn reload(&self) -> Result<(), HarnessError> {
        lock(&self.server)
            .as_ref()
            .ok_or(HarnessError::Stopped)?
            .signal(Signal::HUP);
        Ok(())
    }

    /// Stops the server and waits until it is gone; a stopped one stays stopped.
    ///
    /// # Errors
    ///
    /// Fails when it does not stop within a minute, as with [`StopMode::Smart`] and an open session.
    pub fn stop(&self, mode: StopMode) -> Result<(), HarnessError> {
        let mut slot = lock(&self.server);
        let Some(server) = slot.as_mut() else { return Ok(()) };
        server.signal(mode.signal());
        if !server.wait(PATIENCE) {
            let log = server.log_tail();
            return Err(HarnessError::TimedOut {
                what: format!("a {mode:?} stop"),
                seconds: PATIENCE.as_secs(),
                log,
            });
        }
        self.forget(&mut slot)
    }

    /// Kills every process of the server with SIGKILL, as a crash of its machine would.
    ///
    /// # Errors
    ///
    /// [`HarnessError::Stopped`] when it is not running.
    pub fn kill_server(&self) -> Result<(), HarnessError> {
        let mut slot = lock(&self.server);
        let server = slot.as_mut().ok_or(HarnessError::Stopped)?;
        // Stopped first, so that it cannot start or collect a child while we read the list.
        server.signal(Signal::STOP);
        let backends = children(server.pid());
        server.signal(Signal::KILL);
        for backend in &backends {
            let _ = kill_process(*backend, Signal::KILL);
        }
        server.reap();
        // The next start refuses while a process is still attached to the shared memory.
        wait_until(PATIENCE, || !backends.iter().any(|backend| exists(*backend)));
        self.forget(&mut slot)
    }

    /// Stops the server if it runs, and starts it on the same data, settings and port.
    ///
    /// # Errors
    ///
    /// Fails as [`stop`](Self::stop) and as the first start do.
    pub fn restart(&self, mode: StopMode) -> Result<(), HarnessError> {
        self.stop(mode)?;
        self.launch()
    }

    /// Sends a signal to one backend of this cluster.
    ///
    /// # Errors
    ///
    /// [`HarnessError::NotABackend`] when the process is not, or no longer, a child of this server.
    pub fn signal_backend(&self, pid: i32, signal: Signal) -> Result<(), HarnessError> {
        let postmaster = lock(&self.server)
            .as_ref()
            .map(Server::pid)
            .ok_or(HarnessError::Stopped)?;
        let backend = process_id(pid).filter(|backend| parent(*backend) == Some(postmaster));
        let backend = backend.ok_or(HarnessError::NotABackend { pid })?;
        kill_process(backend, signal).map_err(|_| HarnessError::NotABackend { pid })
    }

    /// Starts the server and waits until it takes connections.
    pub(crate) fn launch(&self) -> Result<(), HarnessError> {
        self.write_settings()?;
        let mut slot = lock(&self.server);
        let data = self.data_folder();
        let program = self.installation.program("postgres");
        let command = ServerCommand {
            program: &program,
            arguments: vec!["-D".as_ref(), data.as_os_str()],
            log: LOG,
            last_signal: "QUIT",
        };
        let mut server = Server::start(&self.scratch, &command)?;
        let pid = server.pid();
        let started = server.wait_ready("postgres", PATIENCE, || self.reports_ready(pid));
        *slot = Some(server);
        if started.is_err() {
            if let Some(server) = slot.as_mut() {
                server.signal(Signal::QUIT);
                server.wait(PATIENCE);
            }
            self.forget(&mut slot)?;
        }
        started
    }

    /// Line 8 of the pid file; before that the server refuses connections, or runs as a standby not yet consistent.
    fn reports_ready(&self, postmaster: Pid) -> bool {
        let Ok(file) = fs::read_to_string(self.data_folder().join("postmaster.pid")) else {
            return false;
        };
        let mut lines = file.lines();
        let ours = lines
            .next()
            .is_some_and(|pid| pid.trim() == postmaster.as_raw_pid().to_string());
        ours && lines.nth(6).is_some_and(|status| status.trim() == "ready")
    }

    /// Forgets a server that has ended, before its process id can belong to somebody else.
    fn forget(&self, slot: &mut Option<Server>) -> Result<(), HarnessError> {
        match slot.take() {
            Some(server) => self
                .scratch
                .supervisor()
                .forget(server.pid().as_raw_pid().unsigned_abs()),
            None => Ok(()),
        }
    }

    fn write_settings(&self) -> Result<(), HarnessError> {
        let recipe = lock(&self.recipe);
        let listen = if recipe.tcp { "127.0.0.1" } else { "" };
        let fixed = [
            ("listen_addresses", listen.to_owned()),
            ("unix_socket_directories", self.host()),
            ("port", self.port.to_string()),
            ("fsync", "off".to_owned()),
            // The other kinds outlive a killed server, outside its folder.
            ("dynamic_shared_memory_type", "mmap".to_owned()),
            ("log_min_messages", "warning".to_owned()),
            // A standby starts from the template and needs everything since.
            ("wal_keep_size", "1GB".to_owned()),
        ];
        let asked = recipe
            .settings
            .iter()
            .map(|(name, value)| (name.as_str(), value.clone()));
        let mut text = String::new();
        for (name, value) in fixed.into_iter().chain(asked) {
            let value = value.replace('\\', "\\\\").replace('\'', "''");
            text += &format!("{name} = '{value}'\n");
        }
        self.scratch.write("data/harness.conf", text.as_bytes()).map(drop)
    }
}
