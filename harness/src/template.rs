//! A fresh data folder that is made once and copied for every cluster: a tenth of the time of `initdb`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::scratch::{Scratch, base_folder};
use crate::user::ServerUser;
use crate::{HarnessError, Installation};

const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);
const PREFIX: &str = "latchwork-template-";
/// Changes whenever what is written below changes.
const FORMAT: u32 = 1;

/// The template of an installation, made now if it is not there.
///
/// Its name carries the week: systems that clean their temporary folder by age would otherwise leave one with holes.
pub(crate) fn template(installation: &Installation, user: ServerUser) -> Result<PathBuf, HarnessError> {
    let base = base_folder(user)?;
    let week = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
        / WEEK.as_secs();
    let build = fnv1a(installation.bindir().as_os_str().as_bytes());
    let name = format!(
        "{PREFIX}{FORMAT}-{week}-{}-{}-{build:08x}",
        installation.version(),
        user.uid()
    );
    let path = base.join(name);
    if !path.exists() {
        make(installation, user, &path)?;
        remove_older(&base, week, user);
    }
    let owner = fs::metadata(&path).map_err(HarnessError::path("look at", &path))?.uid();
    if owner == user.uid() {
        return Ok(path);
    }
    Err(HarnessError::Io {
        action: format!("use {}: it belongs to user {owner}; remove it", path.display()),
        source: std::io::ErrorKind::PermissionDenied.into(),
    })
}

/// Copies a template to `target`, as the user it belongs to.
pub(crate) fn copy(template: &Path, target: &Path, user: ServerUser) -> Result<(), HarnessError> {
    let mut command = user.command("cp");
    command.args(["-R", "-p"]).arg(template).arg(target).current_dir("/");
    run(&mut command, "cp")
}

/// Runs a program to its end and turns a failure into an error with its output.
pub(crate) fn run(command: &mut Command, program: &str) -> Result<(), HarnessError> {
    let output = command.output().map_err(HarnessError::io(format!("run {program}")))?;
    if output.status.success() {
        return Ok(());
    }
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Err(HarnessError::Failed {
        program: program.to_owned(),
        status: output.status.to_string(),
        output: crate::error::log_tail(&text),
    })
}

/// Makes it in a private folder first; whoever renames first wins, and nobody sees half of one.
fn make(installation: &Installation, user: ServerUser, path: &Path) -> Result<(), HarnessError> {
    let scratch = Scratch::new(user)?;
    let private = scratch.path().join("data");
    let mut initdb = user.command(installation.program("initdb"));
    initdb
        .args([
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            "--pgdata",
        ])
        .arg(&private)
        .current_dir(scratch.path());
    run(&mut initdb, "initdb")?;
    let conf = private.join("postgresql.conf");
    OpenOptions::new()
        .append(true)
        .open(&conf)
        .and_then(|mut file| file.write_all(b"\ninclude 'harness.conf'\n"))
        .map_err(HarnessError::path("write", &conf))?;
    match fs::rename(&private, path) {
        Err(error) if !path.exists() => Err(HarnessError::path("make", path)(error)),
        _ => Ok(()),
    }
}

/// Tells two builds of one version apart.
fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

/// Removes this user's templates of past weeks, but not last week's: a cluster that still runs may want another copy.
fn remove_older(base: &Path, week: u64, user: ServerUser) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let its_week = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX))
            .and_then(|rest| rest.split('-').nth(1));
        let old = its_week
            .and_then(|digits| digits.parse::<u64>().ok())
            .is_some_and(|its_week| its_week + 1 < week);
        if old
            && entry
                .metadata()
                .is_ok_and(|found| found.is_dir() && found.uid() == user.uid())
        {
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}
