//! Statements, and ends: COMMIT, ROLLBACK, and neither.

use latchwork_harness::{PgBouncer, PoolMode};
use latchwork_http::tx::{SqlValue, TxError, TxProvider as _, TxRequest};
use latchwork_sea_orm::{Key, PooledTx, SeaOrmTx, XactLockExt as _};
use sea_orm::{ConnectionTrait as _, DatabaseConnection, TransactionTrait as _};

use super::{KEY, begin, begin_in_a_hurry, provider};
use crate::support::{self, SOON, World, pool};

#[tokio::test]
async fn a_statement_takes_and_gives_texts_bytes_and_numbers() {
    let world = World::new().await;
    let provider = provider(&world, 1).await;
    let mut tx = begin(&provider, TxRequest::new(KEY)).await.unwrap();
    let values = [
        SqlValue::Text("a text, ö"),
        SqlValue::Bytes(&[0, 255, 7]),
        SqlValue::Int(-5),
    ];
    let sql = "SELECT $1, $2, ($3 + 1)::text, NULL::bytea";
    let row = SeaOrmTx::query(&mut tx, sql, &values).await.unwrap().unwrap();
    let row: Vec<_> = row.iter().map(Option::as_deref).collect();
    assert_eq!(
        row,
        [Some("a text, ö".as_bytes()), Some(&[0, 255, 7]), Some(b"-4"), None]
    );
    for nothing in [
        "SELECT 'a' WHERE false",
        "CREATE TEMP TABLE t (n int) ON COMMIT DROP",
        "INSERT INTO t VALUES (1), (2)",
    ] {
        assert!(
            SeaOrmTx::query(&mut tx, nothing, &[]).await.unwrap().is_none(),
            "{nothing}"
        );
    }
    let row = SeaOrmTx::query(&mut tx, "DELETE FROM t RETURNING n::text", &[])
        .await
        .unwrap()
        .unwrap();
    assert_eq!(row, [Some("1".into())]);
    for (fails, is_right) in [
        ("SELECT 1", is_other as fn(&TxError) -> bool),
        ("SELECT * FROM nowhere", |error| matches!(error, TxError::Setup(_))),
        ("SELECT 'a'", is_aborted),
    ] {
        let error = SeaOrmTx::query(&mut tx, fails, &[]).await.unwrap_err();
        assert!(is_right(&error), "{fails}: {error:?}");
    }
    let error = SeaOrmTx::commit(tx).await.unwrap_err();
    assert!(is_aborted(&error), "{error:?}");
}

fn is_other(error: &TxError) -> bool {
    matches!(error, TxError::Other(_))
}

fn is_aborted(error: &TxError) -> bool {
    matches!(error, TxError::Aborted(_))
}

fn is_unknown(error: &TxError) -> bool {
    matches!(error, TxError::OutcomeUnknown(_))
}

async fn commits_are_told_from_none(world: &World, url: &str) {
    world
        .cluster
        .psql("CREATE TABLE stored (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        .unwrap();
    let db: DatabaseConnection = pool(url, 2).await.into();
    let provider = SeaOrmTx::from(db.clone());
    for (work, wrong) in [
        (&["INSERT INTO stored VALUES (1)"][..], None),
        (
            &["INSERT INTO stored VALUES (1)"],
            Some(is_aborted as fn(&TxError) -> bool),
        ),
        (&["INSERT INTO stored VALUES (2)", "SELECT 1 / 0"], Some(is_aborted)),
        (&["INSERT INTO stored VALUES (3)", "ROLLBACK"], Some(is_unknown)),
    ] {
        let tx = begin(&provider, TxRequest::new(KEY)).await.unwrap();
        assert!(begin(&provider, TxRequest::new(KEY)).await.is_none());
        for statement in work {
            let done = tx.execute_unprepared(statement).await;
            assert_eq!(done.is_err(), statement.contains('/'));
        }
        let committed = SeaOrmTx::commit(tx).await;
        match (&committed, wrong) {
            (Ok(()), None) => {}
            (Err(error), Some(is_right)) if is_right(error) => {}
            _ => panic!("{work:?}: {committed:?}"),
        }
        assert_eq!(world.all_seen().await, (0, 0));
    }
    assert_eq!(world.value("SELECT string_agg(n::text, ',') FROM stored").await, "1");
    // What is rolled back, and what is dropped.
    for drops in [false, true] {
        let tx = begin(&provider, TxRequest::new(KEY)).await.unwrap();
        tx.execute_unprepared("INSERT INTO stored VALUES (4)").await.unwrap();
        if drops {
            drop(tx);
        } else {
            SeaOrmTx::rollback(tx).await.unwrap();
            assert_eq!(world.all_seen().await, (0, 0));
        }
        world.comes_to_rest().await;
    }
    // A statement that does not end is ended, after the request's limit.
    let tx = begin_in_a_hurry(&provider).await;
    leaves_running(world, &tx).await;
    let error = SeaOrmTx::rollback(tx).await.unwrap_err();
    assert!(matches!(error, TxError::Unavailable(_)), "{error:?}");
    world.comes_to_rest().await;
    support::assert_clean(&db).await;
    assert_eq!(world.value("SELECT string_agg(n::text, ',') FROM stored").await, "1");
}

#[tokio::test]
async fn commits_are_told_from_none_and_an_end_ends() {
    let world = World::new().await;
    commits_are_told_from_none(&world, &world.cluster.url()).await;
}

#[tokio::test]
async fn it_works_through_a_pooler_in_transaction_mode() {
    let world = World::new().await;
    let pooler = PgBouncer::builder(&world.cluster, PoolMode::Transaction)
        .setting("ignore_startup_parameters", "extra_float_digits")
        .start()
        .unwrap();
    commits_are_told_from_none(&world, &pooler.url()).await;
}

/// Drops a statement that does not end, once the server is in it.
async fn leaves_running(world: &World, tx: &PooledTx) {
    let running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(600)'";
    tokio::select! {
        biased;
        ended = tx.execute_unprepared("SELECT pg_sleep(600)") => panic!("{ended:?}"),
        () = support::eventually("it runs", async || world.value(running).await == "1") => {}
    }
}

/// The place in the pool too, when there is only one.
#[tokio::test]
async fn a_statement_that_does_not_end_frees_the_only_connection() {
    let world = World::new().await;
    let db = world.database(1).await;
    let provider = SeaOrmTx::from(db.clone());
    for commits in [false, true] {
        let tx = begin_in_a_hurry(&provider).await;
        leaves_running(&world, &tx).await;
        if commits {
            let error = SeaOrmTx::commit(tx).await.unwrap_err();
            assert!(is_unknown(&error), "{error:?}");
        } else {
            let error = SeaOrmTx::rollback(tx).await.unwrap_err();
            assert!(matches!(error, TxError::Unavailable(_)), "{error:?}");
        }
        world.comes_to_rest().await;
        support::assert_clean(&db).await;
    }
    // The layers do not drop a statement of theirs; it gives up by itself.
    let mut tx = begin_in_a_hurry(&provider).await;
    let error = SeaOrmTx::query(&mut tx, "SELECT pg_sleep(600)::text", &[])
        .await
        .unwrap_err();
    assert!(matches!(error, TxError::Unavailable(_)), "{error:?}");
    drop(SeaOrmTx::rollback(tx).await);
    world.comes_to_rest().await;
}

/// A trigger that is deferred waits inside COMMIT for longer than the request's limit.
#[tokio::test]
async fn a_commit_that_is_slow_is_let_go_on() {
    let world = World::new().await;
    let makes = "CREATE TABLE stored (n int); CREATE FUNCTION blocks() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM pg_advisory_xact_lock(99); RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER blocks AFTER INSERT ON stored DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION blocks()";
    world.cluster.psql(makes).unwrap();
    let (provider, blocker) = (
        provider(&world, 1).await,
        world.database(1).await.begin().await.unwrap(),
    );
    assert!(blocker.try_xact_lock(Key::bigint(99)).await.unwrap());
    let tx = begin_in_a_hurry(&provider).await;
    tx.execute_unprepared("INSERT INTO stored VALUES (1)").await.unwrap();
    let error = SeaOrmTx::commit(tx).await.unwrap_err();
    assert!(is_unknown(&error), "{error:?}");
    world.becomes(Key::bigint(99), (1, 1)).await;
    blocker.commit().await.unwrap();
    world.comes_to_rest().await;
    assert_eq!(world.value("SELECT n FROM stored").await, "1");
}

#[tokio::test]
async fn a_backend_that_is_killed_stores_nothing_and_is_not_called_committed() {
    let world = World::new().await;
    let db = world.database(1).await;
    let provider = SeaOrmTx::from(db.clone());
    for told in [true, false] {
        let mut tx = begin(&provider, TxRequest::new(KEY).with_answer_within(SOON))
            .await
            .unwrap();
        world.terminate(KEY, true).await;
        if told {
            let error = SeaOrmTx::query(&mut tx, "SELECT 'a'", &[]).await.unwrap_err();
            assert!(matches!(error, TxError::Unavailable(_)), "{error:?}");
            SeaOrmTx::rollback(tx).await.unwrap_err();
        } else {
            let error = SeaOrmTx::commit(tx).await.unwrap_err();
            assert!(is_unknown(&error), "{error:?}");
        }
        world.comes_to_rest().await;
        support::assert_clean(&db).await;
    }
}
