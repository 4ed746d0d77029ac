use std::time::Duration;

use super::quota;
use crate::{
    Key,
    rate::{MAX_QUOTAS, Quota, QuotaError, Quotas, RateRow},
};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn what_would_let_nobody_in_is_no_quota() {
    assert_eq!(Quota::per_second(0), Err(QuotaError::Nothing));
    assert_eq!(Quota::new(1, Duration::ZERO), Err(QuotaError::Nothing));
    assert_eq!(Quota::per_second(1).unwrap().with_burst(0), Err(QuotaError::Nothing));
}

#[test]
fn what_cannot_be_counted_is_no_quota() {
    let units = 1_000_001;
    assert_eq!(
        Quota::per_second(units),
        Err(QuotaError::TooFast { units, period: SECOND })
    );
    assert!(Quota::per_second(1_000_000).is_ok());
    for period in [Duration::MAX, Duration::from_secs(366 * 86_400 + 1)] {
        assert_eq!(Quota::new(u32::MAX, period), Err(QuotaError::PeriodTooLong { period }));
    }
    let burst = 3_661;
    assert_eq!(
        Quota::per_day(1).unwrap().with_burst(burst),
        Err(QuotaError::BurstTooLarge { burst })
    );
    assert!(Quota::per_day(1).unwrap().with_burst(burst - 1).is_ok());
    assert!(Quota::per_second(1_000_000).unwrap().with_burst(u32::MAX).is_ok());
}

#[test]
fn an_interval_is_rounded_up_so_that_a_period_never_holds_more_than_its_units() {
    for units in [1, 3, 7, 11, 999, 999_983] {
        let interval = Quota::per_second(units).unwrap().interval();
        assert!(interval * units >= SECOND, "{units}");
        assert!((interval - Duration::from_nanos(1)) * units < SECOND, "{units}");
    }
}

#[test]
fn a_list_of_quotas_has_one_to_four() {
    let one = quota(1, SECOND, 5);
    assert_eq!(Quotas::all([]), Err(QuotaError::NoQuota));
    assert_eq!(Quotas::all([one; MAX_QUOTAS]).unwrap().len(), MAX_QUOTAS);
    assert_eq!(Quotas::all([one; MAX_QUOTAS + 1]), Err(QuotaError::TooManyQuotas));
    let both = Quotas::all([one, quota(2, SECOND, 3)]).unwrap();
    assert_eq!((both.len(), both.highest_cost()), (2, 3));
}

#[test]
fn rows_differ_by_key_by_space_and_by_quotas() {
    let (one, other) = (quota(1, SECOND, 5), quota(1, SECOND, 6));
    let lists = [
        Quotas::from(one),
        Quotas::from(other),
        Quotas::all([one, other]).unwrap(),
        Quotas::all([other, one]).unwrap(),
        Quotas::all([one, one]).unwrap(),
    ];
    let keys = [Key::bigint(1), Key::pair(0, 1), Key::bigint(-1), Key::pair(-1, -1)];
    let mut rows: Vec<RateRow> = lists
        .iter()
        .flat_map(|quotas| keys.map(|key| RateRow::new(key, quotas)))
        .collect();
    rows.sort_unstable();
    rows.dedup();
    assert_eq!(rows.len(), lists.len() * keys.len());
}

/// Processes of all versions must find the same rows.
#[test]
fn the_numbers_of_quotas_never_change() {
    let one = Quotas::from(quota(10, SECOND, 20));
    let two = Quotas::all([quota(10, SECOND, 20), quota(1_000, SECOND * 3_600, 1_000)]).unwrap();
    assert_eq!(
        [one.id(), two.id()],
        [7_672_777_850_616_291_950, 2_563_593_064_265_426_830]
    );
    let row = RateRow::new(Key::pair(-1, 2), &one);
    assert_eq!((row.key(), row.quotas()), ((-1_i64 << 32) | 2, one.id() | 1));
}
