//! What is charged, and what is not.

use std::time::Duration;

use latchwork_core::{
    Key,
    rate::{Quota, Quotas, RateError, RateLimits, RateLimitsOptions},
};
use latchwork_harness::Cluster;
use latchwork_postgres::{RateOptions, schema::install};

use crate::onlooker::{Onlooker, eventually, loud, majors};

use super::{age, assert_shared, charge_at_once, installed, patient, process, rarely, rows};

/// Each check is a question to the database.
fn forgetful() -> RateOptions {
    patient().with_limits(RateLimitsOptions::default().with_denials(0))
}

#[tokio::test(flavor = "multi_thread")]
async fn of_64_at_once_on_a_limit_of_1_one_is_allowed() {
    let (cluster, _onlooker) = installed().await;
    let rates = process(&cluster, forgetful()).await;
    for number in 0..50 {
        assert_eq!(charge_at_once(&rates, &format!("key {number}"), rarely(1), 64).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_major_charges_denies_and_sweeps_alike() {
    for installation in majors() {
        println!("PostgreSQL {}", installation.version());
        let cluster = Cluster::builder().installation(installation).start().unwrap();
        let onlooker = Onlooker::new(&cluster.url()).await;
        install(&onlooker.0).await.unwrap();
        let rates = process(&cluster, forgetful().with_sweep_interval(Duration::from_millis(20))).await;
        for quotas in 1..=4 {
            let quotas = Quotas::all((0..quotas).map(|place| rarely(7 + place))).unwrap();
            let checks = (0..20).map(|_| rates.check("key", quotas, 2));
            let decisions = futures_util::future::join_all(checks).await;
            let allowed: Vec<bool> = decisions
                .into_iter()
                .map(|decision| decision.unwrap().is_allowed())
                .collect();
            assert_eq!(allowed, (0..20).map(|place| place < 3).collect::<Vec<_>>());
            let quick = Quota::new(1_000, Duration::from_secs(1)).unwrap();
            rates.check(("gone", quotas.len()), quick, 1).await.unwrap();
        }
        eventually("what no longer matters is gone", async || {
            age(&onlooker).await;
            rows(&onlooker).await <= 5
        })
        .await;
        assert_eq!(loud(&cluster), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_count_together() {
    let (cluster, _onlooker) = installed().await;
    let (one, other) = (
        process(&cluster, forgetful()).await,
        process(&cluster, forgetful()).await,
    );
    for number in 0..50 {
        let (key, burst) = (format!("key {number}"), 1 + number % 7);
        let (ours, theirs) = tokio::join!(
            charge_at_once(&one, &key, rarely(burst), 64),
            charge_at_once(&other, &key, rarely(burst), 64)
        );
        assert_eq!(ours + theirs, burst as usize, "{ours} and {theirs}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cost_is_charged_whole_or_not_at_all() {
    let (cluster, onlooker) = installed().await;
    let rates = process(&cluster, patient()).await;
    let quota = rarely(10);
    let check = async |cost| rates.check("key", quota, cost).await.unwrap();
    let first = check(7).await;
    assert!(first.is_allowed());
    assert_eq!((first.limit(), first.remaining()), (10, 3));
    let denied = check(4).await;
    assert!(!denied.is_allowed());
    assert_eq!(denied.remaining(), 3);
    let day = Duration::from_secs(86_400);
    let wait = denied.retry_after().unwrap();
    assert!(wait <= day && wait > day - Duration::from_secs(60), "{wait:?}");
    // A cheaper one is let in although a dear one was denied a moment ago.
    let last = check(3).await;
    assert!(last.is_allowed());
    assert_eq!(last.remaining(), 0);
    assert!(!check(1).await.is_allowed());
    let look = check(0).await;
    assert!(look.is_allowed() && look.remaining() == 0);
    let error = rates.check("key", quota, 11).await.expect_err("more than a burst");
    assert!(matches!(error, RateError::CostTooHigh { cost: 11, highest: 10 }) && !error.is_outage());
    assert_eq!(rows(&onlooker).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn mixed_costs_of_one_moment_are_decided_in_order_and_never_exceed_the_burst() {
    let (cluster, _onlooker) = installed().await;
    let rates = process(&cluster, forgetful()).await;
    for round in 0..20_u32 {
        let key = format!("key {round}");
        let costs: Vec<u32> = (0..40).map(|_| fastrand::u32(1..6)).collect();
        let mut expected = 30_u32;
        let expected: Vec<bool> = costs
            .iter()
            .map(|cost| {
                let left = expected.checked_sub(*cost);
                expected = left.unwrap_or(expected);
                left.is_some()
            })
            .collect();
        // Polled in order by one task, so asked in order.
        let checks = costs.iter().map(|cost| rates.check(&key, rarely(30), *cost));
        let decisions = futures_util::future::join_all(checks).await;
        let allowed: Vec<bool> = decisions
            .into_iter()
            .map(|decision| decision.unwrap().is_allowed())
            .collect();
        assert_eq!(allowed, expected, "{costs:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_quotas_are_charged_all_or_none() {
    let (cluster, _onlooker) = installed().await;
    let rates = process(&cluster, forgetful()).await;
    let quotas = Quotas::all([rarely(5), Quota::per_hour(1).unwrap().with_burst(3).unwrap()]).unwrap();
    let check = async |cost| rates.check("key", quotas, cost).await.unwrap();
    let remaining = async |cost| {
        let decision = check(cost).await;
        let left: Vec<u32> = decision.states().map(|state| state.remaining).collect();
        (decision.is_allowed(), left)
    };
    assert_eq!(remaining(2).await, (true, vec![3, 1]));
    // The second quota denies, so the first is not charged.
    assert_eq!(remaining(2).await, (false, vec![3, 1]));
    assert_eq!(remaining(1).await, (true, vec![2, 0]));
    let denied = check(1).await;
    assert_eq!((denied.limit(), denied.tightest().quota), (3, quotas.as_slice()[1]));
    assert!(denied.retry_after().unwrap() <= Duration::from_secs(3_600));
    // Under other quotas the same key is another count.
    assert!(rates.check("key", quotas.as_slice()[1], 3).await.unwrap().is_allowed());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_to_four_quotas_at_the_same_moment_are_each_exact() {
    let (cluster, _onlooker) = installed().await;
    let (one, other) = (
        process(&cluster, forgetful()).await,
        process(&cluster, forgetful()).await,
    );
    let mut checks = Vec::new();
    for round in 0..100_u32 {
        for number in 1..=4 {
            let quotas = (0..number).map(|place| rarely(20 + (place + 1) % number));
            let rates = if round % 2 == 0 { &one } else { &other };
            checks.push(tokio::spawn(rates.check("key", Quotas::all(quotas).unwrap(), 1)));
        }
    }
    let mut allowed = [0; 4];
    for (place, check) in checks.into_iter().enumerate() {
        allowed[place % 4] += u32::from(check.await.unwrap().unwrap().is_allowed());
    }
    assert_eq!(allowed, [20; 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_charged_comes_back_on_the_databases_clock() {
    let (cluster, _onlooker) = installed().await;
    let rates = process(&cluster, patient()).await;
    let quota = Quota::new(20, Duration::from_secs(1)).unwrap().with_burst(5).unwrap();
    let begun = std::time::Instant::now();
    let mut allowed = 0;
    while begun.elapsed() < Duration::from_secs(2) {
        let decision = rates.check("key", quota, 1).await.unwrap();
        assert_shared(&decision);
        allowed += u32::from(decision.is_allowed());
    }
    let most = 5 + u32::try_from(begun.elapsed().as_millis() / 50).unwrap();
    assert!(allowed <= most, "{allowed} of at most {most}");
    // At 20 a second, asked without a pause; the machine may be busy.
    assert!(allowed >= 30, "{allowed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_key_leaves_no_row_and_changes_none() {
    let (cluster, onlooker) = installed().await;
    let rates = process(&cluster, forgetful()).await;
    let quotas = Quotas::all([rarely(1), rarely(9)]).unwrap();
    assert!(rates.check("key", quotas, 1).await.unwrap().is_allowed());
    let row = "SELECT (key, quotas, tat1, tat2, tat3, tat4)::text FROM latchwork.rate_limits";
    let before = onlooker.value(row).await;
    for _ in 0..20 {
        assert!(!rates.check("key", quotas, 1).await.unwrap().is_allowed());
    }
    assert_eq!(onlooker.value(row).await, before);
    assert_eq!(rows(&onlooker).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_is_remembered_and_lapses_in_time() {
    let (cluster, onlooker) = installed().await;
    let rates = process(&cluster, patient()).await;
    let quota = Quota::new(1, Duration::from_millis(1_500)).unwrap();
    let check = async || rates.check("key", quota, 1).await.unwrap();
    for round in 1..=2 {
        assert!(check().await.is_allowed());
        let denied = check().await;
        let remembered = check().await;
        let row = "SELECT xmin::text FROM latchwork.rate_limits";
        let version = onlooker.value(row).await;
        let wait = remembered.retry_after().unwrap();
        assert!(remembered.is_remembered() && wait <= denied.retry_after().unwrap());
        assert_eq!(
            onlooker.value(row).await,
            version,
            "a remembered denial wrote something"
        );
        assert_eq!((rates.stats().denials, rates.stats().denied_from_memory), (1, round));
        tokio::time::sleep(denied.retry_after().unwrap()).await;
    }
    assert!(check().await.is_allowed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_was_set_back_denies_for_a_minute_at_most() {
    let (cluster, onlooker) = installed().await;
    let rates = process(&cluster, forgetful()).await;
    let quotas = Quotas::all([Quota::per_second(1).unwrap(), Quota::per_second(2).unwrap()]).unwrap();
    assert!(rates.check("key", quotas, 1).await.unwrap().is_allowed());
    let day = "UPDATE latchwork.rate_limits SET tat1 = tat1 + 86400000000000, tat2 = tat2 + 86400000000000";
    onlooker.0.batch_execute(day).await.unwrap();
    let denied = rates.check("key", quotas, 1).await.unwrap();
    assert!(!denied.is_allowed());
    assert!(denied.retry_after().unwrap() <= Duration::from_secs(61), "{denied:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_is_dropped_leaves_those_beside_it_exact() {
    let (cluster, _onlooker) = installed().await;
    let rates = process(&cluster, forgetful()).await;
    for round in 0..30 {
        let key = format!("key {round}");
        let mut checks = Vec::new();
        let dropped = (0..100).map(|_| tokio::spawn(rates.check(key.as_str(), rarely(1_000), 1)));
        for (number, check) in dropped.enumerate() {
            if number % 3 == 0 {
                check.abort();
            } else {
                checks.push(check);
            }
        }
        let mut allowed = 0;
        for check in checks {
            allowed += u32::from(check.await.unwrap().unwrap().is_allowed());
        }
        let left = rates.check(key.as_str(), rarely(1_000), 0).await.unwrap().remaining();
        assert!(
            (allowed..=100).contains(&(1_000 - left)),
            "{allowed} allowed, {left} left"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_random_keys_of_two_processes_never_lock_each_other_out() {
    let (cluster, onlooker) = installed().await;
    let (one, other) = (
        process(&cluster, forgetful()).await,
        process(&cluster, forgetful()).await,
    );
    let load = async |rates: &RateLimits, keys: u32| {
        let mut tasks = Vec::new();
        for _ in 0..128 {
            let rates = rates.clone();
            tasks.push(tokio::spawn(async move {
                for _ in 0..150 {
                    let key = ("key", fastrand::u32(0..keys));
                    assert_shared(&rates.check(key, rarely(2), 1).await.unwrap());
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    };
    // Of so few keys each batch has many that the other process's batch has too.
    for keys in [10_000, 300] {
        tokio::join!(load(&one, keys), load(&other, keys));
    }
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(onlooker.number(deadlocks).await, 0);
    let log = cluster.log();
    assert!(!log.contains("ERROR"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_a_trigger_keeps_back_leaves_the_others_their_own_answers() {
    let (cluster, onlooker) = installed().await;
    let trigger = "CREATE FUNCTION keep_back() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN IF NEW.key % 3 = 0 THEN RETURN NULL; END IF; RETURN NEW; END $$; \
         CREATE TRIGGER keep_back BEFORE INSERT ON latchwork.rate_limits FOR EACH ROW EXECUTE FUNCTION keep_back()";
    onlooker.0.batch_execute(trigger).await.unwrap();
    let rates = process(&cluster, forgetful()).await;
    for round in 1..=2 {
        let checks = (1..=20).map(|number| rates.check(Key::bigint(i64::from(number)), rarely(50), number));
        let decisions = futures_util::future::join_all(checks).await;
        for (number, decision) in (1..=20).zip(decisions) {
            let decision = decision.unwrap();
            assert_eq!(decision.is_degraded(), number % 3 == 0, "{number}: {decision:?}");
            assert_eq!(decision.remaining(), 50 - round * number, "{decision:?}");
        }
    }
}
