//! Starts three workers, kills the one that leads, and looks at what comes of it.

use std::{
    collections::BTreeMap,
    env,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use latchwork_harness::{Cluster, Process, Signal, wait_until};

use crate::{
    books::{Books, Leader, ORDERS},
    shares::Shares,
    ship::SHARDS,
};

pub(crate) fn show() -> anyhow::Result<()> {
    let cluster = Cluster::start()?;
    let books = Books::open(&cluster)?;
    books.take_orders(ORDERS[0])?;
    println!(
        "{} orders in {SHARDS} shards, and three workers. The first leader is elected after 5 s.",
        ORDERS[0]
    );
    let mut workers = BTreeMap::new();
    for name in ["a", "b", "c"] {
        workers.insert(name.to_owned(), start(name, &cluster.url())?);
    }
    let (first, shares) = until("one leads and all ship", || at_work(&books, workers.len()))?;
    println!("{} leads, in term {}. Of the shards, {shares}.", first.name, first.term);

    let mut killed = workers.remove(&first.name).context("a worker leads")?;
    println!("kill -9 {}", first.name);
    let since = Instant::now();
    killed.signal(Signal::KILL);
    killed.wait()?;
    let (reports, dispatched) = (books.reports()?, books.dispatched()?);
    books.take_orders(ORDERS[1])?;

    let next = until("another leads", || {
        Ok(books.leader()?.filter(|leader| leader.name != first.name))
    })?;
    println!(
        "{} leads, in term {}, {:.2} s after that.",
        next.name,
        next.term,
        since.elapsed().as_secs_f64()
    );
    // What was dispatched after the kill is shipped by those who are left.
    let taken = until("its shards are taken over", || {
        let shares = books.shares(dispatched)?;
        Ok(shares.is_complete().then_some(shares))
    })?;
    println!("The shards of {} were taken over: {taken}.", first.name);
    until("reports go on", || Ok((books.reports()? > reports + 2).then_some(())))?;
    until("all is shipped", || Ok(books.all_are_shipped()?.then_some(())))?;
    end(workers)?;
    check(&books, &first, &next)
}

fn start(name: &str, url: &str) -> anyhow::Result<Process> {
    Ok(Process::spawn(Command::new(env::current_exe()?).args([name, url]))?)
}

/// Tells workers to end, and waits until they have.
fn end(mut workers: BTreeMap<String, Process>) -> anyhow::Result<()> {
    println!("SIGTERM to the others");
    for worker in workers.values() {
        worker.signal(Signal::TERM);
    }
    for (name, worker) in &mut workers {
        let ended = worker.wait_within(PATIENCE)?;
        let status = ended.with_context(|| format!("{name} does not end"))?;
        ensure!(status.success(), "{name} has ended with {status}");
    }
    Ok(())
}

/// The leader, once there is one and each worker ships for its share.
fn at_work(books: &Books<'_>, workers: usize) -> anyhow::Result<Option<(Leader, Shares)>> {
    let (leader, shares) = (books.leader()?, books.shares(0)?);
    Ok(leader
        .filter(|_| shares.is_fair(workers))
        .map(|leader| (leader, shares)))
}

/// Whether everything has happened once.
fn check(books: &Books<'_>, first: &Leader, next: &Leader) -> anyhow::Result<()> {
    ensure!(first.term < next.term, "term {} came after {}", next.term, first.term);
    println!("Terms rose from {} to {}.", first.term, next.term);
    let late = books.dispatched_too_late()?;
    ensure!(
        late == 0,
        "{late} orders were dispatched in the old term after the new one had begun"
    );
    println!("Nothing was dispatched in the old term after the new one had begun.");
    let wrong = books.shipped_more_or_less_than_once()?;
    ensure!(wrong == 0, "{wrong} orders were shipped more or less than once");
    println!("Each of {} orders was shipped once.", ORDERS.iter().sum::<u32>());
    let (reports, twice, missing) = (books.reports()?, books.made_twice()?, books.missing()?);
    ensure!(twice == 0, "{twice} reports were made twice");
    match missing {
        0 => println!("{reports} ticks, and each ran once: {}.", books.makers()?),
        // What was claimed before the work began is not run by others.
        1 => println!(
            "{reports} ticks, and each ran once: {}. {} has taken one with it that it had begun.",
            books.makers()?,
            first.name
        ),
        _ => bail!("{missing} ticks did not run"),
    }
    Ok(())
}

/// Looks until there is something to be seen.
fn until<T>(what: &str, mut look: impl FnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    let mut seen = Ok(None);
    wait_until(PATIENCE, || {
        seen = look();
        !matches!(seen, Ok(None))
    });
    seen?.with_context(|| format!("{what}: not within {PATIENCE:?}"))
}

/// For machines that are busy.
const PATIENCE: Duration = Duration::from_secs(60);
