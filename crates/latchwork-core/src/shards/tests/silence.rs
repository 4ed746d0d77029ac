//! Servers that do not answer, or have no room, and intervals beyond the bounds.

use std::{sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};

use crate::{
    AcquireError,
    engine::{Announced, EngineError, EngineErrorKind},
    memory::MemoryServer,
    shards::{Shard, ShardEvent, Shards},
    testing::ScriptedEngine,
};

const A_MOMENT: Duration = Duration::from_millis(1);

/// Answers until a worker has the only shard, and has asked who else is there.
async fn with_a_shard(engine: &Arc<ScriptedEngine>, shards: &mut Shards) -> Shard {
    let mut asked = false;
    loop {
        sleep(A_MOMENT).await;
        if let Some(request) = engine.announced().filter(|request| request.reply.is_to_task()) {
            let grant = request.held.unwrap_or_else(|| engine.a_grant());
            let others = Ok(Vec::new());
            request.reply.send(Ok(Announced { grant, others }));
            asked = true;
        }
        if asked && !engine.has_nothing_to_do() {
            break;
        }
    }
    let request = engine.asked_for_slots();
    assert_eq!(request.reply.candidates().keys.len(), 1);
    request.reply.send(Ok(vec![(0, engine.a_grant())]));
    let Some(ShardEvent::Gained(shard)) = shards.next().await else {
        panic!("nothing is gained")
    };
    shard
}

#[tokio::test(start_paused = true)]
async fn leaving_and_closing_revoke_at_once_though_the_server_is_silent() {
    for closes in [false, true] {
        let (engine, locks, _hand) = ScriptedEngine::new();
        let mut shards = locks.shards("a", 1).unwrap().join();
        let shard = with_a_shard(&engine, &mut shards).await;
        // Until the next time that it has asked.
        let request = loop {
            sleep(Duration::from_secs(1)).await;
            if let Some(request) = engine.announced().filter(|request| request.reply.is_to_task()) {
                break request;
            }
        };
        assert!(!shard.is_revoked());
        if closes {
            let closing = tokio::spawn(async move { locks.close().await });
            timeout(Duration::from_millis(1), shard.revoked()).await.unwrap();
            closing.abort();
        } else {
            drop(shards.leave());
            assert!(shard.is_revoked(), "by the call itself");
        }
        drop(request);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_no_room_is_told_of_until_it_has() {
    let (engine, locks, _hand) = ScriptedEngine::new();
    let mut shards = locks.shards("a", 1).unwrap().join();
    assert!(shards.failure().is_none());
    let request = loop {
        sleep(A_MOMENT).await;
        if let Some(request) = engine.announced().filter(|request| request.reply.is_to_task()) {
            break request;
        }
    };
    let full = EngineError::new(EngineErrorKind::CapacityExceeded);
    request.reply.send(Err(full));
    while shards.failure().is_none() {
        sleep(A_MOMENT).await;
    }
    let failure = shards.failure().unwrap();
    assert!(
        matches!(&*failure, AcquireError::CapacityExceeded { .. }),
        "{failure:?}"
    );
    let _shard = with_a_shard(&engine, &mut shards).await;
    while shards.failure().is_some() {
        sleep(A_MOMENT).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_interval_beyond_the_bounds_is_one_within() {
    for interval in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        let server = MemoryServer::new();
        let locks = server.locks();
        let shards = locks.shards("a", 1).unwrap().with_rebalance_interval(interval);
        let mut shards = shards.join();
        let gained = timeout(Duration::from_secs(1), shards.next()).await.unwrap();
        assert!(matches!(gained, Some(ShardEvent::Gained(_))));
        // A loop without a pause would let no time pass.
        timeout(Duration::from_secs(60), sleep(Duration::from_secs(30)))
            .await
            .unwrap();
        let builder = format!("{:?}", locks.shards("a", 1).unwrap().with_rebalance_interval(interval));
        assert!(
            builder.contains("rebalance_interval: 10ms") || builder.contains("rebalance_interval: 3600s"),
            "{builder}"
        );
        drop(gained);
        shards.leave().await;
    }
}
