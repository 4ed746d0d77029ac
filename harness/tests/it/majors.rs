use latchwork_harness::{Cluster, Installation, StopMode};

#[test]
fn every_major_that_is_there_starts_and_recovers() {
    let all = Installation::all();
    assert!(!all.is_empty(), "no PostgreSQL is installed");
    for installation in all {
        let major = installation.major();
        let cluster = Cluster::builder().installation(installation).start().unwrap();
        let version: u32 = cluster.psql("SHOW server_version_num").unwrap().parse().unwrap();
        assert_eq!(version / 10_000, major);
        assert_eq!(cluster.psql("SELECT pg_try_advisory_lock(1)").unwrap(), "t");
        cluster.kill_server().unwrap();
        cluster.restart(StopMode::Fast).unwrap();
        assert_eq!(cluster.psql("SELECT 1").unwrap(), "1");
    }
}
