//! Candidates of one process each, whose sessions and networks fail.

use std::time::{Duration, Instant};

use latchwork_core::{
    key::Registry,
    leader::{Candidate, LeaderState, Transition, Transitions},
    xact::FencedLimits,
};
use latchwork_harness::{Cluster, Proxy};
use latchwork_postgres::{Granted, Postgres, PostgresOptions, transaction::XactLockExt as _};

use super::{until, until_leader};
use crate::onlooker::{Onlooker, SOON, assert_quiet, connect, eventually, majors, quick};

pub(super) struct Process {
    postgres: Postgres,
    pub(super) candidate: Candidate,
}

pub(super) async fn process(url: &str, options: PostgresOptions) -> Process {
    let postgres = connect(url, options).await;
    let candidate = postgres.locks().leader("a").campaign().unwrap();
    Process { postgres, candidate }
}

async fn next(transitions: &mut Transitions) -> LeaderState {
    match tokio::time::timeout(SOON, transitions.next()).await.expect("soon") {
        Some(Transition::To(state)) => state,
        other => panic!("{other:?}"),
    }
}

/// Nobody is woken by a follower: its wait goes on in slices that end without an error.
#[tokio::test]
async fn on_every_major_one_of_three_leads_and_followers_are_not_heard_of_in_the_log() {
    for installation in majors() {
        println!("PostgreSQL {}", installation.version());
        let cluster = Cluster::builder().installation(installation).start().unwrap();
        let onlooker = Onlooker::new(&cluster.url()).await;
        let options = || quick().with_wait_slice(Duration::from_millis(50));
        let leads = process(&cluster.url(), options()).await;
        let mut term = until_leader(&leads.candidate).await.term();
        let follows = [
            process(&cluster.url(), options()).await,
            process(&cluster.url(), options()).await,
        ];
        eventually("both queue", async || onlooker.queued().await == 2).await;
        let asks = "SELECT min(query_start) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        let first = onlooker.value(asks).await;
        eventually("they ask again", async || {
            let now = onlooker.value(asks).await;
            !now.is_empty() && now > first
        })
        .await;
        assert!(leads.candidate.is_leader());
        assert!(follows.iter().all(|process| !process.candidate.is_leader()));
        leads.candidate.shutdown().await;
        assert!(!leads.candidate.is_leader());
        eventually("another leads", async || {
            follows.iter().filter(|process| process.candidate.is_leader()).count() == 1
        })
        .await;
        for process in &follows {
            if let Some(next) = process.candidate.leading() {
                assert!(Some(next.term()) > term);
                term = Some(next.term());
            }
            process.candidate.shutdown().await;
        }
        eventually("nothing is held", async || onlooker.held().await == 0).await;
        for process in follows.into_iter().chain([leads]) {
            process.postgres.locks().close().await;
        }
        assert_quiet(&cluster);
    }
}

#[tokio::test]
async fn everybody_can_tell_who_leads_since_when_and_under_which_term() {
    let cluster = Cluster::start().unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    let options = quick().with_application_name("billing");
    let leads = process(&cluster.url(), options).await;
    let term = until_leader(&leads.candidate).await.term();
    let observer = connect(&cluster.url(), quick()).await;
    let observes = observer.locks().leader("a").ineligible().campaign().unwrap();
    let incumbent = observes.leader().await.unwrap().unwrap();
    assert_eq!(incumbent.term, term);
    assert!(incumbent.since.unwrap().elapsed().unwrap() < SOON, "{incumbent:?}");
    assert!(incumbent.identity.starts_with("billing#"), "{incumbent:?}");
    assert_eq!(incumbent.host, None, "it is on a unix socket");
    let inspection = observer.inspect(&Registry::new()).await.unwrap();
    let holder = inspection.holders_of(leads.candidate.key()).next().unwrap();
    let granted: Granted = holder.session.as_ref().unwrap().granted.unwrap();
    assert_eq!(Some(granted.term), term);
    leads.candidate.shutdown().await;
    assert_eq!(observes.leader().await.unwrap(), None);
    let marked = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'latchwork:billing#%@%'";
    eventually("its session says so no more", async || {
        onlooker.number(marked).await == 0
    })
    .await;
}

#[tokio::test]
async fn a_leader_whose_session_is_ended_knows_at_once_and_leads_again_under_another_term() {
    let cluster = Cluster::start().unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    let leads = process(&cluster.url(), quick()).await;
    let mut transitions = leads.candidate.transitions();
    let first = until_leader(&leads.candidate).await.term().unwrap();
    let fence = leads.candidate.leading().unwrap().fence();
    onlooker
        .value(&format!("SELECT pg_terminate_backend({})", onlooker.holder().await))
        .await;
    let mut seen = Vec::new();
    let second = loop {
        seen.push(next(&mut transitions).await);
        if let [.., LeaderState::Leader(term)] = seen[..]
            && term != first
        {
            break term;
        }
    };
    use LeaderState as Is;
    let leads_again = [
        Is::Follower,
        Is::Leader(first),
        Is::Lost(first),
        Is::Follower,
        Is::Leader(second),
    ];
    assert!(leads_again.ends_with(&seen) || seen == leads_again, "{seen:?}");
    assert!(second > first);
    let mut client = Onlooker::new(&cluster.url()).await.0;
    let transaction = client.transaction().await.unwrap();
    let proof = transaction
        .prove_fence(&fence, FencedLimits::default())
        .within(SOON)
        .await;
    assert!(proof.is_err(), "a leader of the past stores nothing");
}

#[tokio::test]
async fn in_a_network_that_is_frozen_for_a_moment_a_leader_is_suspended_and_leads_on() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(cluster.endpoint()).unwrap();
    let leads = process(&proxy.url(), quick()).await;
    let term = until_leader(&leads.candidate).await.term().unwrap();
    let mut transitions = leads.candidate.transitions();
    assert_eq!(next(&mut transitions).await, LeaderState::Leader(term));
    let leading = leads.candidate.leading().unwrap();
    proxy.freeze();
    assert_eq!(next(&mut transitions).await, LeaderState::Suspended(term));
    assert!(!leads.candidate.is_leader() && !leading.is_leader());
    proxy.thaw();
    leading.confirmed().await.unwrap();
    assert_eq!(next(&mut transitions).await, LeaderState::Leader(term));
    assert!(leads.candidate.is_leader());
}

#[tokio::test]
async fn a_leader_that_is_cut_off_believes_in_itself_no_more_when_the_next_one_leads() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(cluster.endpoint()).unwrap();
    let leads = process(&proxy.url(), quick()).await;
    until_leader(&leads.candidate).await;
    let follows = process(&cluster.url(), quick()).await;
    let onlooker = Onlooker::new(&cluster.url()).await;
    eventually("it queues", async || onlooker.queued().await == 1).await;
    proxy.freeze();
    let frozen = Instant::now();
    let mut follows_until = follows.candidate.watch();
    while !follows.candidate.is_leader() {
        assert!(frozen.elapsed() < SOON);
        let _ = tokio::time::timeout(Duration::from_millis(5), follows_until.changed()).await;
        assert!(!(follows.candidate.is_leader() && leads.candidate.is_leader()));
    }
    until(&leads.candidate, |state| !matches!(state, LeaderState::Leader(_))).await;
    proxy.thaw();
    eventually("it follows", async || leads.candidate.state() == LeaderState::Follower).await;
    assert!(follows.candidate.is_leader() && !leads.candidate.is_leader());
}

#[tokio::test]
async fn a_server_that_is_away_is_told_of_and_campaigned_at_again() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(cluster.endpoint()).unwrap();
    let one = process(&proxy.url(), quick()).await;
    until_leader(&one.candidate).await;
    proxy.refuse();
    proxy.cut();
    eventually("why is told", async || one.candidate.failure().is_some()).await;
    assert!(one.candidate.failure().unwrap().is_outage());
    assert!(one.candidate.leader().await.is_err());
    proxy.thaw();
    until_leader(&one.candidate).await;
    assert!(one.candidate.failure().is_none());
}

#[tokio::test]
async fn who_would_rather_leave_it_to_others_comes_after_them() {
    let cluster = Cluster::start().unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    let leads = process(&cluster.url(), quick()).await;
    until_leader(&leads.candidate).await;
    let postgres = connect(&cluster.url(), quick()).await;
    let delay = Duration::from_millis(500);
    let reluctant = postgres.locks().leader("a").with_campaign_delay(delay);
    let reluctant = reluctant.campaign().unwrap();
    eventually("it queues", async || onlooker.queued().await == 1).await;
    let eager = process(&cluster.url(), quick()).await;
    eventually("both queue", async || onlooker.queued().await == 2).await;
    leads.candidate.shutdown().await;
    until_leader(&eager.candidate).await;
    eventually("the other queues again", async || onlooker.queued().await == 1).await;
    let vacant = Instant::now();
    eager.candidate.shutdown().await;
    until_leader(&reluctant).await;
    assert!(vacant.elapsed() >= delay, "{:?}", vacant.elapsed());
}

#[tokio::test]
async fn who_resigns_comes_after_those_who_leave_a_vacancy_to_others_for_a_while() {
    let cluster = Cluster::start().unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    let leads = process(&cluster.url(), quick()).await;
    let first = until_leader(&leads.candidate).await;
    let postgres = connect(&cluster.url(), quick()).await;
    let delay = Duration::from_millis(500);
    let reluctant = postgres.locks().leader("a").with_campaign_delay(delay);
    let reluctant = reluctant.campaign().unwrap();
    eventually("it queues", async || onlooker.queued().await == 1).await;
    let mut transitions = leads.candidate.transitions();
    leads.candidate.resign().await;
    let next = until_leader(&reluctant).await;
    assert!(next.term() > first.term());
    eventually("the other queues again", async || onlooker.queued().await == 1).await;
    assert!(!leads.candidate.is_leader());
    leads.candidate.shutdown().await;
    while let Some(transition) = transitions.next().await {
        let is_once_more =
            matches!(transition, Transition::To(LeaderState::Leader(term)) if Some(term) != first.term());
        assert!(!is_once_more, "{transition:?}");
    }
}

/// A server shows what is not printable ASCII as something else, and longer.
#[tokio::test]
async fn a_program_of_any_name_is_told_apart_by_its_number_and_its_term_on_every_major() {
    for installation in majors() {
        println!("PostgreSQL {}", installation.version());
        let cluster = Cluster::builder().installation(installation).start().unwrap();
        for name in ["größtenteils-nächtliche-abrechnungsläufe", "夜間バッチ処理", "a\tb\nc"] {
            let leads = process(&cluster.url(), quick().with_application_name(name)).await;
            let term = until_leader(&leads.candidate).await.term();
            let incumbent = leads.candidate.leader().await.unwrap().unwrap();
            assert_eq!(incumbent.term, term, "{name}: {incumbent:?}");
            assert!(incumbent.since.is_some(), "{name}: {incumbent:?}");
            let number = format!("#{:08x}", leads.postgres.identity().number());
            assert!(incumbent.identity.ends_with(&number), "{name}: {incumbent:?}");
            leads.candidate.shutdown().await;
            leads.postgres.locks().close().await;
        }
    }
}
