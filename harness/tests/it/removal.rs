//! Nothing stays behind, however the process ends.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use latchwork_harness::{Cluster, PgBouncer, PoolMode, Process, Proxy, Redis, Signal, wait_until};

const PATIENCE: Duration = Duration::from_secs(30);

/// A process that has started a cluster.
struct Holder {
    process: Process,
    folder: PathBuf,
    postmaster: u32,
}

impl Holder {
    fn start(how_it_ends: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_throw-away-cluster"));
        let mut process = Process::spawn(command.arg(how_it_ends).stdin(Stdio::piped()).stderr(Stdio::null())).unwrap();
        let folder = PathBuf::from(process.wait_for_line("folder ").unwrap());
        let postmaster = process.wait_for_line("postmaster ").unwrap().parse().unwrap();
        Self {
            process,
            folder,
            postmaster,
        }
    }

    fn assert_nothing_left(&self) {
        assert!(
            wait_until(PATIENCE, || !self.folder.exists()),
            "{} is still there",
            self.folder.display()
        );
        assert!(
            wait_until(PATIENCE, || !is_running(self.postmaster)),
            "the postmaster is still there"
        );
    }
}

fn is_running(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let state = stat.rsplit_once(") ").unwrap().1;
    !state.starts_with('Z')
}

#[test]
fn nothing_is_left_after_the_input_ends() {
    let mut holder = Holder::start("wait");
    assert!(holder.folder.exists() && is_running(holder.postmaster));
    assert!(holder.process.wait().unwrap().success());
    assert!(!holder.folder.exists(), "an ordinary end waits for the removal");
    holder.assert_nothing_left();
}

#[test]
fn nothing_is_left_after_exit_without_destructors() {
    let mut holder = Holder::start("exit");
    assert!(holder.process.wait().unwrap().success());
    holder.assert_nothing_left();
}

#[test]
fn nothing_is_left_after_a_panic() {
    let mut holder = Holder::start("panic");
    assert_eq!(holder.process.wait().unwrap().code(), Some(101));
    holder.assert_nothing_left();
}

#[test]
fn nothing_is_left_after_an_abort() {
    let mut holder = Holder::start("abort");
    assert!(!holder.process.wait().unwrap().success());
    holder.assert_nothing_left();
}

#[test]
fn nothing_is_left_after_kill_9() {
    let mut holder = Holder::start("wait");
    assert!(holder.folder.exists() && is_running(holder.postmaster));
    holder.process.signal(Signal::KILL);
    assert!(!holder.process.wait().unwrap().success());
    holder.assert_nothing_left();
}

#[test]
fn nothing_is_left_after_ctrl_c_in_a_terminal() {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(env!("CARGO_BIN_EXE_throw-away-cluster"));
    // A group of its own stands for the foreground group of a terminal, which gets the signal as a whole.
    command.process_group(0).stdin(Stdio::piped());
    let mut process = Process::spawn(&mut command).unwrap();
    let folder = PathBuf::from(process.wait_for_line("folder ").unwrap());
    let postmaster = process.wait_for_line("postmaster ").unwrap().parse().unwrap();
    let group = format!("-{}", process.id());
    assert!(
        Command::new("kill")
            .args(["-s", "INT", "--", &group])
            .status()
            .unwrap()
            .success()
    );
    assert!(!process.wait().unwrap().success());
    Holder {
        process,
        folder,
        postmaster,
    }
    .assert_nothing_left();
}

#[test]
fn nothing_is_left_when_backends_are_stopped_and_the_process_is_killed() {
    let mut holder = Holder::start("wait");
    for pid in std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
    {
        let parent = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let of_ours = parent
            .rsplit_once(") ")
            .is_some_and(|(_, fields)| fields.split(' ').nth(1) == Some(holder.postmaster.to_string().as_str()));
        if of_ours {
            assert!(
                Command::new("kill")
                    .args(["-s", "STOP", &pid])
                    .status()
                    .unwrap()
                    .success()
            );
        }
    }
    assert!(
        Command::new("kill")
            .args(["-s", "STOP", &holder.postmaster.to_string()])
            .status()
            .unwrap()
            .success()
    );
    holder.process.signal(Signal::KILL);
    assert!(!holder.process.wait().unwrap().success());
    holder.assert_nothing_left();
}

#[test]
fn a_drop_waits_until_everything_is_gone() {
    let cluster = Cluster::start().unwrap();
    let postmaster = u32::try_from(cluster.postmaster_pid().unwrap()).unwrap();
    let pooler = PgBouncer::start(&cluster, PoolMode::Session).unwrap();
    let proxy = Proxy::start(cluster.endpoint()).unwrap();
    let redis = Redis::start().unwrap();
    let folders = [
        PathBuf::from(cluster.host()),
        socket_folder(&pooler.endpoint()),
        socket_folder(proxy.endpoint()),
        redis.socket().parent().unwrap().to_owned(),
    ];
    assert!(folders.iter().all(|folder| folder.exists()));
    drop((cluster, pooler, proxy, redis));
    assert!(folders.iter().all(|folder| !folder.exists()));
    assert!(!is_running(postmaster));
}

#[test]
fn a_crashed_server_leaves_no_shared_memory_segment() {
    let cluster = Cluster::start().unwrap();
    let pid_file = std::fs::read_to_string(cluster.data_folder().join("postmaster.pid")).unwrap();
    let segment = pid_file
        .lines()
        .nth(6)
        .unwrap()
        .split_whitespace()
        .last()
        .unwrap()
        .to_owned();
    let listed = || {
        let segments = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
        segments
            .lines()
            .any(|line| line.split_whitespace().nth(1) == Some(&segment))
    };
    assert!(listed());
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", cluster.postmaster_pid().unwrap())).unwrap();
    assert!(!maps.contains("/dev/shm/PostgreSQL."), "{maps}");
    cluster.kill_server().unwrap();
    assert!(listed(), "a crash leaves it, so that this test shows something");
    drop(cluster);
    assert!(!listed());
}

/// A temporary folder of its own, with a place for templates, both empty.
struct Fresh(PathBuf);

impl Fresh {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(format!("/tmp/lw-{name}-{}", std::process::id()));
        std::fs::create_dir_all(path.join("tmp")).unwrap();
        Self(path)
    }

    fn start(&self) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_throw-away-cluster"));
        command
            .env("TMPDIR", self.0.join("tmp"))
            .env("LATCHWORK_TEMPLATES", self.0.join("templates"));
        Process::spawn(command.stdin(Stdio::piped()).stderr(Stdio::null())).unwrap()
    }

    fn folders(&self, name: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.0.join(name)).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn many_first_starts_at_once_share_one_template() {
    let fresh = Fresh::new("template");
    let mut processes: Vec<Process> = (0..4).map(|_| fresh.start()).collect();
    for process in &mut processes {
        process.wait_for_line("folder ").unwrap();
    }
    assert_eq!(fresh.folders("tmp").len(), 4);
    drop(processes);
    assert!(wait_until(PATIENCE, || fresh.folders("tmp").is_empty()));
    assert_eq!(fresh.folders("templates").len(), 1, "{:?}", fresh.folders("templates"));
}

#[test]
fn nothing_is_left_when_killed_at_any_moment_of_the_start() {
    let fresh = Fresh::new("start");
    // From the first folder over initdb, the copy and the server's own files to the end.
    let stages = [
        "",
        "data",
        "data/base",
        "data/PG_VERSION",
        "data/harness.conf",
        "postgres.log",
        "data/postmaster.pid",
    ];
    for stage in stages {
        let mut process = fresh.start();
        let reached = || fresh.folders("tmp").iter().any(|folder| folder.join(stage).exists());
        assert!(wait_until(PATIENCE, reached), "{stage} never appears");
        process.signal(Signal::KILL);
        assert!(!process.wait().unwrap().success());
        assert!(
            wait_until(PATIENCE, || fresh.folders("tmp").is_empty()),
            "{stage}: {:?}",
            fresh.folders("tmp")
        );
    }
    let mentions = |path: PathBuf| {
        let words = std::fs::read_to_string(path.join("cmdline")).unwrap_or_default();
        words.contains(fresh.0.to_str().unwrap())
    };
    let nobody = || {
        !std::fs::read_dir("/proc")
            .unwrap()
            .any(|entry| mentions(entry.unwrap().path()))
    };
    assert!(wait_until(PATIENCE, nobody), "a process is still there");
}

fn socket_folder(endpoint: &latchwork_harness::Endpoint) -> PathBuf {
    match endpoint {
        latchwork_harness::Endpoint::Unix(path) => path.parent().unwrap().to_owned(),
        other => panic!("{other:?} is no unix socket"),
    }
}
