//! What handlers do, whatever the framework.

use std::ops::Deref;

use latchwork_harness::http::Stage;
use latchwork_postgres::transaction::PooledTx;

/// Stores a charge.
pub(super) async fn insert(tx: &PooledTx) {
    tx.execute("INSERT INTO charges (id) VALUES (1)", &[]).await.unwrap();
}

/// Stores a charge when the test lets it go on.
pub(super) async fn charge(stage: &Stage, tx: &PooledTx) {
    insert(tx).await;
    stage.play().await;
}

/// Runs a statement that takes longer than any test.
pub(super) async fn asleep_in_the_server(tx: &PooledTx) {
    insert(tx).await;
    tx.batch_execute("SELECT pg_sleep(600)").await.unwrap();
}

/// Answers when its connection has ended, as if nothing had happened.
pub(super) async fn lost(stage: &Stage, tx: &PooledTx) {
    insert(tx).await;
    stage.play().await;
    while !tx.is_closed() {
        tokio::task::yield_now().await;
    }
}

/// Leaves its transaction to a task, which ends when the test lets it.
pub(super) async fn spawned(stage: Stage, tx: impl Deref<Target = PooledTx> + Send + 'static) {
    insert(&tx).await;
    tokio::spawn(async move {
        stage.play().await;
        drop(tx);
    });
}

/// Adds one to what was read, a while later.
pub(super) async fn add(tx: &PooledTx) {
    let n: i64 = tx.query_one("SELECT n FROM counter", &[]).await.unwrap().get(0);
    for _ in 0..5 {
        tokio::task::yield_now().await;
    }
    tx.execute("UPDATE counter SET n = $1", &[&(n + 1)]).await.unwrap();
}

/// What it stores fails at COMMIT, and not before.
pub(super) async fn orphan(tx: &PooledTx) {
    let orphan = "INSERT INTO charges (id, order_id) VALUES (1, 999)";
    tx.execute(orphan, &[]).await.unwrap();
}

/// Goes on after an error of the database.
pub(super) async fn swallowed(tx: &PooledTx) {
    insert(tx).await;
    assert!(tx.batch_execute("SELECT 1 / 0").await.is_err());
}

/// Undoes its error.
pub(super) async fn savepoint(tx: &PooledTx) {
    insert(tx).await;
    tx.batch_execute("SAVEPOINT before").await.unwrap();
    assert!(tx.batch_execute("SELECT 1 / 0").await.is_err());
    tx.batch_execute("ROLLBACK TO before").await.unwrap();
}

/// Ends the transaction, which is not its own to end.
pub(super) async fn ended(how: &str, tx: &PooledTx) {
    insert(tx).await;
    tx.batch_execute(how).await.unwrap();
    insert(tx).await;
}

pub(super) async fn panics(tx: &PooledTx) {
    insert(tx).await;
    panic!("as the test wants");
}

/// Stores two rows, one after the other, that make no sense alone.
pub(super) async fn two_rows(id: i64, tx: &PooledTx) {
    for _ in 0..2 {
        tx.execute("INSERT INTO charges (id) VALUES ($1)", &[&id])
            .await
            .unwrap();
    }
}

/// An id that no test gives.
pub(super) fn random_id() -> i64 {
    fastrand::i64(..0)
}
