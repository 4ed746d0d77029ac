//! Who holds what, as the person on call sees it.

use std::time::{Duration, SystemTime};

use latchwork_core::{Key, Mode, Namespace, key::Registry};
use latchwork_harness::{Cluster, Installation};
use latchwork_postgres::{Config, Postgres, PostgresOptions, schema::SchemaState};

latchwork_core::keys! {
    mod keys in "shop" {
        REINDEX = "reindex";
    }
}

async fn connect(cluster: &Cluster, name: &str) -> Postgres {
    let options = PostgresOptions::default()
        .with_namespace(Namespace::new("shop").unwrap())
        .with_application_name(name);
    let config: Config = cluster.url().parse().unwrap();
    Postgres::connect(config, options).await.unwrap()
}

async fn holders_and_waiters_are_shown_with_name_and_identity(cluster: &Cluster) {
    let (holder, waiter) = (connect(cluster, "billing").await, connect(cluster, "reports").await);
    let guard = holder.locks().try_acquire("reindex").await.unwrap().unwrap();
    let pair = holder
        .locks()
        .try_acquire(Key::pair(-1, 7))
        .shared()
        .await
        .unwrap()
        .unwrap();
    let waiting = tokio::spawn(waiter.locks().acquire("reindex").within(Duration::from_secs(20)));

    let deadline = SystemTime::now() + Duration::from_secs(10);
    let seen = loop {
        let seen = holder.inspect(&keys::REGISTRY).await.unwrap();
        if !seen.waiters.is_empty() {
            break seen;
        }
        assert!(SystemTime::now() < deadline, "the waiter never appeared");
    };

    assert_eq!(guard.key(), keys::REINDEX);
    let held: Vec<_> = seen.holders_of(keys::REINDEX).collect();
    assert_eq!(held.len(), 1);
    assert_eq!(
        (held[0].name.as_deref(), held[0].mode),
        (Some("shop:reindex"), Mode::Exclusive)
    );
    let session = held[0].session.as_ref().unwrap();
    assert_eq!(session.identity.as_ref(), Some(holder.identity()));
    assert_eq!(session.user.as_deref(), Some("postgres"));
    assert!(session.since.unwrap() <= SystemTime::now());
    assert_eq!(
        seen.holders_of(pair.key())
            .map(|holder| holder.mode)
            .collect::<Vec<_>>(),
        [Mode::Shared]
    );

    let waits: Vec<_> = seen.waiters_for(keys::REINDEX).collect();
    assert_eq!(waits.len(), 1);
    assert_eq!(waits[0].session.identity.as_ref(), Some(waiter.identity()));
    assert_eq!(waits[0].blocked_by, [session.pid]);
    assert_eq!(waits[0].since.is_some(), cluster.installation().major() >= 14);

    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    pair.release().await.unwrap();
    assert!(holder.inspect(&Registry::new()).await.unwrap().holders.is_empty());
}

async fn a_holder_is_ended_and_nobody_who_holds_the_key_no_more(cluster: &Cluster) {
    let (holder, onlooker) = (connect(cluster, "billing").await, connect(cluster, "onlooker").await);
    let guard = holder.locks().try_acquire("reindex").await.unwrap().unwrap();
    let other = holder.locks().try_acquire("other").await.unwrap().unwrap();
    let seen = onlooker.inspect(&Registry::new()).await.unwrap();
    let (first, second) = (
        seen.holders_of(guard.key()).next().unwrap(),
        seen.holders_of(other.key()).next().unwrap(),
    );

    // Released meanwhile: its session is left alone.
    other.release().await.unwrap();
    assert!(!onlooker.end_holder(second).await.unwrap());
    assert!(guard.is_held());

    assert!(onlooker.end_holder(first).await.unwrap());
    tokio::time::timeout(Duration::from_secs(20), guard.lost())
        .await
        .unwrap();
    assert!(!onlooker.end_holder(first).await.unwrap());
}

async fn a_survey_tells_of_the_server_as_it_is(cluster: &Cluster) {
    let postgres = connect(cluster, "doctor").await;
    let survey = postgres.survey().await.unwrap();
    assert_eq!(survey.server.major(), cluster.installation().major());
    assert_eq!(
        (survey.tls, survey.tcp, survey.role.as_str()),
        (None, false, "postgres")
    );
    assert_eq!(survey.schema, Some(SchemaState::Missing));
    assert!(survey.sees_others && survey.ends_others && survey.may_install);
    assert!(!survey.may_use_schema, "there is nothing to use");
    assert!(survey.locks_in_use < 100 && survey.clock.0 < Duration::from_secs(1));
    let timeout = |name: &str| survey.timeouts.iter().find(|timeout| timeout.name == name);
    assert_eq!(timeout("statement_timeout").unwrap().for_us, None);
    assert_eq!(
        timeout("lock_timeout").unwrap().by_default,
        Some(Duration::from_secs(7))
    );
    if survey.server.major() >= 14 {
        let lease = timeout("idle_session_timeout").unwrap();
        assert_eq!((lease.by_default, lease.for_us), (None, Some(Duration::from_secs(15))));
    }
    let server = survey.sessions.iter().find(|room| room.of == "server").unwrap();
    assert!((1..20).contains(&server.taken) && server.limit == 97, "{server:?}");
}

#[tokio::test]
async fn every_major_shows_holders_and_waiters() {
    for installation in Installation::all() {
        let cluster = Cluster::builder()
            .installation(installation)
            .setting("lock_timeout", "7s")
            .start()
            .unwrap();
        holders_and_waiters_are_shown_with_name_and_identity(&cluster).await;
        a_holder_is_ended_and_nobody_who_holds_the_key_no_more(&cluster).await;
        a_survey_tells_of_the_server_as_it_is(&cluster).await;
    }
}
