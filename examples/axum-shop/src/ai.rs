//! `GET /ai?ms=N[&stream=1]`: asks a model that takes its time, in one of few slots over all instances.

mod count;

use std::time::Duration;

use axum::{
    Json,
    body::Body,
    extract::{Query, State},
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use futures_util::stream;
use latchwork::{Permit, tower::HeldPermit};
use serde::{Deserialize, Serialize};
use tokio::{sync::mpsc, time::sleep};

use crate::{error::ShopError, failure::chain, shop::Shop};

#[derive(Deserialize)]
pub(crate) struct Question {
    #[serde(default)]
    ms: u64,
    #[serde(default)]
    stream: u8,
}

#[derive(Serialize)]
struct Answer {
    slot: u32,
    answer: String,
}

/// Answers with the slot and what the model says: when that is complete, or a line for each word as it comes.
pub(crate) async fn ask(
    State(shop): State<Shop>,
    held: HeldPermit,
    Query(question): Query<Question>,
) -> Result<Response, ShopError> {
    let slot = held.slot();
    let permit = held.take().ok_or(ShopError::NoSlot)?;
    let (to, mut words) = mpsc::channel(1);
    // In a task of its own, which ends in order also when the client leaves and this handler is dropped.
    tokio::spawn(call(shop, permit, Duration::from_millis(question.ms), to));
    if question.stream != 0 {
        return Ok(streamed(slot, words));
    }
    let mut answer = Vec::new();
    while let Some(word) = words.recv().await.transpose()? {
        answer.push(word);
    }
    let answer = answer.join(" ");
    Ok(Json(Answer { slot, answer }).into_response())
}

fn streamed(slot: u32, words: mpsc::Receiver<Word>) -> Response {
    let lines = stream::unfold(words, move |mut words| async move {
        let line = words.recv().await?.and_then(|word| {
            let answer = word.to_owned();
            Ok(serde_json::to_string(&Answer { slot, answer })? + "\n")
        });
        Some((line, words))
    });
    ([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

/// Makes one call. It has the slot until it is counted no more.
async fn call(shop: Shop, permit: Permit, time: Duration, to: mpsc::Sender<Word>) {
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

type Word = Result<&'static str, ShopError>;

const WORDS: [&str; 8] = ["Ask", "the", "same", "five", "times", "before", "you", "buy."];
