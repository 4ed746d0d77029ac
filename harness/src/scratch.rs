//! Temporary folders that disappear with the process.

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::HarnessError;
use crate::error::list_paths;
use crate::supervisor::Supervisor;
use crate::user::ServerUser;

/// The longest path that fits a unix socket's address.
const MAX_SOCKET_PATH: usize = 107;
/// Less is not enough for the clusters of a whole test run; containers often have 64 MiB.
const ROOM_IN_MEMORY: u64 = 4 << 30;
/// What comes below the temporary folder, at its longest.
const LONGEST_BELOW: usize = "/latchwork-0123456789ab/.s.PGSQL.65535.lock".len();

/// A private folder (0700, of the server's user) and the supervisor that removes it.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    supervisor: Supervisor,
    user: ServerUser,
}

impl Scratch {
    /// Makes a folder that belongs to `user`.
    pub(crate) fn new(user: ServerUser) -> Result<Self, HarnessError> {
        let path = base_folder(user)?.join(format!("latchwork-{:012x}", fastrand::u64(..1 << 48)));
        // The supervisor comes first: were we killed in between, nobody would remove the folder.
        let supervisor = Supervisor::start(Some(&path))?;
        if let Err(error) = DirBuilder::new().mode(0o700).create(&path) {
            // Perhaps somebody else's folder has this name: leave it alone.
            supervisor.abandon();
            return Err(HarnessError::path("create the folder", &path)(error));
        }
        let scratch = Self { path, supervisor, user };
        user.own(&scratch.path)?;
        Ok(scratch)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn user(&self) -> ServerUser {
        self.user
    }

    pub(crate) fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Ends what was started here and removes the folder.
    pub(crate) fn remove(&mut self) {
        self.supervisor.finish();
        // The supervisor itself may have been killed.
        if self.path.exists() {
            drop(fs::remove_dir_all(&self.path));
        }
    }

    /// Writes a file that only the server's user may read.
    pub(crate) fn write(&self, name: impl AsRef<Path>, contents: &[u8]) -> Result<PathBuf, HarnessError> {
        let path = self.path.join(name);
        write_private(&path, contents).map_err(HarnessError::path("write", &path))?;
        self.user.own(&path)?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A folder that is short enough for sockets and open to `user`: what `TMPDIR` says, else one in memory, else on disk.
pub(crate) fn base_folder(user: ServerUser) -> Result<PathBuf, HarnessError> {
    let asked = env::var_os("TMPDIR").map(PathBuf::from);
    // A cluster is a thousand small files, and some disks take half a millisecond to make one.
    let memory = Some(PathBuf::from("/dev/shm")).filter(|path| free_bytes(path) >= ROOM_IN_MEMORY);
    let disk = ["/tmp", "/var/tmp"].map(PathBuf::from);
    let candidates: Vec<PathBuf> = asked.into_iter().chain(memory).chain(disk).collect();
    match candidates.iter().find(|path| fits_sockets(path) && open_to(path, user)) {
        Some(path) => Ok(path.clone()),
        None => Err(HarnessError::NoTemporaryFolder {
            tried: list_paths(&candidates),
        }),
    }
}

fn free_bytes(path: &Path) -> u64 {
    rustix::fs::statvfs(path).map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize))
}

fn fits_sockets(base: &Path) -> bool {
    base.is_absolute() && base.as_os_str().len() + LONGEST_BELOW <= MAX_SOCKET_PATH
}

/// Whether another user may get there; for ourselves the attempt will tell.
fn open_to(base: &Path, user: ServerUser) -> bool {
    const SEARCH: u32 = 0o001;
    let searchable = |path: &Path| fs::metadata(path).is_ok_and(|found| found.mode() & SEARCH != 0);
    base.is_dir() && (!user.is_other() || base.ancestors().all(searchable))
}

fn write_private(path: &Path, contents: &[u8]) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_folder_that_is_too_long_for_sockets_is_passed_over() {
        assert!(fits_sockets(Path::new("/tmp")));
        assert!(!fits_sockets(Path::new(&format!("/{}", "x".repeat(80)))));
        assert!(!fits_sockets(Path::new("tmp")));
    }

    #[test]
    fn a_folder_is_private_and_gone_after_drop() {
        let scratch = Scratch::new(ServerUser::current().unwrap()).unwrap();
        let path = scratch.path().to_owned();
        let found = fs::metadata(&path).unwrap();
        assert_eq!(found.mode() & 0o777, 0o700);
        assert_eq!(found.uid(), scratch.user().uid());
        scratch.write("secret", b"x").unwrap();
        assert_eq!(fs::metadata(path.join("secret")).unwrap().mode() & 0o777, 0o600);
        drop(scratch);
        assert!(!path.exists());
    }
}
