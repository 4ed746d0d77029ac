//! A call to a model that takes its time.

use std::time::Duration;

use latchwork::Permit;
use tokio::{sync::mpsc, time::sleep};

use crate::{count, error::ShopError, failure::chain, instance::Shop};

/// Makes one call, which takes `time`, and returns its words as they come.
///
/// The call is a task of its own, so that it ends in order also when the client leaves and its handler is dropped. It
/// stops when the receiver is dropped. It has the slot until it is counted no more.
#[must_use]
pub fn call(shop: Shop, permit: Permit, time: Duration) -> mpsc::Receiver<Word> {
    let (to, words) = mpsc::channel(1);
    tokio::spawn(answer(shop, permit, time, to));
    words
}

/// A word of the answer, or why there are no more.
pub type Word = Result<&'static str, ShopError>;

async fn answer(shop: Shop, permit: Permit, time: Duration, to: mpsc::Sender<Word>) {
    let outcome = async {
        let counted = count::begin(&shop).await?;
        let spoken = tokio::select! {
            // It stops when the slot is lost, for somebody else may have it soon.
            spoken = permit.run(speak(time, &to)) => spoken,
            // Nobody listens any more.
            () = to.closed() => Ok(()),
        };
        if let Err(error) = count::end(&shop, counted).await {
            // The client has its answer all the same.
            tracing::error!("a call is still counted: {}", chain(&error));
        }
        Ok(spoken?)
    };
    if let Err(error) = outcome.await {
        // Somebody who has left does not need to know.
        let _ = to.send(Err(error)).await;
    }
    // Awaited, so that the slot is free when the client has its answer. One that was lost is free already.
    let _ = permit.release().await;
}

/// Stands in for the model.
async fn speak(time: Duration, to: &mpsc::Sender<Word>) {
    for word in WORDS {
        // Whether somebody listens is looked at elsewhere.
        let _ = to.send(Ok(word)).await;
        sleep(time / WORDS.len() as u32).await;
    }
}

const WORDS: [&str; 8] = ["Ask", "the", "same", "five", "times", "before", "you", "buy."];
