//! What the tests need from the system.

use std::path::Path;
use std::process::Command;

use latchwork_harness::{Installation, find_program};

use crate::majors;
use crate::run::{Failure, output, run};

/// Installs what is missing and fetches the other majors of PostgreSQL.
pub(crate) fn setup() -> Result<(), Failure> {
    let mut missing = Vec::new();
    // What was unpacked earlier is no substitute: it comes without a client.
    if find_program("psql").is_none() || Installation::all().iter().all(Installation::is_unpacked) {
        missing.push("postgresql");
    }
    missing.extend(
        ["pgbouncer", "redis-server"]
            .into_iter()
            .filter(|name| find_program(name).is_none()),
    );
    // What diesel is linked with. The header comes in the same package as the library to link.
    if !has_libpq() {
        missing.push("libpq-dev");
    }
    install(&missing)?;
    majors::fetch();
    for installation in Installation::all() {
        println!(
            "xtask: PostgreSQL {} is in {}",
            installation.version(),
            installation.bindir().display()
        );
    }
    Ok(())
}

fn has_libpq() -> bool {
    let told = output(Command::new("pg_config").arg("--includedir")).ok();
    let usual = ["/usr/include/postgresql", "/usr/include", "/usr/local/include"].map(str::to_owned);
    let mut folders = told.into_iter().chain(usual);
    folders.any(|folder| Path::new(folder.trim()).join("libpq-fe.h").is_file())
}

/// Installs packages of the system as root; otherwise says which command does.
pub(crate) fn install(packages: &[&str]) -> Result<(), Failure> {
    if packages.is_empty() {
        return Ok(());
    }
    if find_program("apt-get").is_none() {
        let names = packages.join(", ");
        return Err(Failure::usage(format!(
            "install these with your system's package manager: {names}"
        )));
    }
    if output(Command::new("id").arg("-u"))?.trim() != "0" {
        let names = packages.join(" ");
        return Err(Failure::usage(format!(
            "packages are missing; run: sudo apt-get update && sudo apt-get install -y --no-install-recommends {names}"
        )));
    }
    run(&mut apt_get(&["update", "-q"]))?;
    run(apt_get(&["install", "-y", "-q", "--no-install-recommends"]).args(packages))
}

fn apt_get(arguments: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    command
}
