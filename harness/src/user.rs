//! Who the servers run as.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::HarnessError;

/// The user that servers run as, where that is not simply ourselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerUser {
    switch_to: Option<(u32, u32)>,
}

impl ServerUser {
    /// Ourselves, or an unprivileged user when we are root.
    pub(crate) fn current() -> Result<Self, HarnessError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self::ourselves());
        }
        let passwd = fs::read_to_string("/etc/passwd").map_err(HarnessError::io("read /etc/passwd"))?;
        let switch_to = unprivileged(&passwd).ok_or(HarnessError::NoServerUser)?;
        Ok(Self {
            switch_to: Some(switch_to),
        })
    }

    /// The user that this process runs as, root or not.
    pub(crate) fn ourselves() -> Self {
        Self { switch_to: None }
    }

    /// The numeric id that files of the server belong to.
    pub(crate) fn uid(self) -> u32 {
        self.switch_to
            .map_or_else(|| rustix::process::geteuid().as_raw(), |(uid, _)| uid)
    }

    /// Whether the server's user differs from ours.
    pub(crate) fn is_other(self) -> bool {
        self.switch_to.is_some()
    }

    /// A command that will run as this user, with no setting of libpq's or PostgreSQL's inherited.
    pub(crate) fn command(self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        if let Some((uid, gid)) = self.switch_to {
            command.uid(uid).gid(gid);
        }
        clear_postgres_environment(&mut command);
        command
    }

    /// Hands a file or folder to this user.
    pub(crate) fn own(self, path: &Path) -> Result<(), HarnessError> {
        match self.switch_to {
            Some((uid, gid)) => {
                chown(path, Some(uid), Some(gid)).map_err(HarnessError::path("change the owner of", path))
            }
            None => Ok(()),
        }
    }
}

/// Removes what would redirect libpq or change a server (`PGHOST`, `PGDATA`, ..), and fixes the language of messages.
pub(crate) fn clear_postgres_environment(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    command.env("LC_ALL", "C");
}

/// The ids of `postgres`, else of `nobody`.
fn unprivileged(passwd: &str) -> Option<(u32, u32)> {
    ["postgres", "nobody"].into_iter().find_map(|wanted| {
        passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            if fields.next()? != wanted {
                return None;
            }
            let uid: u32 = fields.nth(1)?.parse().ok()?;
            let gid: u32 = fields.next()?.parse().ok()?;
            (uid != 0).then_some((uid, gid))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postgres_is_preferred_and_nobody_is_the_fallback() {
        let nobody = "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65533::/:/bin/false\n";
        assert_eq!(unprivileged(nobody), Some((65534, 65533)));
        let both = format!("{nobody}postgres:x:101:104::/:/bin/sh\n");
        assert_eq!(unprivileged(&both), Some((101, 104)));
    }

    #[test]
    fn a_user_that_is_root_by_another_name_is_refused() {
        assert_eq!(unprivileged("postgres:x:0:0::/:/bin/sh\n"), None);
        assert_eq!(unprivileged(""), None);
    }
}
