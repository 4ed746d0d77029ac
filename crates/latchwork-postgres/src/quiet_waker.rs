//! A waker for a task that owns both ends of a channel: the driver's connection and those who wait for its answers are
//! polled by one task here, and wake each other each time.
//!
//! A runtime that finds a task woken during its own poll puts it at the end of the queue and wakes another thread to
//! take it from there. That costs more than all else that is done for a lock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures_util::task::AtomicWaker;

/// Set while somebody polls.
const POLLS: u8 = 1;
/// Set when somebody is woken.
const WOKEN: u8 = 2;

/// How often one poll is repeated before the task gives way to others.
const REPEATS: usize = 16;

/// Passes wakes on to the task, but for those that come while it is being polled: then it polls again itself.
#[derive(Debug)]
pub(crate) struct QuietWaker {
    inner: Arc<Inner>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Inner {
    task: AtomicWaker,
    state: AtomicU8,
}

impl Wake for Inner {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.fetch_or(WOKEN, Ordering::AcqRel) & POLLS == 0 {
            self.task.wake();
        }
    }
}

impl QuietWaker {
    pub(crate) fn new() -> Self {
        let inner = Arc::new(Inner::default());
        Self {
            waker: Waker::from(Arc::clone(&inner)),
            inner,
        }
    }

    /// Polls until it is ready, or pending with nobody having been woken meanwhile.
    ///
    /// A wake that comes just before it is ready does not reach the task: whatever is polled here must be polled again
    /// by the next call.
    pub(crate) fn poll<T>(&self, context: &Context<'_>, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        self.inner.task.register(context.waker());
        let mut quiet = Context::from_waker(&self.waker);
        for _ in 0..REPEATS {
            self.inner.state.store(POLLS, Ordering::Release);
            let answer = poll(&mut quiet);
            let woken = self.inner.state.fetch_and(!POLLS, Ordering::AcqRel) & WOKEN != 0;
            if answer.is_ready() || !woken {
                return answer;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        sync::{
            atomic::AtomicUsize,
            mpsc::{Sender, channel},
        },
        time::Duration,
    };

    use tokio::{
        runtime::Builder,
        sync::mpsc::{UnboundedReceiver, unbounded_channel},
        time::timeout,
    };

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A task's waker, and how often it was woken.
    fn task() -> (Waker, Arc<Counter>) {
        let counter = Arc::new(Counter::default());
        (Waker::from(Arc::clone(&counter)), counter)
    }

    fn woken(counter: &Counter) -> usize {
        counter.0.load(Ordering::Relaxed)
    }

    #[test]
    fn what_is_woken_by_its_own_poll_is_polled_again_and_the_task_not_woken() {
        let (waker, counter) = task();
        let quiet = QuietWaker::new();
        let mut polls = 0;
        let answer = quiet.poll(&Context::from_waker(&waker), |context| {
            polls += 1;
            if polls < 3 {
                context.waker().wake_by_ref();
                Poll::Pending
            } else {
                Poll::Ready(polls)
            }
        });
        assert_eq!(answer, Poll::Ready(3));
        assert_eq!(woken(&counter), 0);
    }

    #[test]
    fn a_wake_between_two_polls_wakes_the_task_that_polled_last() {
        let (first, of_first) = task();
        let (last, of_last) = task();
        let quiet = QuietWaker::new();
        let mut kept = None;
        for waker in [&first, &last] {
            let answer = quiet.poll(&Context::from_waker(waker), |context| {
                kept = Some(context.waker().clone());
                Poll::<()>::Pending
            });
            assert!(answer.is_pending());
        }
        kept.unwrap().wake();
        assert_eq!((woken(&of_first), woken(&of_last)), (0, 1));
    }

    #[test]
    fn one_that_wakes_itself_for_ever_lets_others_have_a_turn() {
        let (waker, counter) = task();
        let answer = QuietWaker::new().poll(&Context::from_waker(&waker), |context| {
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert!(answer.is_pending());
        assert_eq!(woken(&counter), 1);
    }

    #[test]
    fn a_wake_from_elsewhere_is_never_lost() {
        for _ in 0..2_000 {
            let (waker, counter) = task();
            let quiet = QuietWaker::new();
            let (sender, mut receiver) = tokio::sync::oneshot::channel();
            let other = std::thread::spawn(move || sender.send(()));
            let context = Context::from_waker(&waker);
            let mut poll = |context: &mut Context<'_>| std::pin::Pin::new(&mut receiver).poll(context);
            while quiet.poll(&context, &mut poll).is_pending() {
                while woken(&counter) == 0 {
                    std::thread::yield_now();
                }
            }
            other.join().unwrap().unwrap();
        }
    }

    /// For so many steps, so that two threads meet at every step of each other.
    fn linger(steps: usize) {
        (0..steps).for_each(|_| std::hint::spin_loop());
    }

    /// Asks another thread and waits for its answer. Every second time as a link does: the first poll asks and is ready,
    /// and the next one must find what it would have been woken for.
    async fn ask(
        quiet: &QuietWaker,
        ask: &Sender<usize>,
        number: usize,
        answers: &mut UnboundedReceiver<usize>,
    ) -> usize {
        let mut is_asked = false;
        poll_fn(|context| {
            if is_asked {
                return quiet.poll(context, |context| answers.poll_recv(context));
            }
            let early = quiet.poll(context, |context| {
                if !is_asked {
                    is_asked = true;
                    ask.send(number).unwrap();
                    linger(number % 64);
                }
                let answer = answers.poll_recv(context);
                linger(number % 1_021);
                if number.is_multiple_of(2) || answer.is_ready() {
                    Poll::Ready(answer)
                } else {
                    Poll::Pending
                }
            });
            match early {
                Poll::Ready(Poll::Pending) => quiet.poll(context, |context| answers.poll_recv(context)),
                Poll::Ready(answer) => answer,
                Poll::Pending => Poll::Pending,
            }
        })
        .await
        .expect("the other thread answers")
    }

    #[test]
    fn no_wake_is_lost_between_a_poll_that_is_ready_and_the_next() {
        const TIMES: usize = 50_000;
        let (asks, asked) = channel();
        let (answer, mut answers) = unbounded_channel();
        let other = std::thread::spawn(move || {
            for number in asked {
                linger(number % 509);
                answer.send(number).unwrap();
            }
        });
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let quiet = QuietWaker::new();
            for number in 0..TIMES {
                let answer = timeout(Duration::from_secs(20), ask(&quiet, &asks, number, &mut answers)).await;
                assert_eq!(answer, Ok(number), "a wake was lost");
            }
        });
        drop(asks);
        other.join().unwrap();
    }
}
