use std::{fs, io, process};

use latchwork_harness::Cluster;

use crate::Failure;

/// Processor time that was used so far, in nanoseconds.
///
/// On a machine where client and server have the same few cores, it is what a transaction costs, and less disturbed by
/// other programs than its time on the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu {
    pub(crate) client: u64,
    pub(crate) server: u64,
}

impl Cpu {
    /// The threads that have ended are not counted, so that no connection may be closed between two readings.
    pub(crate) fn used(cluster: &Cluster) -> Result<Self, Failure> {
        let mut server = 0;
        for backend in cluster.server_processes()? {
            server += match of_threads(&backend.to_string()) {
                // One of the server's own that has ended since.
                Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
                used => used?,
            };
        }
        let client = of_threads(&process::id().to_string())?;
        Ok(Self { client, server })
    }
}

fn of_threads(pid: &str) -> io::Result<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let schedstat = fs::read_to_string(thread?.path().join("schedstat"))?;
        let on_cpu = schedstat.split_whitespace().next().unwrap_or_default();
        sum += on_cpu.parse::<u64>().map_err(io::Error::other)?;
    }
    Ok(sum)
}
