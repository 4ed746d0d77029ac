//! Whether what was seen is what was promised. Nothing here asks a server.

use crate::client::Reply;
use crate::work::Visit;

/// A refused request, as it has to look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// What the answer's problem type ends with: 503 alone could also mean that the database is away.
    pub(crate) problem: &'static str,
}

pub(crate) const LOCK_BUSY: Refusal = Refusal {
    status: 409,
    problem: ":lock-busy",
};
pub(crate) const SLOTS_FULL: Refusal = Refusal {
    status: 503,
    problem: ":slots-full",
};

/// The requests that were let in.
pub(crate) fn let_in(replies: &[Reply]) -> impl Iterator<Item = &Reply> {
    replies.iter().filter(|reply| reply.status == 200)
}

/// How many requests an instance answered with a status.
pub(crate) fn count(replies: &[Reply], instance: &str, status: u16) -> usize {
    let of_it = |reply: &&Reply| reply.instance == instance && reply.status == status;
    replies.iter().filter(of_it).count()
}

/// Everybody was let in or refused as promised, with the time after which to ask again.
pub(crate) fn refused_properly(replies: &[Reply], refusal: Refusal) -> Result<(), String> {
    for reply in replies.iter().filter(|reply| reply.status != 200) {
        is_refusal(reply, refusal)?;
    }
    match replies.iter().any(|reply| reply.status != 200) {
        true => Ok(()),
        false => Err("nobody was refused".to_owned()),
    }
}

/// One refused request looks as promised.
pub(crate) fn is_refusal(reply: &Reply, refusal: Refusal) -> Result<(), String> {
    let Reply {
        instance,
        status,
        retry_after,
        body,
    } = reply;
    if *status != refusal.status || !problem_type(body).ends_with(refusal.problem) {
        return Err(format!("instance {instance} answered {status}: {body}"));
    }
    match retry_after {
        Some(1..) => Ok(()),
        _ => Err(format!("a {status} of instance {instance} has no usable Retry-After")),
    }
}

/// One request was let in.
pub(crate) fn is_let_in(reply: &Reply) -> Result<(), String> {
    let Reply {
        instance, status, body, ..
    } = reply;
    match status {
        200 => Ok(()),
        _ => Err(format!("instance {instance} answered {status}: {body}")),
    }
}

/// Somebody was let in, and never more than `limit` at once.
pub(crate) fn at_once_at_most(replies: &[Reply], limit: usize) -> Result<(), String> {
    match most_at_once(&visits(let_in(replies))?) {
        0 => Err("nobody was let in".to_owned()),
        most if most > limit => Err(format!("{most} were in at once")),
        _ => Ok(()),
    }
}

/// No two visits of one slot overlap, and each of the slots was used.
pub(crate) fn each_slot_used_by_one_at_a_time(replies: &[Reply], slots: u32) -> Result<(), String> {
    for slot in 0..slots {
        let in_slot = let_in(replies).filter(|reply| reply.entry().and_then(|entry| entry.slot) == Some(slot));
        match most_at_once(&visits(in_slot)?) {
            0 => return Err(format!("slot {slot} was left free, though requests were refused")),
            1 => {}
            most => return Err(format!("slot {slot} was given to {most} requests at once")),
        }
    }
    let outside = let_in(replies).find(|reply| {
        reply
            .entry()
            .and_then(|entry| entry.slot)
            .is_none_or(|slot| slot >= slots)
    });
    outside.map_or(Ok(()), |reply| {
        Err(format!(
            "instance {} let in without a slot: {}",
            reply.instance, reply.body
        ))
    })
}

fn visits<'a>(replies: impl Iterator<Item = &'a Reply>) -> Result<Vec<Visit>, String> {
    let visit = |reply: &Reply| {
        let entry = reply
            .entry()
            .ok_or_else(|| format!("instance {} answered 200: {}", reply.instance, reply.body));
        entry.map(|entry| entry.visit)
    };
    replies.map(visit).collect()
}

/// How many of the visits there were together at the busiest moment.
fn most_at_once(visits: &[Visit]) -> usize {
    // Whoever comes in the microsecond in which another leaves came after it.
    let there = |moment: u64| {
        visits
            .iter()
            .filter(|visit| visit.from_us <= moment && moment < visit.until_us.max(visit.from_us + 1))
            .count()
    };
    visits.iter().map(|visit| there(visit.from_us)).max().unwrap_or(0)
}

fn problem_type(body: &str) -> String {
    let problem: Option<serde_json::Value> = serde_json::from_str(body).ok();
    let kind = problem.as_ref().and_then(|problem| problem["type"].as_str());
    kind.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(instance: &'static str, slot: Option<u32>, from_us: u64, until_us: u64) -> Reply {
        let slot = slot.map_or_else(String::new, |slot| format!("\"slot\":{slot},"));
        let body = format!("{{{slot}\"from_us\":{from_us},\"until_us\":{until_us}}}");
        Reply {
            instance,
            status: 200,
            retry_after: None,
            body,
        }
    }

    fn refused(refusal: Refusal, retry_after: Option<u64>) -> Reply {
        let body = format!("{{\"type\":\"urn:x{}\"}}", refusal.problem);
        Reply {
            instance: "B",
            status: refusal.status,
            retry_after,
            body,
        }
    }

    #[test]
    fn two_at_once_in_one_order_are_found() {
        let one_by_one = [
            entry("A", None, 0, 10),
            entry("B", None, 10, 20),
            entry("A", None, 25, 25),
        ];
        assert_eq!(at_once_at_most(&one_by_one, 1), Ok(()));
        let overlapping = [entry("A", None, 0, 11), entry("B", None, 10, 20)];
        assert!(at_once_at_most(&overlapping, 1).unwrap_err().contains('2'));
        assert!(at_once_at_most(&[refused(LOCK_BUSY, Some(1))], 1).is_err());
    }

    #[test]
    fn two_at_the_same_moment_are_two_at_once_however_short() {
        let same = [entry("A", None, 5, 5), entry("B", None, 5, 5)];
        assert!(at_once_at_most(&same, 1).is_err());
    }

    #[test]
    fn a_sixth_in_five_slots_is_found() {
        let five: Vec<Reply> = (0..5).map(|slot| entry("A", Some(slot), 0, 10)).collect();
        assert_eq!(at_once_at_most(&five, 5), Ok(()));
        assert_eq!(each_slot_used_by_one_at_a_time(&five, 5), Ok(()));
        let six = [five.as_slice(), &[entry("B", Some(4), 9, 12)]].concat();
        assert!(at_once_at_most(&six, 5).is_err());
        assert!(each_slot_used_by_one_at_a_time(&six, 5).unwrap_err().contains("slot 4"));
    }

    #[test]
    fn a_slot_that_stays_free_or_does_not_exist_is_found() {
        let four: Vec<Reply> = (0..4).map(|slot| entry("A", Some(slot), 0, 10)).collect();
        assert!(
            each_slot_used_by_one_at_a_time(&four, 5)
                .unwrap_err()
                .contains("slot 4")
        );
        for stranger in [Some(4), None] {
            let with = [four.as_slice(), &[entry("B", stranger, 20, 30)]].concat();
            assert!(each_slot_used_by_one_at_a_time(&with, 4).is_err(), "{stranger:?}");
        }
    }

    #[test]
    fn a_refusal_needs_its_status_its_type_and_its_time() {
        let winner = entry("A", None, 0, 10);
        let with = |loser: Reply| refused_properly(&[winner.clone(), loser], LOCK_BUSY);
        assert_eq!(with(refused(LOCK_BUSY, Some(1))), Ok(()));
        assert!(with(refused(LOCK_BUSY, None)).is_err());
        assert!(with(refused(LOCK_BUSY, Some(0))).is_err());
        assert!(with(refused(SLOTS_FULL, Some(1))).is_err());
        let outage = Refusal {
            status: 409,
            problem: ":unavailable",
        };
        assert!(with(refused(outage, Some(1))).is_err());
        assert!(with(entry("B", None, 20, 30)).unwrap_err().contains("nobody"));
    }

    #[test]
    fn an_answer_without_its_times_is_no_proof() {
        let reply = Reply {
            body: "ok".to_owned(),
            ..entry("A", None, 0, 10)
        };
        assert!(at_once_at_most(&[reply], 1).unwrap_err().contains("ok"));
    }
}
