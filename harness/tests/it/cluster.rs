use latchwork_harness::{Cluster, HarnessError, Signal, StopMode};

#[test]
fn a_cluster_answers_on_its_socket_and_on_nothing_else() {
    let cluster = Cluster::start().unwrap();
    assert_eq!(cluster.psql("SELECT 1; SELECT 'a', 'b'").unwrap(), "1\na|b");
    assert_eq!(cluster.psql("SHOW listen_addresses").unwrap(), "");
    assert_eq!(cluster.tcp_url_for("postgres", "postgres"), None);
    assert_eq!(cluster.psql("SHOW server_encoding").unwrap(), "UTF8");
    assert_eq!(
        cluster.psql("SELECT DISTINCT datcollate FROM pg_database").unwrap(),
        "C"
    );
}

#[test]
fn two_clusters_do_not_see_each_other() {
    let (one, two) = (Cluster::start().unwrap(), Cluster::start().unwrap());
    one.psql("CREATE TABLE only_here ()").unwrap();
    assert!(matches!(
        two.psql("SELECT FROM only_here"),
        Err(HarnessError::Failed { .. })
    ));
}

#[test]
fn settings_reach_the_server_whatever_they_contain() {
    let cluster = Cluster::builder()
        .setting("max_connections", 7)
        .setting("max_connections", 300)
        .setting("search_path", r#""it's a back\slash""#)
        .start()
        .unwrap();
    assert_eq!(cluster.psql("SHOW max_connections").unwrap(), "300");
    assert_eq!(cluster.psql("SHOW search_path").unwrap(), r#""it's a back\slash""#);
}

#[test]
fn a_setting_changes_with_a_reload() {
    let cluster = Cluster::start().unwrap();
    cluster.set("deadlock_timeout", "17ms").unwrap();
    cluster.reload().unwrap();
    let reloaded = || cluster.psql("SHOW deadlock_timeout").unwrap() == "17ms";
    assert!(latchwork_harness::wait_until(
        std::time::Duration::from_secs(20),
        reloaded
    ));
}

#[test]
fn a_refused_setting_is_an_error_with_the_servers_reason() {
    let error = Cluster::builder()
        .setting("max_connections", "many")
        .start()
        .unwrap_err();
    assert!(matches!(error, HarnessError::StartFailed { .. }), "{error:?}");
    assert!(error.to_string().contains("max_connections"), "{error}");
}

#[test]
fn data_survive_a_stop_a_restart_and_a_crash() {
    let cluster = Cluster::start().unwrap();
    cluster
        .psql("CREATE TABLE t (n int); INSERT INTO t VALUES (1)")
        .unwrap();
    cluster.stop(StopMode::Fast).unwrap();
    assert!(!cluster.is_running());
    assert!(matches!(cluster.postmaster_pid(), Err(HarnessError::Stopped)));
    assert!(cluster.psql("SELECT 1").is_err());
    cluster.restart(StopMode::Immediate).unwrap();
    let before = cluster.postmaster_pid().unwrap();
    cluster.psql("INSERT INTO t VALUES (2)").unwrap();
    cluster.kill_server().unwrap();
    assert!(!cluster.is_running());
    cluster.restart(StopMode::Fast).unwrap();
    assert_ne!(cluster.postmaster_pid().unwrap(), before);
    assert_eq!(cluster.psql("SELECT sum(n) FROM t").unwrap(), "3");
    assert!(cluster.log().contains("not properly shut down"), "{}", cluster.log());
}

#[test]
fn a_killed_backend_makes_the_server_start_anew() {
    let cluster = Cluster::start().unwrap();
    let checkpointer = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'";
    let pid = cluster.psql(checkpointer).unwrap().parse().unwrap();
    cluster.signal_backend(pid, Signal::KILL).unwrap();
    let restarted = || cluster.psql(checkpointer).is_ok_and(|now| now != pid.to_string());
    assert!(
        latchwork_harness::wait_until(std::time::Duration::from_secs(30), restarted),
        "{}",
        cluster.log()
    );
}

#[test]
fn only_backends_of_the_cluster_can_be_signalled() {
    let cluster = Cluster::start().unwrap();
    let ours = i32::try_from(std::process::id()).unwrap();
    for pid in [ours, 0, -1, cluster.postmaster_pid().unwrap()] {
        let refused = cluster.signal_backend(pid, Signal::TERM);
        assert!(matches!(refused, Err(HarnessError::NotABackend { .. })), "{refused:?}");
    }
}

#[test]
fn other_users_and_databases_have_urls() {
    let cluster = Cluster::start().unwrap();
    cluster
        .psql("CREATE ROLE \"a/b\" LOGIN; CREATE DATABASE \"my db\" OWNER \"a/b\"")
        .unwrap();
    let answer = cluster
        .psql_as("a/b", "my db", "SELECT current_user, current_database()")
        .unwrap();
    assert_eq!(answer, "a/b|my db");
}

#[test]
fn tcp_and_a_hba_file_are_there_when_asked_for() {
    let cluster = Cluster::builder()
        .tcp()
        .hba("local all all trust\nhost all all 127.0.0.1/32 reject\n")
        .start()
        .unwrap();
    let url = cluster.tcp_url_for("postgres", "postgres").unwrap();
    assert!(
        url.ends_with(&format!("127.0.0.1:{}/postgres", cluster.port())),
        "{url}"
    );
    let output = std::process::Command::new("psql")
        .args([url.as_str(), "-c", "SELECT 1"])
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("rejects connection"), "{message}");
}
