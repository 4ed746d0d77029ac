use latchwork_harness::{Cluster, HarnessError, StopMode};

#[test]
fn a_standby_follows_its_primary_and_takes_over() {
    let primary = Cluster::builder().setting("max_connections", 150).start().unwrap();
    primary.psql("CREATE TABLE t AS SELECT 1 AS n").unwrap();
    let standby = primary.standby().unwrap();
    primary.psql("INSERT INTO t VALUES (2)").unwrap();
    standby.catch_up_with(&primary).unwrap();
    assert_eq!(
        standby.psql("SELECT sum(n), pg_is_in_recovery() FROM t").unwrap(),
        "3|t"
    );
    assert_eq!(standby.psql("SHOW max_connections").unwrap(), "150");
    assert!(matches!(
        standby.psql("INSERT INTO t VALUES (3)"),
        Err(HarnessError::Failed { .. })
    ));

    primary.kill_server().unwrap();
    standby.promote().unwrap();
    assert_eq!(
        standby
            .psql("INSERT INTO t VALUES (4); SELECT sum(n), pg_is_in_recovery() FROM t")
            .unwrap(),
        "7|f"
    );
}

#[test]
fn a_standby_joins_a_primary_that_has_restarted_and_moved_on() {
    let primary = Cluster::start().unwrap();
    primary
        .psql("CREATE TABLE t AS SELECT g FROM generate_series(1, 50000) g; CHECKPOINT")
        .unwrap();
    primary.restart(StopMode::Fast).unwrap();
    primary.psql("SELECT pg_switch_wal(); CHECKPOINT").unwrap();
    let standby = primary.standby().unwrap();
    standby.catch_up_with(&primary).unwrap();
    assert_eq!(standby.psql("SELECT count(*) FROM t").unwrap(), "50000");
}

#[test]
fn a_primary_cannot_be_promoted() {
    let error = Cluster::start().unwrap().promote().unwrap_err();
    assert!(error.to_string().contains("not in standby mode"), "{error}");
}
