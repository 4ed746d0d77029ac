//! Random charges on a clock that is moved by hand. The oracle keeps what was allowed and when, and allows what keeps to
//! the promise in every span of time that ends now.

use std::{sync::Arc, time::Duration};

use super::now;
use crate::{
    clock::Clock,
    rate::{MemoryRates, Quota, Quotas, RateLimits, RateLimitsOptions},
    testing::Seed,
};

#[derive(Default)]
struct Oracle {
    /// When, in nanoseconds, and how much.
    allowed: Vec<(u64, u32)>,
}

impl Oracle {
    /// Whether `burst + t / interval` holds for all spans that begin with an allowed charge and end with this one.
    fn allows(&self, quota: &Quota, at: u64, cost: u32) -> bool {
        let (interval, burst) = (quota.interval().as_nanos(), u128::from(quota.burst()));
        let mut sum = u128::from(cost);
        let fits = |sum: u128, span: u64| sum * interval <= burst * interval + u128::from(span);
        fits(sum, 0)
            && self.allowed.iter().rev().all(|(when, cost)| {
                sum += u128::from(*cost);
                fits(sum, at - when)
            })
    }
}

fn random_quota(seed: &mut Seed) -> Quota {
    let period = Duration::from_millis(seed.rng.u64(1..5_000));
    Quota::new(seed.rng.u32(1..=period.as_millis() as u32), period)
        .unwrap()
        .with_burst(seed.rng.u32(1..20))
        .unwrap()
}

fn run(seed: u64, denials: usize) {
    let mut seed = Seed::new(seed);
    let (clock, hand) = Clock::manual();
    let engine = Arc::new(MemoryRates::on_clock(clock.clone()));
    let rates = RateLimits::new(engine, RateLimitsOptions::default().with_denials(denials));
    let number = seed.rng.usize(1..=4);
    let quotas = Quotas::all((0..number).map(|_| random_quota(&mut seed))).unwrap();
    let slowest = quotas.as_slice().iter().map(Quota::interval).max().unwrap();
    let mut oracle = Oracle::default();
    for _ in 0..300 {
        if seed.chance(2) {
            hand.advance(slowest.mul_f64(seed.rng.f64() * 1.5));
        }
        let at = clock.now().as_nanos();
        let cost = seed.rng.u32(1..=quotas.highest_cost());
        let before = now(rates.check("key", quotas, 0)).unwrap();
        let decision = now(rates.check("key", quotas, cost)).unwrap();
        let expected = quotas.as_slice().iter().all(|quota| oracle.allows(quota, at, cost));
        seed.note(|| format!("{at}: {cost} of {quotas:?}, expected {expected}, {decision:?}"));
        assert_eq!(decision.is_allowed(), expected);
        if expected {
            oracle.allowed.push((at, cost));
            assert_eq!(decision.retry_after(), None);
            let left = before.states().zip(decision.states());
            assert!(
                left.into_iter()
                    .all(|(before, after)| before.remaining - after.remaining == cost)
            );
        } else {
            let after = now(rates.check("key", quotas, 0)).unwrap();
            assert!(
                before.states().eq(after.states()),
                "a denied charge has changed something"
            );
            let wait = decision.retry_after().unwrap().as_nanos() as u64;
            let allows = |at| quotas.as_slice().iter().all(|quota| oracle.allows(quota, at, cost));
            assert!(!allows(at + wait - 1), "{wait} ns is too long a wait");
            // What is remembered does not know what others have charged since.
            assert!(
                decision.is_remembered() || allows(at + wait),
                "{wait} ns is too short a wait"
            );
        }
    }
}

#[test]
fn in_no_span_of_time_is_more_allowed_than_promised_and_never_less() {
    for seed in Seed::row(100, 30) {
        run(seed, 0);
    }
}

#[test]
fn remembered_denials_change_no_decision() {
    for seed in Seed::row(100, 30) {
        run(seed, 1_000);
    }
}

#[test]
fn threads_on_one_key_are_allowed_exactly_the_burst() {
    let rates = RateLimits::in_memory();
    let quota = super::quota(1, Duration::from_secs(3_600), 1_000);
    let allowed: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    (0..1_000)
                        .filter(|_| now(rates.check("key", quota, 1)).unwrap().is_allowed())
                        .count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(allowed, 1_000);
}
