//! Transactions within a body's.

use std::sync::Arc;

use latchwork_core::Key;

use super::{
    Body, Failure, PATIENT, body,
    body::{count_one, holds},
    fresh_key,
    trial::Trial,
};

promises! {
    everywhere:
        a_lock_under_a_savepoint_goes_when_it_is_rolled_back_to_and_stays_when_it_is_released,
        what_a_savepoint_has_undone_does_no_harm;
    directly:
}

async fn a_lock_under_a_savepoint_goes_when_it_is_rolled_back_to_and_stays_when_it_is_released(trial: Arc<Trial>) {
    async fn has(tx: &mut dyn super::Tx, count: u32) -> Result<(), Failure> {
        let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()";
        holds(tx, &format!("({locks}) = {count}")).await
    }
    fn nested(key: Key, is_released: bool) -> Body {
        body(async move |tx| {
            tx.lock(key.into(), PATIENT).await?;
            has(tx, 2).await?;
            if is_released {
                Ok(())
            } else {
                Err(Failure::Whim("to be undone"))
            }
        })
    }
    let library = trial.pool(1);
    let (outer, inner) = (fresh_key(), fresh_key());
    let saves = body(async move |tx| {
        tx.lock(outer.into(), PATIENT).await?;
        let undone = tx.nested(nested(inner, false)).await;
        assert!(matches!(undone, Err(Failure::Whim(_))), "{undone:?}");
        has(tx, 1).await?;
        tx.nested(nested(inner, true)).await?;
        has(tx, 2).await
    });
    library.plain(saves.clone()).await.unwrap();
    library.locked(outer.into(), PATIENT, saves).await.unwrap();
    for key in [outer, inner] {
        assert_eq!(trial.seen(key).await, (0, 0));
    }
    trial.is_clean(&*library).await;
}

async fn what_a_savepoint_has_undone_does_no_harm(trial: Arc<Trial>) {
    let (library, table) = (trial.pool(1), trial.counter().await);
    let counts = table.clone();
    let saves = body(async move |tx| {
        let (inner, fails) = (counts.clone(), counts.clone());
        tx.nested(body(async move |tx| count_one(tx, &inner).await)).await?;
        let undone = tx.nested(body(async move |tx| {
            count_one(tx, &fails).await?;
            tx.run("SELECT 1/0").await
        }));
        assert!(undone.await.is_err());
        count_one(tx, &counts).await
    });
    library.locked(fresh_key().into(), PATIENT, saves).await.unwrap();
    assert_eq!(trial.count(&table).await, 2);
    trial.is_clean(&*library).await;
}
