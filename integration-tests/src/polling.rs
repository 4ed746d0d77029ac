//! Futures that are polled by hand, and dropped at a moment of our choice.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

/// Lets others run for a moment, between two looks at the server.
pub(crate) async fn step() {
    sleep(Duration::from_millis(2)).await;
}

/// Polls a future once.
pub(crate) async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// Polls a future so many times, each time that it is woken, or after 10 ms if it is not; then drops it, unless it has
/// ended.
pub(crate) async fn poll_times<F: Future>(times: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polled = 0;
    while polled < times {
        let woken = poll_fn(|context| {
            polled += 1;
            match future.as_mut().poll(context) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending if polled == times => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        });
        if let Ok(answer) = timeout(Duration::from_millis(10), woken).await {
            return answer;
        }
    }
    None
}

/// Drives a future for a time that may be shorter than the runtime's timer can tell, then drops it, unless it has ended.
pub(crate) async fn drive_for<F: Future>(time: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let begun = Instant::now();
    loop {
        if let Poll::Ready(output) = poll_once(future.as_mut()).await {
            return Some(output);
        }
        if begun.elapsed() >= time {
            return None;
        }
        tokio::task::yield_now().await;
    }
}
