use std::{fs, io, path::Path, process};

use latchwork_harness::Cluster;

/// Processor time that was used so far, in nanoseconds.
///
/// On a machine where client and server have the same few cores, it is what a transaction costs, and less disturbed by
/// other programs than its time on the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu {
    pub(crate) client: u64,
    pub(crate) server: u64,
}

/// Where the processor time of both sides can be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    postmaster: i32,
}

impl Meter {
    pub(crate) fn of(cluster: &Cluster) -> io::Result<Self> {
        let postmaster = cluster.postmaster_pid().map_err(io::Error::other)?;
        Ok(Self { postmaster })
    }

    /// The threads that have ended are not counted, so that no connection may be closed in between.
    pub(crate) fn read(self) -> io::Result<Cpu> {
        let mut server = 0;
        for process in fs::read_dir("/proc")? {
            let process = process?.path();
            // Others may end meanwhile.
            if fs::read_to_string(process.join("stat")).is_ok_and(|stat| parent(&stat) == Some(self.postmaster)) {
                server += of_threads(&process)?;
            }
        }
        let client = of_threads(Path::new(&format!("/proc/{}", process::id())))?;
        Ok(Cpu { client, server })
    }
}

/// The second field behind the name, which is in parentheses and may have any letters.
fn parent(stat: &str) -> Option<i32> {
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(1)?.parse().ok()
}

fn of_threads(process: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(process.join("task"))? {
        let schedstat = fs::read_to_string(thread?.path().join("schedstat"))?;
        let on_cpu = schedstat.split_whitespace().next().unwrap_or_default();
        sum += on_cpu.parse::<u64>().map_err(io::Error::other)?;
    }
    Ok(sum)
}
