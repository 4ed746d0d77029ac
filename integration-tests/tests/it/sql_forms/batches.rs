//! The statements of a batch: each key once, in order, whatever the planner makes of it.

use latchwork_core::{Key, Locks};
use latchwork_harness::{Cluster, Installation};
use latchwork_postgres::PostgresOptions;
use tokio_postgres::Statement;

use super::{Form, Forms, parallel_setting, planner, pushes};
use crate::onlooker::{Onlooker, assert_quiet, connect, majors};

/// Random keys of one kind, and which of them another session holds.
struct Case {
    firsts: Vec<i32>,
    seconds: Vec<i32>,
    bigints: Vec<i64>,
    held: Vec<bool>,
}

impl Case {
    fn new(length: usize) -> Self {
        // Distinct, and of every sign and size; the engine's keys of one batch are distinct too.
        let mut bigints: Vec<i64> = (0..length).map(|_| fastrand::i64(..) >> fastrand::u32(0..60)).collect();
        bigints.sort_unstable();
        bigints.dedup();
        fastrand::shuffle(&mut bigints);
        Self {
            firsts: bigints.iter().map(|key| (key >> 32) as i32).collect(),
            seconds: bigints.iter().map(|key| *key as i32).collect(),
            held: bigints.iter().map(|_| fastrand::bool()).collect(),
            bigints,
        }
    }

    /// Takes, or gives back, the held ones from another session, in a form of the test's own.
    async fn by_other(&self, other: &Onlooker, function: &str, pairs: bool) {
        let held = (0..self.bigints.len()).filter(|at| self.held[*at]);
        let rows: Vec<String> = if pairs {
            held.map(|at| format!("('{}', '{}')", self.firsts[at], self.seconds[at]))
                .collect()
        } else {
            held.map(|at| format!("('{}'::int8)", self.bigints[at])).collect()
        };
        if !rows.is_empty() {
            let calls = rows.iter().map(|row| format!("{function}{row}"));
            let all = calls.collect::<Vec<_>>().join(" AND ");
            assert!(other.is(&all).await, "{function}");
        }
    }

    /// Runs a statement over the keys that `which` holds for.
    async fn run(
        &self,
        session: &Onlooker,
        form: &Form,
        statement: &Statement,
        which: impl Fn(usize) -> bool,
    ) -> Vec<bool> {
        let chosen: Vec<usize> = (0..self.bigints.len()).filter(|at| which(*at)).collect();
        if !form.lone() {
            return self.call(session, form, statement, &chosen).await;
        }
        let mut answers = Vec::new();
        for at in chosen {
            answers.extend(self.call(session, form, statement, &[at]).await);
        }
        answers
    }

    async fn call(&self, session: &Onlooker, form: &Form, statement: &Statement, chosen: &[usize]) -> Vec<bool> {
        let bigints: Vec<i64> = chosen.iter().map(|at| self.bigints[*at]).collect();
        let firsts: Vec<i32> = chosen.iter().map(|at| self.firsts[*at]).collect();
        let seconds: Vec<i32> = chosen.iter().map(|at| self.seconds[*at]).collect();
        let row = match (form.pairs(), form.lone()) {
            (false, false) => session.0.query_one(statement, &[&bigints]).await,
            (false, true) => session.0.query_one(statement, &[&bigints[0]]).await,
            (true, false) => session.0.query_one(statement, &[&firsts, &seconds]).await,
            (true, true) => session.0.query_one(statement, &[&firsts[0], &seconds[0]]).await,
        };
        let row = row.unwrap();
        if !form.lists_refused() {
            return row.get::<_, Option<_>>(0).unwrap_or_default();
        }
        // In the order of the keys, each of them once.
        let refused: Vec<i64> = row.get::<_, Option<_>>(0).unwrap_or_default();
        let mut left = refused.iter().peekable();
        let answers = bigints.iter().map(|key| left.next_if_eq(&key).is_none()).collect();
        assert_eq!(left.next(), None, "what was refused was asked for");
        answers
    }
}

async fn locks_of(onlooker: &Onlooker, pid: i32) -> i64 {
    onlooker
        .number(&format!(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = {pid}"
        ))
        .await
}

async fn each_key_once(session: &Onlooker, other: &Onlooker, form: &Form) {
    let tries = session.0.prepare(&form.tries).await.unwrap();
    let unlocks = session.0.prepare(&form.unlocks).await.unwrap();
    let pid = session.pid().await;
    let sizes = if form.lone() {
        [1, 1, 2, 5, 20]
    } else {
        [0, 1, 2, 40, 512]
    };
    for execution in 0..12 {
        let case = Case::new(sizes[execution % sizes.len()]);
        case.by_other(other, "pg_try_advisory_lock", form.pairs()).await;
        let granted = case.run(session, form, &tries, |_| true).await;
        let free: Vec<bool> = case.held.iter().map(|held| !held).collect();
        assert_eq!(granted, free, "in order, {}", form.tries);
        let count = granted.iter().filter(|granted| **granted).count();
        assert_eq!(locks_of(other, pid).await, count as i64, "{}", form.tries);
        // A key that was evaluated twice would be held twice, and one release would leave it.
        let released = case.run(session, form, &unlocks, |at| granted[at]).await;
        assert_eq!(released, vec![true; count], "{}", form.unlocks);
        assert_eq!(locks_of(other, pid).await, 0, "{}", form.unlocks);
        case.by_other(other, "pg_advisory_unlock", form.pairs()).await;
    }
}

#[tokio::test]
async fn a_batch_evaluates_each_key_exactly_once_and_in_order_under_every_plan() {
    for installation in majors() {
        println!("PostgreSQL {}", installation.version());
        let forms = Forms::of(&installation).await;
        let cluster = Cluster::builder().installation(installation).start().unwrap();
        let other = Onlooker::new(&cluster.url()).await;
        for (parallel, plans) in pushes() {
            println!("parallel {parallel}, plans {plans}");
            let session = planner(&cluster, parallel, plans).await;
            for form in &forms.keys {
                each_key_once(&session, &other, form).await;
            }
        }
        assert_quiet(&cluster);
    }
}

/// One random case of the statement that takes some of several keys.
async fn some_of(session: &Onlooker, other: &Onlooker, statement: &Statement, pairs: bool) {
    let case = Case::new(fastrand::usize(0..12));
    let want = fastrand::i32(0..8);
    case.by_other(other, "pg_try_advisory_lock", pairs).await;
    let rows = if pairs {
        session.0.query(statement, &[&case.firsts, &case.seconds, &want]).await
    } else {
        session.0.query(statement, &[&case.bigints, &want]).await
    };
    let taken: Vec<usize> = rows
        .unwrap()
        .iter()
        .map(|row| row.get::<_, i32>(0) as usize - 1)
        .collect();
    let free = (0..case.bigints.len()).filter(|at| !case.held[*at]);
    let expected: Vec<usize> = free.take(want as usize).collect();
    assert_eq!(taken, expected, "the first {want} that are free of {:?}", case.held);

    let pid = session.pid().await;
    let shown = "SELECT classid, objid FROM pg_locks WHERE locktype = 'advisory' AND pid";
    let rows = other.0.query(&format!("{shown} = {pid}"), &[]).await.unwrap();
    let mut held: Vec<(u32, u32)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let mut answered: Vec<(u32, u32)> = taken
        .iter()
        .map(|at| (case.firsts[*at] as u32, case.seconds[*at] as u32))
        .collect();
    held.sort_unstable();
    answered.sort_unstable();
    assert_eq!(held, answered, "nothing behind the last that is needed was tried");

    session.value("SELECT pg_advisory_unlock_all()").await;
    case.by_other(other, "pg_advisory_unlock", pairs).await;
}

#[tokio::test]
async fn some_of_several_are_the_first_that_are_free_and_none_behind_them_is_tried() {
    for installation in majors() {
        println!("PostgreSQL {}", installation.version());
        let forms = Forms::of(&installation).await;
        let cluster = Cluster::builder().installation(installation).start().unwrap();
        let other = Onlooker::new(&cluster.url()).await;
        for (parallel, plans) in pushes() {
            println!("parallel {parallel}, plans {plans}");
            let session = planner(&cluster, parallel, plans).await;
            for (pairs, form) in [(false, &forms.some[0]), (true, &forms.some[1])] {
                let statement = session.0.prepare(form).await.unwrap();
                for _ in 0..60 {
                    some_of(&session, &other, &statement, pairs).await;
                }
            }
        }
        assert_quiet(&cluster);
    }
}

fn pushed(installation: Installation) -> Cluster {
    let parallel = parallel_setting(&installation);
    let builder = Cluster::builder().installation(installation).setting(parallel, "on");
    builder
        .setting("plan_cache_mode", "force_generic_plan")
        .setting("parallel_setup_cost", 0)
        .start()
        .unwrap()
}

/// Tries many keys at once, of which another session holds some.
async fn try_all(locks: &Locks, other: &Onlooker, round: i64) {
    let keys: Vec<i64> = (0..300).map(|key| round * 1_000 + key).collect();
    let taken: Vec<bool> = keys.iter().map(|_| fastrand::u8(..) < 80).collect();
    let by_other = keys.iter().zip(&taken).filter(|(_, taken)| **taken);
    let by_other = by_other.map(|(key, _)| format!("pg_try_advisory_lock({key})"));
    assert!(other.is(&by_other.collect::<Vec<_>>().join(" AND ")).await);
    let tries: Vec<_> = keys
        .iter()
        .map(|key| tokio::spawn(locks.try_acquire(Key::bigint(*key))))
        .collect();
    let mut guards = Vec::new();
    for (tried, taken) in tries.into_iter().zip(&taken) {
        let guard = tried.await.unwrap().unwrap();
        assert_eq!(guard.is_none(), *taken);
        guards.extend(guard);
    }
    assert_eq!(other.held().await, guards.len() as i64);
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert_eq!(other.held().await, 0);
    other.value("SELECT pg_advisory_unlock_all()").await;
}

#[tokio::test]
async fn hundreds_of_tries_at_once_are_answered_as_the_server_holds_them() {
    for installation in majors() {
        println!("PostgreSQL {}", installation.version());
        let cluster = pushed(installation);
        let postgres = connect(&cluster.url(), PostgresOptions::default()).await;
        let other = Onlooker::new(&cluster.url()).await;
        for round in 0..10 {
            try_all(&postgres.locks(), &other, round).await;
        }
        postgres.locks().close().await;
        assert_quiet(&cluster);
    }
}
