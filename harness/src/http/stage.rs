use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};

use super::in_time;

/// What happens to a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there is no more to see")]
pub enum Event {
    /// It has begun.
    Entered,
    /// It has run to its end.
    Done,
    /// It was dropped before that.
    Dropped,
}

/// Where a handler waits until it is told to go on.
#[derive(Clone, Debug)]
pub struct Stage {
    events: mpsc::UnboundedSender<Event>,
    go: Arc<Semaphore>,
}

/// Sees what happens on a stage.
#[derive(Debug)]
pub struct Watcher {
    events: mpsc::UnboundedReceiver<Event>,
    go: Arc<Semaphore>,
}

/// A stage for the handlers, and a watcher for the test.
#[must_use]
pub fn stage() -> (Stage, Watcher) {
    let (to, events) = mpsc::unbounded_channel();
    let go = Arc::new(Semaphore::new(0));
    let stage = Stage {
        events: to,
        go: Arc::clone(&go),
    };
    (stage, Watcher { events, go })
}

impl Stage {
    /// Runs until the watcher lets one go.
    pub async fn play(&self) {
        let mut end = End {
            stage: self,
            event: Event::Dropped,
        };
        self.tell(Event::Entered);
        if let Ok(permit) = self.go.acquire().await {
            permit.forget();
        }
        end.event = Event::Done;
    }

    /// Tells the watcher.
    pub fn tell(&self, event: Event) {
        // The test may be over.
        let _ = self.events.send(event);
    }
}

struct End<'a> {
    stage: &'a Stage,
    event: Event,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.stage.tell(self.event);
    }
}

impl Watcher {
    /// Waits for what happens next.
    ///
    /// # Panics
    ///
    /// If something else happens, or nothing.
    pub async fn sees(&mut self, event: Event) {
        assert_eq!(in_time(self.events.recv()).await, Some(event));
    }

    /// Waits for what happens next, whatever it is.
    ///
    /// # Panics
    ///
    /// If nothing happens.
    pub async fn next(&mut self) -> Event {
        in_time(self.events.recv()).await.expect("the stage is there")
    }

    /// Whether nothing has happened since.
    pub fn has_seen_nothing(&mut self) -> bool {
        self.events.try_recv().is_err()
    }

    /// Lets so many handlers go on.
    pub fn lets_go(&self, handlers: usize) {
        self.go.add_permits(handlers);
    }
}
