//! A fresh data folder that is made once and copied for every cluster: a tenth of the time of `initdb`.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
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
    let home = home(user)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let week = now.as_secs() / WEEK.as_secs();
    let build = fnv1a(installation.bindir().as_os_str().as_bytes());
    let (version, uid) = (installation.version(), user.uid());
    let path = home.join(format!("{PREFIX}{FORMAT}-{week}-{version}-{uid}-{build:08x}"));
    if !path.exists() {
        make(installation, user, &path)?;
        remove_older(&home, week, user);
    }
    let owner = fs::metadata(&path).map_err(HarnessError::path("look at", &path))?.uid();
    if owner == uid {
        return Ok(path);
    }
    Err(HarnessError::Io {
        action: format!("use {}: it belongs to user {owner}; remove it", path.display()),
        source: std::io::ErrorKind::PermissionDenied.into(),
    })
}

/// Copies a template to `target`; its files keep their owner.
pub(crate) fn copy(template: &Path, target: &Path) -> Result<(), HarnessError> {
    let mut command = Command::new("cp");
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

/// Where templates are kept: in the build folder that we were started from, else with the temporary folders.
///
/// The server's user need not get there, for we copy, not it.
fn home(user: ServerUser) -> Result<PathBuf, HarnessError> {
    let asked = env::var_os("LATCHWORK_TEMPLATES").map(PathBuf::from);
    match asked
        .or_else(build_folder)
        .filter(|folder| fs::create_dir_all(folder).is_ok() && is_writable(folder))
    {
        Some(folder) => Ok(folder),
        None => base_folder(user),
    }
}

fn build_folder() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    // Cargo marks its build folder with this file.
    let target = program
        .ancestors()
        .find(|folder| folder.join("CACHEDIR.TAG").is_file())?;
    Some(target.join("latchwork-templates"))
}

fn is_writable(folder: &Path) -> bool {
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
}

/// Makes it apart and renames it: whoever is first wins, and nobody sees half of one.
fn make(installation: &Installation, user: ServerUser, path: &Path) -> Result<(), HarnessError> {
    let scratch = Scratch::new(user)?;
    let data = scratch.path().join("data");
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
        .arg(&data)
        .current_dir(scratch.path());
    run(&mut initdb, "initdb")?;
    let conf = data.join("postgresql.conf");
    OpenOptions::new()
        .append(true)
        .open(&conf)
        .and_then(|mut file| file.write_all(b"\ninclude 'harness.conf'\n"))
        .map_err(HarnessError::path("write", &conf))?;
    // The temporary folder is often on another file system, and a rename does not cross the border.
    let beside = path.with_extension(format!("unfinished-{}-{}", process::id(), fastrand::u32(..)));
    let renamed = copy(&data, &beside).and_then(|()| match fs::rename(&beside, path) {
        Err(error) if !path.exists() => Err(HarnessError::path("make", path)(error)),
        _ => Ok(()),
    });
    if beside.exists() {
        drop(fs::remove_dir_all(&beside));
    }
    renamed
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
