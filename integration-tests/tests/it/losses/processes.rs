//! Processes that die or stand still.

use std::time::{Duration, Instant};

use latchwork_harness::{Cluster, Proxy};

use super::assert_works;
use crate::holders::Holder;
use crate::onlooker::{Onlooker, SOON, connect, eventually, majors, quick};

/// After so long without a word the server ends a session that has the time limits of `quick`.
const SILENCE: Duration = Duration::from_millis(2_250);
const TRUST: Duration = Duration::from_millis(750);

#[tokio::test(flavor = "multi_thread")]
async fn the_locks_of_a_process_that_was_killed_are_free_within_a_second() {
    let cluster = Cluster::start().unwrap();
    let postgres = connect(&cluster.url(), quick()).await;
    let onlooker = Onlooker::new(&cluster.url()).await;
    let mut holder = Holder::start(&cluster.url());
    for _ in 0..3 {
        holder.ask("acquire job", "acquired");
        assert!(postgres.locks().try_acquire("job").await.unwrap().is_none());
        let waiting = tokio::spawn(postgres.locks().acquire("job").within(SOON));
        onlooker.waiter().await;
        let begun = Instant::now();
        holder.kill();
        let guard = waiting.await.unwrap().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        guard.release().await.unwrap();
        holder = Holder::start(&cluster.url());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_killed_while_it_waits_keeps_nobody_else_from_the_key() {
    for installation in majors() {
        println!("PostgreSQL {}", installation.version());
        let cluster = Cluster::builder().installation(installation).start().unwrap();
        let (one, other) = (
            connect(&cluster.url(), quick()).await,
            connect(&cluster.url(), quick()).await,
        );
        let onlooker = Onlooker::new(&cluster.url()).await;
        let guard = one.locks().try_acquire("job").await.unwrap().unwrap();
        let mut dying = Holder::start(&cluster.url());
        dying.tell("acquire job");
        onlooker.waiter().await;
        let waiting = tokio::spawn(other.locks().acquire("job").within(SOON));
        eventually("both wait", async || onlooker.queued().await == 2).await;
        dying.kill();
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        eventually("nothing is held", async || {
            onlooker.held().await + onlooker.queued().await == 0
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_stands_still_is_put_aside_and_believes_nothing_when_it_goes_on() {
    for installation in majors().into_iter().filter(|installation| installation.major() >= 14) {
        println!("PostgreSQL {}", installation.version());
        let cluster = Cluster::builder().installation(installation).start().unwrap();
        let postgres = connect(&cluster.url(), quick()).await;
        let onlooker = Onlooker::new(&cluster.url()).await;
        let mut holder = Holder::start(&cluster.url());
        holder.ask("acquire job", "acquired");
        assert_eq!(holder.ask("held", "held "), "true");
        let waiting = tokio::spawn(postgres.locks().acquire("job").within(SOON));
        onlooker.waiter().await;
        let begun = Instant::now();
        holder.stop();
        let guard = waiting.await.unwrap().unwrap();
        let elapsed = begun.elapsed();
        // Its last word may have come a ping interval before it was stopped.
        assert!(
            elapsed > TRUST,
            "let in after {elapsed:?}, while the stopped one may still have believed"
        );
        assert!(elapsed < SILENCE + Duration::from_secs(2), "{elapsed:?}");
        // Asked before it goes on, so that this is the first thing it does.
        holder.tell("held");
        holder.go_on();
        assert_eq!(holder.hear("held "), "false");
        holder.hear("lost");
        assert!(guard.is_held());
        assert_eq!(holder.ask("release", "released "), "false");
        assert_eq!(holder.ask("try job", "tried "), "false");
        guard.release().await.unwrap();
        holder.ask("acquire job", "acquired");
        assert_eq!(holder.ask("release", "released "), "true");
        assert_works(&postgres.locks(), &onlooker).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_stands_still_for_a_moment_goes_on_with_its_lock() {
    let cluster = Cluster::start().unwrap();
    let postgres = connect(&cluster.url(), quick()).await;
    let proxy = Proxy::start(cluster.endpoint()).unwrap();
    let mut holder = Holder::start(&proxy.url());
    holder.ask("acquire job", "acquired");
    holder.stop();
    // Longer than it trusts, shorter than the server does: there is nothing to wait for but the time itself.
    tokio::time::sleep(TRUST + Duration::from_millis(250)).await;
    // Or the server would confirm it before the process comes to be asked.
    proxy.freeze();
    holder.tell("held");
    holder.go_on();
    assert_eq!(holder.hear("held "), "false", "nothing has confirmed it yet");
    proxy.thaw();
    eventually("it is confirmed", async || holder.ask("held", "held ") == "true").await;
    assert!(postgres.locks().try_acquire("job").await.unwrap().is_none());
    assert_eq!(holder.ask("release", "released "), "true");
}
