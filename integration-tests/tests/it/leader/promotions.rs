//! Leaders across the promotion of a standby, which has no locks and a timeline of its own.

use latchwork_core::{
    fence::Fence,
    leader::{LeaderState, Leading},
    xact::FencedLimits,
};
use latchwork_harness::{Cluster, StopMode};
use latchwork_postgres::transaction::XactLockExt as _;

use super::{
    sessions::{Process, process},
    until, until_leader,
};
use crate::onlooker::{Onlooker, SOON, eventually, quick};

/// Whether a transaction that proves this fence can store something on a server.
async fn stores(url: &str, fence: &Fence) -> bool {
    let mut client = Onlooker::new(url).await.0;
    let transaction = client.transaction().await.unwrap();
    let proof = transaction.prove_fence(fence, FencedLimits::default()).within(SOON);
    if proof.await.is_err() {
        return false;
    }
    transaction
        .batch_execute("CREATE TABLE IF NOT EXISTS work (done int)")
        .await
        .unwrap();
    transaction.commit().await.is_ok()
}

/// Waits until one of them leads.
async fn leading_of(processes: &[&Process]) -> Leading {
    let mut leading = None;
    eventually("one leads", async || {
        let leads = processes.iter().filter(|process| process.candidate.is_leader());
        leading = leads.filter_map(|process| process.candidate.leading()).next();
        leading.is_some()
    })
    .await;
    leading.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failover_the_next_leader_has_a_greater_term_and_the_last_one_stores_nothing() {
    let primary = Cluster::start().unwrap();
    let standby = primary.standby().unwrap();
    let (hosts, ports) = (
        format!("{},{}", primary.host(), standby.host()),
        format!("{},{}", primary.port(), standby.port()),
    );
    let url = format!("host={hosts} port={ports} user=postgres dbname=postgres target_session_attrs=read-write");
    let (one, other) = (process(&url, quick()).await, process(&url, quick()).await);
    let mut fences = Vec::new();
    let mut last = None;
    for _ in 0..3 {
        let leading = leading_of(&[&one, &other]).await;
        assert!(Some(leading.term()) > last);
        assert!(stores(&primary.url(), &leading.fence()).await, "it leads");
        last = Some(leading.term());
        fences.push(leading.fence());
        for process in [&one, &other] {
            process.candidate.resign().await;
        }
    }
    let led = leading_of(&[&one, &other]).await;
    let term = led.term();
    assert!(Some(term) > last);
    fences.push(led.fence());
    let onlooker = Onlooker::new(&standby.url()).await;
    let (at, behind) = (
        primary.psql("SELECT pg_current_wal_lsn()").unwrap(),
        "pg_last_wal_replay_lsn()",
    );
    eventually("the standby has it all", async || {
        onlooker.is(&format!("{behind} >= '{}'", at.trim())).await
    })
    .await;
    primary.stop(StopMode::Immediate).unwrap();
    for process in [&one, &other] {
        until(&process.candidate, |state| !matches!(state, LeaderState::Leader(_))).await;
    }
    standby.promote().unwrap();
    let next = leading_of(&[&one, &other]).await;
    assert!(next.term() > term, "{} after {term}", next.term());
    assert!(next.term().timeline() > term.timeline());
    for fence in &fences {
        assert!(!stores(&standby.url(), fence).await, "a leader of the past");
    }
    assert!(stores(&standby.url(), &next.fence()).await);
}

/// The server that was replaced lives on, as it does where it was only cut off; so does its leader.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_of_a_server_that_was_replaced_stores_nothing_on_the_next_one() {
    let primary = Cluster::start().unwrap();
    let old = process(&primary.url(), quick()).await;
    until_leader(&old.candidate).await;
    let standby = primary.standby().unwrap();
    standby.promote().unwrap();
    // Nothing that happens on the old server now can make its terms greater.
    for _ in 0..20 {
        primary.psql("SELECT pg_current_xact_id()").unwrap();
    }
    let new = process(&standby.url(), quick()).await;
    until_leader(&new.candidate).await;
    let (was, is) = (old.candidate.leading().unwrap(), new.candidate.leading().unwrap());
    assert!(is.term() > was.term(), "{} beside {}", is.term(), was.term());
    assert!(is.term().timeline() > was.term().timeline());
    assert!(!stores(&standby.url(), &was.fence()).await);
    assert!(stores(&standby.url(), &is.fence()).await);
    old.candidate.shutdown().await;
    let again = process(&primary.url(), quick()).await;
    until_leader(&again.candidate).await;
    let late = again.candidate.leading().unwrap().term();
    assert!(late > was.term() && late < is.term(), "{late}");
}
