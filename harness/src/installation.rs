use std::collections::HashSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::HarnessError;

/// The binaries of one PostgreSQL version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    bindir: PathBuf,
    major: u32,
    version: String,
    unpacked: bool,
}

/// Where `cargo xtask setup` unpacks when the build folder is closed to the user that servers run as.
pub const SHARED_UNPACK_FOLDER: &str = "/var/tmp/latchwork-postgres";

impl Installation {
    /// Finds the PostgreSQL to use when nobody asks for a special one.
    ///
    /// It is the highest major among `PATH`, `pg_config --bindir` and `/usr/lib/postgresql/*/bin`; where there is none,
    /// the highest that `cargo xtask setup` unpacked. The variable `LATCHWORK_POSTGRES_MAJOR` asks for a special one.
    ///
    /// # Errors
    ///
    /// [`HarnessError::NoInstallation`] says what to install.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// let installation = latchwork_harness::Installation::find()?;
    /// println!("PostgreSQL {}", installation.major());
    /// # Ok::<(), latchwork_harness::HarnessError>(())
    /// ```
    pub fn find() -> Result<Self, HarnessError> {
        if let Ok(value) = env::var("LATCHWORK_POSTGRES_MAJOR") {
            let major = value.trim().parse().map_err(|_| HarnessError::BadMajor { value })?;
            return Self::find_major(major);
        }
        let all = Self::all();
        let installed = all.iter().find(|installation| !installation.unpacked);
        installed
            .or_else(|| all.first())
            .cloned()
            .ok_or(HarnessError::NoInstallation)
    }

    /// Finds one major.
    ///
    /// # Errors
    ///
    /// [`HarnessError::NoSuchMajor`] lists the majors that are there.
    pub fn find_major(major: u32) -> Result<Self, HarnessError> {
        let all = Self::all();
        let found: Vec<String> = all.iter().map(|installation| installation.major.to_string()).collect();
        let found = if found.is_empty() {
            "none".to_owned()
        } else {
            found.join(", ")
        };
        all.into_iter()
            .find(|installation| installation.major == major)
            .ok_or(HarnessError::NoSuchMajor { major, found })
    }

    /// Lists every major that is there, highest first, one installation each.
    ///
    /// Besides the places of [`find`](Self::find) it looks at what `cargo xtask setup` unpacked: one folder a major in
    /// `LATCHWORK_POSTGRES_DIR`, or else in `target/postgres` or [`SHARED_UNPACK_FOLDER`].
    #[must_use]
    pub fn all() -> Vec<Self> {
        let installed = installed_bindirs().into_iter().map(|bindir| (bindir, false));
        let unpacked = unpacked_bindirs().into_iter().map(|bindir| (bindir, true));
        let mut seen = HashSet::new();
        let mut all: Vec<Self> = installed
            .chain(unpacked)
            .filter(|(bindir, _)| seen.insert(bindir.clone()))
            .filter_map(|(bindir, unpacked)| Self::probe(bindir, unpacked))
            .collect();
        // Stable, so of two with the same major the installed one stays in front.
        all.sort_by_key(|installation| std::cmp::Reverse(installation.major));
        all.dedup_by_key(|installation| installation.major);
        all
    }

    /// The major version, such as 15.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.major
    }

    /// The version as the server prints it, such as `15.4`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The folder with `postgres` and `initdb`.
    #[must_use]
    pub fn bindir(&self) -> &Path {
        &self.bindir
    }

    /// Whether `cargo xtask setup` unpacked it; such a one comes without `psql`.
    #[must_use]
    pub fn is_unpacked(&self) -> bool {
        self.unpacked
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.bindir.join(name)
    }

    /// Looks whether a folder holds a server, and which.
    fn probe(bindir: PathBuf, unpacked: bool) -> Option<Self> {
        let output = Command::new(bindir.join("postgres")).arg("--version").output().ok()?;
        let version = parse_version(&String::from_utf8_lossy(&output.stdout))?;
        let major = version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
        Some(Self {
            bindir,
            major,
            version,
            unpacked,
        })
    }
}

/// The folders that `PATH` names.
pub(crate) fn path_folders() -> Vec<PathBuf> {
    env::var_os("PATH")
        .map(|path| env::split_paths(&path).collect())
        .unwrap_or_default()
}

/// Finds a program on `PATH`, or in the folders for administrators that users often do not have there.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    let administrators = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from);
    path_folders()
        .into_iter()
        .chain(administrators)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

fn installed_bindirs() -> Vec<PathBuf> {
    let mut folders = path_folders();
    if let Ok(output) = Command::new("pg_config").arg("--bindir").output() {
        folders.push(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    }
    if let Ok(majors) = fs::read_dir("/usr/lib/postgresql") {
        folders.extend(majors.flatten().map(|major| major.path().join("bin")));
    }
    folders.iter().filter_map(|folder| server_folder(folder)).collect()
}

fn unpacked_bindirs() -> Vec<PathBuf> {
    let Some(majors) = unpacked_root().and_then(|root| fs::read_dir(root).ok()) else {
        return Vec::new();
    };
    majors
        .flatten()
        .filter_map(|major| server_folder(&major.path().join("bin")))
        .collect()
}

/// Where other majors are unpacked: above the running program, beside the sources that it was built from, or shared.
fn unpacked_root() -> Option<PathBuf> {
    if let Some(folder) = env::var_os("LATCHWORK_POSTGRES_DIR") {
        return Some(PathBuf::from(folder));
    }
    let program = env::current_exe().ok()?;
    let above = program.ancestors().skip(1).map(|folder| folder.join("postgres"));
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/postgres");
    above
        .chain([beside, PathBuf::from(SHARED_UNPACK_FOLDER)])
        .find(|folder| folder.is_dir())
}

/// The folder itself, freed of links, when it holds a server and the program that makes clusters.
///
/// A link such as `/usr/bin/postgres` is followed, for `initdb` looks for its files beside the real program.
fn server_folder(folder: &Path) -> Option<PathBuf> {
    let postgres = fs::canonicalize(folder.join("postgres")).ok()?;
    let real = postgres.parent()?;
    (postgres.is_file() && real.join("initdb").is_file()).then(|| real.to_owned())
}

/// Reads `postgres (PostgreSQL) 15.4 (Debian ..)`.
fn parse_version(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    words.find(|word| *word == "(PostgreSQL)")?;
    words.next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_distributions_print_them() {
        assert_eq!(
            parse_version("postgres (PostgreSQL) 15.4 (Debian 15.4-1)\n").as_deref(),
            Some("15.4")
        );
        assert_eq!(
            parse_version("postgres (PostgreSQL) 18beta1\n").as_deref(),
            Some("18beta1")
        );
        assert_eq!(parse_version("something else 1.0"), None);
    }

    #[test]
    fn every_major_is_listed_once_and_highest_first() {
        let majors: Vec<u32> = Installation::all().iter().map(Installation::major).collect();
        assert!(!majors.is_empty(), "{}", HarnessError::NoInstallation);
        assert!(majors.windows(2).all(|pair| pair[0] > pair[1]), "{majors:?}");
    }

    #[test]
    fn a_missing_major_is_an_error_that_lists_what_is_there() {
        let error = Installation::find_major(7).unwrap_err().to_string();
        let there = Installation::find().unwrap().major().to_string();
        assert!(error.contains(&there) && error.contains("cargo xtask setup"), "{error}");
    }
}
