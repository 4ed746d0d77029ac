//! `GET /ai?ms=N[&stream=1]`: asks a model that takes its time, in one of few slots over all instances.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use latchwork::Permit;
use latchwork_http::HeldPermit;
use serde::{Deserialize, Serialize};
use tokio::{sync::mpsc, time::sleep};

use crate::{count, error::ShopError, failure::chain, instance::Shop};

/// What is asked for.
#[derive(Debug, Deserialize)]
pub struct Question {
    #[serde(default)]
    ms: u64,
    #[serde(default)]
    stream: u8,
}

impl Question {
    /// Whether the answer is to come line by line, as the model speaks.
    #[must_use]
    pub const fn is_streamed(&self) -> bool {
        self.stream != 0
    }
}

/// A call that is being answered.
#[derive(Debug)]
pub struct Call {
    slot: u32,
    words: mpsc::Receiver<Word>,
}

type Word = Result<&'static str, ShopError>;

/// The slot and what the model says: all of it, or one word.
#[derive(Debug, Serialize)]
pub struct Answer {
    slot: u32,
    answer: String,
}

impl Call {
    /// The type of what [`lines`](Self::lines) makes.
    pub const LINES: &str = "application/x-ndjson";

    /// Begins one call, which takes the slot of its request along.
    ///
    /// The call is a task of its own, so that it ends in order also when the client leaves and its handler is dropped.
    /// It stops when this value is dropped. It has the slot until it is counted no more.
    ///
    /// # Errors
    ///
    /// Fails when the request has no slot any more.
    pub fn begin(shop: &Shop, held: &HeldPermit, question: &Question) -> Result<Self, ShopError> {
        let permit = held.take().ok_or(ShopError::NoSlot)?;
        let (to, words) = mpsc::channel(1);
        tokio::spawn(answer(shop.clone(), permit, Duration::from_millis(question.ms), to));
        let slot = held.slot();
        Ok(Self { slot, words })
    }

    /// Waits for all that the model says.
    ///
    /// # Cancel safety
    ///
    /// Dropped midway, it stops the call.
    ///
    /// # Errors
    ///
    /// Fails when the call cannot be counted, or its slot is lost.
    pub async fn whole(mut self) -> Result<Answer, ShopError> {
        let mut words = Vec::new();
        while let Some(word) = self.words.recv().await.transpose()? {
            words.push(word);
        }
        Ok(Answer {
            slot: self.slot,
            answer: words.join(" "),
        })
    }

    /// A line of JSON for each word as it comes. An error ends the stream, so that the client sees that there should
    /// have been more.
    pub fn lines(self) -> impl Stream<Item = Result<Bytes, ShopError>> + Send + 'static {
        stream::unfold(self, |mut call| async move {
            let word = call.words.recv().await?;
            let line = word.and_then(|word| line(call.slot, word));
            Some((line, call))
        })
    }
}

fn line(slot: u32, word: &str) -> Result<Bytes, ShopError> {
    let answer = word.to_owned();
    let mut line = serde_json::to_vec(&Answer { slot, answer })?;
    line.push(b'\n');
    Ok(line.into())
}

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
