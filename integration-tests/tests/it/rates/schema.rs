//! The tables: made once, by whoever comes first, and told of when they are not there.

use latchwork_core::rate::{OnOutage, RateError, RateLimitsOptions};
use latchwork_harness::{Cluster, Installation};
use latchwork_postgres::schema::{self, SchemaError, SchemaState};

use super::{patient, process, rarely, rows};
use crate::onlooker::{Onlooker, chain, connect, loud, majors, quick};

const TABLES: &str = "SELECT string_agg(relname || relpersistence::text || relkind::text, ' ' ORDER BY relname) \
     FROM pg_class WHERE relnamespace = 'latchwork'::regnamespace";

async fn assert_whole(onlooker: &Onlooker) {
    assert_eq!(schema::check(&onlooker.0).await.unwrap(), SchemaState::Right);
    let tables = "idempotencypr idempotency_expires_atpi idempotency_pkeypi rate_limitsur rate_limits_pkeyui \
         schema_versionpr schema_version_pkeypi tickspr ticks_pkeypi";
    assert_eq!(onlooker.value(TABLES).await, tables);
    assert_eq!(
        onlooker.number("SELECT count(*) FROM latchwork.schema_version").await,
        1
    );
}

fn start(installation: Installation) -> Cluster {
    println!("PostgreSQL {}", installation.version());
    Cluster::builder().installation(installation).start().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_installers_at_once_and_the_printed_sql_beside_them_make_the_tables_once() {
    for installation in majors() {
        let cluster = start(installation);
        for _ in 0..10 {
            let mut installers = Vec::new();
            for number in 0..8 {
                let client = Onlooker::new(&cluster.url()).await.0;
                installers.push(tokio::spawn(async move {
                    if number % 4 == 3 {
                        client.batch_execute(schema::sql()).await.unwrap();
                    } else {
                        schema::install(&client).await.unwrap();
                    }
                }));
            }
            for installer in installers {
                installer.await.unwrap();
            }
            let onlooker = Onlooker::new(&cluster.url()).await;
            assert_whole(&onlooker).await;
            onlooker.0.batch_execute("DROP SCHEMA latchwork CASCADE").await.unwrap();
        }
        assert_eq!(loud(&cluster), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_printed_sql_runs_in_psql_twice_and_inside_a_migrations_transaction() {
    let cluster = Cluster::start().unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    let sql = schema::sql();
    cluster.psql(&format!("BEGIN;\n{sql}\nROLLBACK;\n")).unwrap();
    assert_eq!(schema::check(&onlooker.0).await.unwrap(), SchemaState::Missing);
    cluster.psql(&format!("BEGIN;\n{sql}\nCOMMIT;\n")).unwrap();
    assert_whole(&onlooker).await;
    let rates = process(&cluster, patient()).await;
    rates.check("key", rarely(1), 1).await.unwrap();
    assert_eq!(cluster.psql(&format!("{sql}\n{sql}")).unwrap(), "");
    schema::install(&onlooker.0).await.unwrap();
    assert_whole(&onlooker).await;
    assert_eq!(rows(&onlooker).await, 1);
    assert_eq!(loud(&cluster), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_older_and_newer_tables_are_told_and_what_is_missing_is_made_again() {
    let cluster = Cluster::start().unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    let state = async || schema::check(&onlooker.0).await.unwrap();
    assert_eq!(state().await, SchemaState::Missing);
    let error = state().await.require().unwrap_err();
    assert!(error.to_string().contains("latchwork schema install"), "{error}");
    schema::install(&onlooker.0).await.unwrap();
    for (version, expected) in [
        (
            schema::VERSION - 1,
            SchemaState::Older {
                found: schema::VERSION - 1,
            },
        ),
        (
            schema::VERSION + 1,
            SchemaState::Newer {
                found: schema::VERSION + 1,
            },
        ),
    ] {
        let set = format!("UPDATE latchwork.schema_version SET version = {version}");
        onlooker.0.batch_execute(&set).await.unwrap();
        assert_eq!(state().await, expected);
    }
    // What a newer version has changed is left alone.
    let newer = schema::install(&onlooker.0).await.unwrap_err();
    assert!(matches!(newer, SchemaError::Newer { .. }), "{newer}");
    let back = format!("UPDATE latchwork.schema_version SET version = {}", schema::VERSION);
    onlooker.0.batch_execute(&back).await.unwrap();
    onlooker
        .0
        .batch_execute("DROP TABLE latchwork.idempotency")
        .await
        .unwrap();
    assert_eq!(state().await, SchemaState::Missing);
    schema::install(&onlooker.0).await.unwrap();
    assert_whole(&onlooker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_table_a_check_says_how_to_make_it_and_works_once_it_is_there() {
    let cluster = Cluster::start().unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    for on_outage in [OnOutage::Open, OnOutage::Closed] {
        let limits = RateLimitsOptions::default().with_on_outage(on_outage);
        let rates = process(&cluster, patient().with_limits(limits)).await;
        for _ in 0..3 {
            let error = rates.check("key", rarely(5), 1).await.unwrap_err();
            assert!(matches!(error, RateError::Setup { .. }), "{error:?}");
            assert!(chain(&error).contains("latchwork schema install"), "{}", chain(&error));
        }
        schema::install(&onlooker.0).await.unwrap();
        assert!(rates.check("key", rarely(5), 1).await.unwrap().is_allowed());
        onlooker.0.batch_execute("DROP SCHEMA latchwork CASCADE").await.unwrap();
        assert!(rates.check("key", rarely(5), 1).await.is_err());
        schema::install(&onlooker.0).await.unwrap();
        assert!(rates.check("key", rarely(5), 1).await.unwrap().is_allowed());
        onlooker.0.batch_execute("DROP SCHEMA latchwork CASCADE").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_needs_what_the_docs_say_and_no_more() {
    let cluster = Cluster::start().unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    onlooker.0.batch_execute("CREATE ROLE shop LOGIN").await.unwrap();
    let url = cluster.url_for("shop", "postgres");
    let shop = Onlooker::new(&url).await;
    let forbidden = schema::install(&shop.0).await.unwrap_err();
    assert!(matches!(forbidden, SchemaError::Forbidden { .. }), "{forbidden:?}");
    assert!(forbidden.to_string().contains("CREATE on the database"), "{forbidden}");
    schema::install(&onlooker.0).await.unwrap();
    let forbidden = schema::check(&shop.0).await.unwrap_err();
    assert!(matches!(forbidden, SchemaError::Forbidden { .. }), "{forbidden:?}");
    let rates = connect(&url, quick()).await.rate_limits(patient());
    let error = rates.check("key", rarely(5), 1).await.unwrap_err();
    assert!(matches!(error, RateError::Setup { .. }), "{error:?}");
    assert!(chain(&error).contains("grant it USAGE"), "{}", chain(&error));
    let grants = "GRANT USAGE ON SCHEMA latchwork TO shop; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA latchwork TO shop";
    onlooker.0.batch_execute(grants).await.unwrap();
    assert!(rates.check("key", rarely(5), 1).await.unwrap().is_allowed());
    schema::install(&shop.0).await.unwrap();
    assert_whole(&shop).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_read_only_session_the_tables_are_looked_for_and_not_made() {
    let cluster = Cluster::start().unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    let read_only = "SET default_transaction_read_only = on";
    onlooker.0.batch_execute(read_only).await.unwrap();
    assert_eq!(schema::check(&onlooker.0).await.unwrap(), SchemaState::Missing);
    let refused = schema::install(&onlooker.0).await.unwrap_err();
    assert!(matches!(refused, SchemaError::ReadOnly { .. }), "{refused:?}");
    assert!(refused.to_string().contains("primary"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_installs_with_the_connection_settings_of_its_locks() {
    let cluster = Cluster::start().unwrap();
    let postgres = connect(&cluster.url(), quick()).await;
    assert_eq!(postgres.check_schema().await.unwrap(), SchemaState::Missing);
    postgres.install_schema().await.unwrap();
    postgres.install_schema().await.unwrap();
    assert_eq!(postgres.check_schema().await.unwrap(), SchemaState::Right);
    assert!(
        postgres
            .rate_limits(patient())
            .check("key", rarely(1), 1)
            .await
            .unwrap()
            .is_allowed()
    );
    cluster.stop(latchwork_harness::StopMode::Fast).unwrap();
    let error = postgres.install_schema().await.unwrap_err();
    assert!(matches!(error, SchemaError::Connect { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_need_no_table() {
    let cluster = Cluster::start().unwrap();
    let postgres = connect(&cluster.url(), quick()).await;
    let guard = postgres.locks().try_acquire("key").await.unwrap().unwrap();
    guard.release().await.unwrap();
    assert_eq!(loud(&cluster), Vec::<String>::new());
}
