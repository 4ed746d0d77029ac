//! Golden ticks around the changes of clocks, in UTC.

use std::time::Duration;

use super::*;

fn at(utc: &str) -> SystemTime {
    utc.parse::<Timestamp>().unwrap().into()
}

fn shown(tick: Option<SystemTime>) -> String {
    Timestamp::try_from(tick.unwrap()).unwrap().to_string()
}

/// The ticks after a moment, which must be the same when one looks back from each.
fn ticks(schedule: &Schedule, after: &str, count: usize) -> Vec<String> {
    let mut moment = at(after);
    let mut ticks = Vec::new();
    for _ in 0..count {
        let last = schedule.last_at(moment).unwrap();
        let next = schedule.next_after(moment).unwrap();
        assert!(last <= moment && moment < next);
        let just_before = next - Duration::from_millis(1);
        assert_eq!(schedule.last_at(just_before), Some(last), "until {}", shown(Some(next)));
        assert_eq!(schedule.last_at(next), Some(next), "at {}", shown(Some(next)));
        assert_eq!(schedule.last_at(next + Duration::from_millis(1)), Some(next));
        assert_eq!(schedule.next_after(just_before), Some(next));
        ticks.push(shown(Some(next)));
        moment = next;
    }
    ticks
}

fn cron(expression: &str, zone: &str) -> Schedule {
    Schedule::cron(expression, zone).unwrap()
}

#[test]
fn in_berlin_a_job_in_the_gap_of_march_runs_once_at_its_end() {
    // 02:00 to 03:00 on 2026-03-29 is not there.
    let nightly = cron("30 2 * * *", "Europe/Berlin");
    let expected = ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"];
    assert_eq!(ticks(&nightly, "2026-03-27T12:00:00Z", 3), expected);
}

#[test]
fn in_berlin_a_job_in_the_overlap_of_october_runs_once_the_first_time() {
    // 02:00 to 03:00 on 2026-10-25 comes twice.
    let nightly = cron("30 2 * * *", "Europe/Berlin");
    let expected = ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"];
    assert_eq!(ticks(&nightly, "2026-10-23T12:00:00Z", 3), expected);
}

#[test]
fn in_new_york_a_job_in_the_gap_of_march_runs_once_at_its_end() {
    // 02:00 to 03:00 on 2026-03-08 is not there.
    let nightly = cron("15 2 * * *", "America/New_York");
    let expected = ["2026-03-07T07:15:00Z", "2026-03-08T07:00:00Z", "2026-03-09T06:15:00Z"];
    assert_eq!(ticks(&nightly, "2026-03-06T12:00:00Z", 3), expected);
}

#[test]
fn in_new_york_a_job_in_the_overlap_of_november_runs_once_the_first_time() {
    // 01:00 to 02:00 on 2026-11-01 comes twice.
    let nightly = cron("15 1 * * *", "America/New_York");
    let expected = ["2026-10-31T05:15:00Z", "2026-11-01T05:15:00Z", "2026-11-02T06:15:00Z"];
    assert_eq!(ticks(&nightly, "2026-10-30T12:00:00Z", 3), expected);
}

#[test]
fn what_runs_several_times_an_hour_goes_by_what_passes() {
    let often = cron("*/30 * * * *", "Europe/Berlin");
    let gap = ["2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"];
    assert_eq!(ticks(&often, "2026-03-29T00:15:00Z", 3), gap);
    let overlap = [
        "2026-10-25T00:00:00Z",
        "2026-10-25T00:30:00Z",
        "2026-10-25T01:00:00Z",
        "2026-10-25T01:30:00Z",
        "2026-10-25T02:00:00Z",
    ];
    assert_eq!(ticks(&often, "2026-10-24T23:45:00Z", 5), overlap);
}

#[test]
fn nights_without_a_change_are_at_their_time_with_seconds_or_by_a_nickname() {
    let at_nine = cron("0 0 9 * * MON-FRI", "America/New_York");
    let expected = ["2026-11-27T14:00:00Z", "2026-11-30T14:00:00Z"];
    assert_eq!(ticks(&at_nine, "2026-11-26T20:00:00Z", 2), expected);
    assert_eq!(
        ticks(&cron("@daily", "UTC"), "2026-11-26T20:00:00Z", 1),
        ["2026-11-27T00:00:00Z"]
    );
}

#[test]
fn around_the_changes_of_some_years_each_day_has_one_tick_forwards_and_backwards() {
    for zone in [
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Pacific/Chatham",
        "Africa/Casablanca",
    ] {
        for expression in ["30 2 * * *", "45 1 * * *", "0 3 * * *", "0 0 * * *"] {
            let schedule = cron(expression, zone);
            let mut day = at("2020-01-01T12:00:00Z");
            for _ in 0..1_096 {
                let next = schedule.next_after(day).unwrap();
                assert_eq!(schedule.last_at(next), Some(next), "{expression} in {zone}");
                let before = schedule.last_at(next - Duration::from_micros(1)).unwrap();
                assert!(
                    before <= day,
                    "{expression} in {zone}: {before:?} is between {day:?} and {next:?}"
                );
                let apart = next.duration_since(before).unwrap();
                let hours = apart.as_secs() / 3_600;
                assert!(
                    (22..=26).contains(&hours),
                    "{expression} in {zone}: {hours} hours to {next:?}"
                );
                day = next;
            }
        }
    }
}

#[test]
fn what_cannot_be_read_is_told() {
    let error = Schedule::cron("0 3 * *", "UTC").unwrap_err();
    assert!(matches!(error, ScheduleError::Expression { .. }), "{error}");
    let error = Schedule::cron("0 3 * * *", "Europe/Bielefeld").unwrap_err();
    assert!(error.to_string().contains("Europe/Berlin"), "{error}");
}

#[test]
fn a_day_that_never_comes_has_no_tick() {
    let never = cron("0 3 30 2 *", "UTC");
    let begun = std::time::Instant::now();
    assert_eq!(never.next_after(at("2026-01-01T00:00:00Z")), None);
    assert_eq!(never.last_at(at("2026-01-01T00:00:00Z")), None);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}
