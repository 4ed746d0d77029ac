//! What the engine is promised, with many threads at the gate.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    thread,
};

use tokio::sync::oneshot;

use crate::{
    Locks, LocksOptions, Moment,
    clock::Clock,
    engine::{
        AcquireRequest, AnnounceRequest, Attempt, Engine, EngineError, EngineEvents, FencedRequest, Grant,
        IncumbentRequest, LedgerRequest, ReleaseRequest, SlotsRequest,
    },
    key::Key,
    locks::lock,
    mode::Mode,
    session::SessionHealth,
    testing::Polled,
};

/// An engine that one other holder disturbs, and that looks closely at what it is asked.
#[derive(Debug)]
struct Watching {
    session: Arc<SessionHealth>,
    keys: Mutex<HashMap<Key, Watched>>,
}

#[derive(Debug, Default)]
struct Watched {
    held: Option<Mode>,
    waits: Option<AcquireRequest>,
    /// The last flight that was a request to wait.
    last: u64,
    asked: u64,
}

impl Engine for Watching {
    fn attach(&self, _: EngineEvents) {}

    fn acquire(&self, request: AcquireRequest) {
        if request.attempt == Attempt::Probe {
            let grant = Grant::new(Arc::clone(&self.session));
            return request.reply.send(Ok(Some(grant)));
        }
        // Room for other threads to overtake.
        thread::yield_now();
        let mut keys = lock(&self.keys);
        let watched = keys.entry(request.key).or_default();
        assert!(
            watched.held.is_none(),
            "{} is asked for before it was given back",
            request.key
        );
        assert!(watched.waits.is_none(), "{} is asked for twice", request.key);
        watched.asked += 1;
        let waits = !matches!(request.attempt, Attempt::Once { .. });
        if waits {
            watched.last = request.flight();
        }
        // Two in a row find the key busy: the second may be the wait that follows the first, until it is abandoned.
        let granted = watched.asked % 5 > 1;
        if waits && !granted {
            watched.waits = Some(request);
            return;
        }
        if granted {
            watched.held = Some(request.mode);
        }
        drop(keys);
        let grant = Grant::new(Arc::clone(&self.session));
        request.reply.send(Ok(granted.then_some(grant)));
    }

    fn abandon(&self, key: Key, flight: u64) {
        let mut keys = lock(&self.keys);
        let watched = keys.get_mut(&key).expect("a key that was asked for");
        assert!(watched.last >= flight, "{key} is abandoned before it was asked for");
        let wait = watched.waits.take_if(|wait| wait.flight() == flight);
        drop(keys);
        if let Some(wait) = wait {
            wait.reply.send(Ok(None));
        }
    }

    fn release(&self, request: ReleaseRequest) {
        thread::yield_now();
        let held = lock(&self.keys)
            .get_mut(&request.key)
            .and_then(|watched| watched.held.take());
        assert_eq!(held, Some(request.mode), "{} is given back once", request.key);
        request.reply.send(Ok(true));
    }

    fn take_slots(&self, _: SlotsRequest) {}

    /// Answers that the connection was lost: nobody asks for these here.
    fn acquire_fenced(&self, _: FencedRequest) {}

    fn incumbent(&self, _: IncumbentRequest) {}

    fn ledger(&self, _: LedgerRequest) {}

    fn announce(&self, _: AnnounceRequest) {}

    fn close(&self, done: oneshot::Sender<()>) {
        let _ = done.send(());
    }

    fn outage(&self) -> Option<EngineError> {
        None
    }

    fn clock(&self) -> Clock {
        Clock::system()
    }
}

#[test]
fn an_engine_is_asked_in_order_whatever_the_threads_do() {
    let keys = [Key::bigint(1), Key::bigint(2)];
    let engine = Arc::new(Watching {
        session: Arc::new(SessionHealth::new(1, Clock::system(), Moment::NEVER)),
        keys: Mutex::default(),
    });
    let locks = Locks::new(Arc::clone(&engine) as Arc<dyn Engine>, LocksOptions::default());
    thread::scope(|scope| {
        for number in 0..4 {
            let locks = &locks;
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(number);
                for _ in 0..12_000 {
                    let key = keys[rng.usize(..keys.len())];
                    let mode = if rng.u8(..4) == 0 {
                        Mode::Shared
                    } else {
                        Mode::Exclusive
                    };
                    let mut acquire = Polled::new(locks.acquire(key).mode(mode).without_limit());
                    for _ in 0..rng.u8(..3) {
                        if acquire.poll().is_ready() {
                            break;
                        }
                        thread::yield_now();
                    }
                }
            });
        }
    });
    for (key, watched) in lock(&engine.keys).iter() {
        assert!(
            watched.held.is_none() && watched.waits.is_none(),
            "{key} is left behind: {watched:?}"
        );
        assert!(watched.asked > 100, "{key} was hardly asked for: {watched:?}");
    }
    assert_eq!((locks.stats().keys, locks.stats().holders), (0, 0));
}
