//! Futures that are dropped at every place where they wait.

use diesel::QueryResult;
use diesel_async::{AsyncConnection as _, AsyncPgConnection};
use latchwork_diesel_async::LockedTransactionExt;

use crate::support::{
    Drops, becomes, connection, count, count_one, counter, dropped, end, fresh_key, holder, left, patient, polled,
};

/// More than any of them needs, on a machine that wakes for everything by itself.
const MOST: usize = 400;

#[tokio::test]
async fn on_a_lent_connection_nothing_is_left_even_if_it_is_not_used_again() {
    let (key, table) = (fresh_key(), counter());
    for drops in [Drops::AtOnce, Drops::WhenWoken] {
        let mut done = None;
        for polls in 0..MOST {
            let mut one = connection().await;
            let before = count(&table);
            let work = one.locked_transaction(key, patient(), async |tx| count_one(tx, &table).await);
            done = dropped(polls, drops, work).await;
            becomes(key, (0, 0)).await;
            assert_eq!(left(&mut one).await, 0, "{drops:?} after {polls} polls");
            one.transaction(async |_| QueryResult::Ok(())).await.unwrap();
            if let Some(done) = &done {
                done.as_ref().unwrap();
                assert_ne!(count(&table), before);
                break;
            }
        }
        assert!(done.is_some(), "it takes more polls than that");
    }
}

/// In a transaction within the body too, in whose midst diesel-async takes the connection for broken.
#[tokio::test]
async fn on_a_lent_connection_nothing_is_left_of_a_nested_transaction() {
    let (key, table) = (fresh_key(), counter());
    let mut done = None;
    for polls in 0..MOST {
        let mut one = connection().await;
        let body = async |tx: &mut AsyncPgConnection| tx.transaction(async |tx| count_one(tx, &table).await).await;
        done = polled(polls, one.locked_transaction(key, patient(), body)).await;
        becomes(key, (0, 0)).await;
        assert_eq!(left(&mut one).await, 0, "after {polls} polls");
        one.transaction(async |_| QueryResult::Ok(())).await.unwrap();
        if let Some(done) = &done {
            done.as_ref().unwrap();
            break;
        }
    }
    assert!(done.is_some(), "it takes more polls than that");
}

#[tokio::test]
async fn in_a_queue_a_lent_connection_is_free_after_the_slice() {
    let (mut one, key) = (connection().await, fresh_key());
    let first = holder(key).await;
    let body = async |_: &mut AsyncPgConnection| -> QueryResult<()> { panic!("it runs") };
    for polls in 0..8 {
        assert!(
            polled(polls, one.locked_transaction(key, patient(), body))
                .await
                .is_none()
        );
        becomes(key, (1, 0)).await;
        assert_eq!(left(&mut one).await, 0, "after {polls} polls");
    }
    end(first).await;
}
