//! The command `latchwork`, of this workspace.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};

/// Where the command is.
#[derive(Debug)]
pub(crate) struct Latchwork {
    folder: PathBuf,
}

impl Latchwork {
    /// Has cargo build it, as this program was built.
    pub(crate) fn build() -> anyhow::Result<Self> {
        let program = env::current_exe()?;
        let profile_folder = program.parent().context("this program is in a folder")?;
        let target = profile_folder.parent().context("this program is in a target folder")?;
        let profile = profile_folder.file_name().context("that folder has a name")?;
        // It shares what is built with the workspace, but has its own place for the result: tests may be running the
        // `latchwork` that is in the workspace's.
        let own = target.join("cron-shell");
        let mut cargo = cargo();
        cargo
            .args(["build", "--package", "latchwork-cli", "--profile"])
            .arg(if profile == "debug" { "dev".as_ref() } else { profile })
            .arg("--target-dir")
            .arg(&own)
            .env("CARGO_BUILD_BUILD_DIR", target);
        let built = cargo
            .status()
            .context("cargo does not start, which builds latchwork-cli")?;
        ensure!(built.success(), "latchwork-cli was not built: {built}");
        Ok(Self {
            folder: own.join(profile),
        })
    }

    /// A search path with the command in it.
    pub(crate) fn search_path(&self) -> OsString {
        let mut path = self.folder.clone().into_os_string();
        path.push(":/usr/local/bin:/usr/bin:/bin");
        path
    }

    /// Makes the tables of ticks.
    pub(crate) fn install_schema(&self, url: &str) -> anyhow::Result<()> {
        let mut install = Command::new(self.folder.join("latchwork"));
        let installed = install.args(["schema", "install", "--url", url]).status()?;
        ensure!(installed.success(), "latchwork schema install: {installed}");
        Ok(())
    }
}

/// Cargo in the workspace, without what the cargo that runs us has set for this package alone: it would build anew.
fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        let of_this_package = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"];
        if of_this_package
            .iter()
            .any(|prefix| name.to_string_lossy().starts_with(prefix))
        {
            cargo.env_remove(name);
        }
    }
    cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")));
    cargo
}
