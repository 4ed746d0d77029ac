//! What handlers do, whatever the framework.

use std::ops::DerefMut;

use latchwork_harness::http::Stage;

use crate::http::library::{Library, Tx};

/// Stores a charge.
pub(super) async fn insert<L: Library>(tx: &mut Tx<L>) {
    L::run(tx, "INSERT INTO charges (id) VALUES (1)").await.unwrap();
}

/// Stores a charge when the test lets it go on.
pub(super) async fn charge<L: Library>(stage: &Stage, tx: &mut Tx<L>) {
    insert::<L>(tx).await;
    stage.play().await;
}

/// Runs a statement that takes longer than any test.
pub(super) async fn asleep_in_the_server<L: Library>(tx: &mut Tx<L>) {
    insert::<L>(tx).await;
    L::run(tx, "SELECT pg_sleep(600)").await.unwrap();
}

/// Answers when its connection has ended, as if nothing had happened.
pub(super) async fn lost<L: Library>(stage: &Stage, tx: &mut Tx<L>) {
    insert::<L>(tx).await;
    stage.play().await;
    while L::run(tx, "SELECT 1").await.is_ok() {}
}

/// Leaves its transaction to a task, which ends when the test lets it.
pub(super) async fn spawned<L: Library>(stage: Stage, mut tx: impl DerefMut<Target = Tx<L>> + Send + 'static) {
    insert::<L>(&mut tx).await;
    tokio::spawn(async move {
        stage.play().await;
        drop(tx);
    });
}

/// Adds one to what was read, a while later.
pub(super) async fn add<L: Library>(tx: &mut Tx<L>) {
    let n = L::number(tx, "SELECT n FROM counter").await.unwrap();
    for _ in 0..5 {
        tokio::task::yield_now().await;
    }
    let update = format!("UPDATE counter SET n = {}", n + 1);
    L::run(tx, &update).await.unwrap();
}

/// What it stores fails at COMMIT, and not before.
pub(super) async fn orphan<L: Library>(tx: &mut Tx<L>) {
    let orphan = "INSERT INTO charges (id, order_id) VALUES (1, 999)";
    L::run(tx, orphan).await.unwrap();
}

/// Goes on after an error of the database.
pub(super) async fn swallowed<L: Library>(tx: &mut Tx<L>) {
    insert::<L>(tx).await;
    assert!(L::run(tx, "SELECT 1 / 0").await.is_err());
}

/// Undoes its error.
pub(super) async fn savepoint<L: Library>(tx: &mut Tx<L>) {
    insert::<L>(tx).await;
    L::run(tx, "SAVEPOINT before").await.unwrap();
    assert!(L::run(tx, "SELECT 1 / 0").await.is_err());
    L::run(tx, "ROLLBACK TO before").await.unwrap();
}

/// Ends the transaction, which is not its own to end.
pub(super) async fn ended<L: Library>(how: &str, tx: &mut Tx<L>) {
    insert::<L>(tx).await;
    L::run(tx, how).await.unwrap();
    insert::<L>(tx).await;
}

pub(super) async fn panics<L: Library>(tx: &mut Tx<L>) {
    insert::<L>(tx).await;
    panic!("as the test wants");
}

/// Stores two rows, one after the other, that make no sense alone.
pub(super) async fn two_rows<L: Library>(id: i64, tx: &mut Tx<L>) {
    for _ in 0..2 {
        let row = format!("INSERT INTO charges (id) VALUES ({id})");
        L::run(tx, &row).await.unwrap();
    }
}

/// An id that no test gives.
pub(super) fn random_id() -> i64 {
    fastrand::i64(..0)
}
