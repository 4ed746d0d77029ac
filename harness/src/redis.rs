use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::HarnessError;
use crate::cluster::free_port;
use crate::installation::find_program;
use crate::scratch::Scratch;
use crate::server::{Server, ServerCommand, read_log};
use crate::user::ServerUser;

const PATIENCE: Duration = Duration::from_secs(30);
const LOG: &str = "redis.log";
const PORT_TRIES: u32 = 5;
const PORT_TAKEN: &str = "Address already in use";

/// A Redis that keeps nothing, on a socket and on a port of 127.0.0.1; for comparisons.
///
/// It ends as a cluster does: on drop, or with this process.
#[derive(Debug)]
pub struct Redis {
    scratch: Scratch,
    server: Server,
    port: u16,
}

impl Redis {
    /// Starts one without persistence and waits until it answers.
    ///
    /// # Errors
    ///
    /// Fails when `redis-server` is not installed or does not start.
    pub fn start() -> Result<Self, HarnessError> {
        let program = find_program("redis-server").ok_or(HarnessError::MissingProgram {
            program: "redis-server",
            package: "redis-server",
        })?;
        let mut tries = 0;
        loop {
            tries += 1;
            match Self::launch(&program) {
                // Another process took the port after we had looked.
                Err(HarnessError::StartFailed { log, .. }) if tries < PORT_TRIES && log.contains(PORT_TAKEN) => {}
                other => return other,
            }
        }
    }

    /// Its socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.scratch.path().join("redis.sock")
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL over TCP, as the `redis` crate reads it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The URL over the socket, as the `redis` crate reads it.
    #[must_use]
    pub fn unix_url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// Everything that it has logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        read_log(&self.scratch.path().join(LOG))
    }

    fn launch(program: &Path) -> Result<Self, HarnessError> {
        let scratch = Scratch::new(ServerUser::current()?)?;
        let port = free_port()?;
        let port_text = port.to_string();
        let socket = scratch.path().join("redis.sock");
        let words = [
            "--port",
            &port_text,
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--daemonize",
            "no",
        ];
        let mut arguments: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
        arguments.extend([OsStr::new("--dir"), scratch.path().as_os_str()]);
        arguments.extend([OsStr::new("--unixsocket"), socket.as_os_str()]);
        let command = ServerCommand {
            program,
            arguments,
            log: LOG,
            last_signal: "TERM",
        };
        let server = Server::start(&scratch, &command)?;
        let mut redis = Self { scratch, server, port };
        redis.server.wait_ready("redis-server", PATIENCE, || answers(&socket))?;
        Ok(redis)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.scratch.remove();
        self.server.reap();
    }
}

/// Whether it answers a PING.
fn answers(socket: &Path) -> bool {
    let ping = || -> std::io::Result<bool> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer)?;
        Ok(&answer == b"+PONG")
    };
    ping().unwrap_or(false)
}
