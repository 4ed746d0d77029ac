//! Processes that stand still in the middle of their work, and go on when others have taken over.

use latchwork_core::{
    Key, Locks, Mode,
    fence::{Fence, FencedGuard},
};
use latchwork_harness::{Cluster, Endpoint, PgBouncer, PoolMode, Proxy};
use tokio::spawn;

use super::fenced;
use crate::{
    holders::Holder,
    onlooker::{Onlooker, SOON, connect, eventually, quick},
};

/// A process that holds the lock, what it works through, and one that wants the lock.
struct Scene {
    holder: Holder,
    key: Key,
    mode: Mode,
    /// What the process speaks to while it works.
    network: Proxy,
    onlooker: Onlooker,
    locks: Locks,
    _pooler: PgBouncer,
    cluster: Cluster,
}

impl Scene {
    async fn open(mode: Mode, through_pooler: bool) -> Self {
        let cluster = Cluster::start().unwrap();
        let pooler = PgBouncer::start(&cluster, PoolMode::Transaction).unwrap();
        let server: Endpoint = if through_pooler {
            pooler.endpoint()
        } else {
            cluster.endpoint()
        };
        let network = Proxy::start(server).unwrap();
        cluster.psql("CREATE TABLE work (n int)").unwrap();
        let onlooker = Onlooker::new(&cluster.url()).await;
        let locks = connect(&cluster.url(), quick()).await.locks();
        let mut holder = Holder::start(&cluster.url());
        holder.ask(
            match mode {
                Mode::Exclusive => "fence job",
                Mode::Shared => "fence-shared job",
            },
            "fenced",
        );
        Self {
            holder,
            key: locks.namespace().key("job").unwrap(),
            mode,
            network,
            onlooker,
            locks,
            _pooler: pooler,
            cluster,
        }
    }

    /// Has the process begin a transaction under the fence of its grant.
    fn begins(&mut self) {
        let connects = format!("work {}", self.network.url());
        self.holder.ask(&connects, "connected");
        self.holder.ask("begin", "begun");
    }

    /// Takes the lock over, and keeps it in the mode in which the process had it. A reader is superseded by a writer, after
    /// whom there may be readers again.
    async fn take_over(&self) -> FencedGuard {
        let next = fenced(&self.locks, self.key).await;
        if self.mode == Mode::Exclusive {
            return next;
        }
        next.release().await.unwrap();
        self.locks.acquire_fenced(self.key).shared().within(SOON).await.unwrap()
    }

    fn stored(&self) -> String {
        self.cluster.psql("SELECT count(*) FROM work").unwrap()
    }
}

async fn in_every_way(check: impl AsyncFn(Scene)) {
    for mode in [Mode::Exclusive, Mode::Shared] {
        for through_pooler in [false, true] {
            println!("{mode:?}, through a pooler: {through_pooler}");
            check(Scene::open(mode, through_pooler).await).await;
        }
    }
}

/// The proof is on its way when the process stops, and arrives when the next grant is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_proof_that_arrives_after_the_next_grant_is_refused() {
    in_every_way(async |mut scene| {
        scene.begins();
        let before = scene.network.bytes_to_server();
        scene.network.freeze();
        scene.holder.tell("prove 60000");
        let network = &scene.network;
        eventually("the proof is on its way", async || network.bytes_to_server() > before).await;
        scene.holder.stop();
        let next = scene.take_over().await;
        // The server carries it out while its process stands still.
        let answered = scene.network.bytes_to_client();
        scene.network.thaw();
        eventually("the proof is answered", async || network.bytes_to_client() > answered).await;
        scene.holder.go_on();
        let refused = scene.holder.hear("proof ");
        assert!(refused.starts_with("Superseded"), "{refused}");
        assert_eq!((scene.stored().as_str(), next.is_held()), ("0", true));
    })
    .await;
}

/// The server ends it, since its process says nothing; only then is the next grant there.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_a_stopped_process_is_ended_before_the_next_grant_and_cannot_commit() {
    in_every_way(async |mut scene| {
        scene.begins();
        scene.holder.ask("prove 500", "proof accepted");
        scene.holder.stop();
        let next = scene.take_over().await;
        let fences = [Mode::Exclusive, Mode::Shared].map(|mode| Fence::transactions_key(next.key(), mode));
        for key in fences {
            assert!(!scene.onlooker.sees_held(key).await);
        }
        scene.holder.go_on();
        assert_eq!(scene.holder.ask("commit", "committed "), "false");
        // It still believes in its lock.
        scene.begins();
        let refused = scene.holder.ask("prove 60000", "proof ");
        assert!(refused.starts_with("Superseded"), "{refused}");
        assert_eq!((scene.stored().as_str(), next.is_held()), ("0", true));
    })
    .await;
}

/// With more patience than its lock's session has: who comes next waits for it, and sees what it has stored.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_a_stopped_process_that_is_not_ended_keeps_the_next_grant_waiting_until_it_commits() {
    in_every_way(async |mut scene| {
        scene.begins();
        scene.holder.ask("prove 60000", "proof accepted");
        scene.holder.stop();
        let next = spawn({
            let (locks, key) = (scene.locks.clone(), scene.key);
            async move { fenced(&locks, key).await }
        });
        // Its lock is gone by then: the next one has it, and waits for the transaction.
        let onlooker = &scene.onlooker;
        let waits = Fence::transactions_key(scene.key, scene.mode);
        let waits = format!(
            "EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid = {} AND objid = {})",
            waits.classid(),
            waits.objid()
        );
        eventually("the next one waits for the transaction", async || {
            onlooker.is(&waits).await
        })
        .await;
        assert!(!next.is_finished());
        scene.holder.go_on();
        assert_eq!(scene.holder.ask("commit", "committed "), "true");
        assert!(next.await.unwrap().is_held());
        assert_eq!(scene.stored(), "1");
    })
    .await;
}
