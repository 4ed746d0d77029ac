use std::time::Duration;

/// The value that a share of the sorted values does not exceed; 0 if there are none.
pub(crate) fn quantile(sorted: &[u64], share: f64) -> u64 {
    let last = sorted.len().saturating_sub(1);
    sorted
        .get((last as f64 * share).round() as usize)
        .copied()
        .unwrap_or_default()
}

/// The value in the middle; 0 if there are none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

/// Whole nanoseconds; a measured time fits.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(Vec::new()), 0.0);
    }

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let values: Vec<u64> = (1..=101).collect();
        assert_eq!(quantile(&values, 0.5), 51);
        assert_eq!(quantile(&values, 0.99), 100);
        assert_eq!(quantile(&values, 1.0), 101);
        assert_eq!(quantile(&[], 0.5), 0);
    }
}
