//! `GET /ai?ms=N[&stream=1]`: asks a model that takes its time, in one of few slots over all instances.

use std::time::Duration;

use axum::{
    Json,
    body::Body,
    extract::{Query, State},
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use futures_util::stream;
use latchwork::tower::HeldPermit;
use serde::Deserialize;
use serde_json::json;
use shop::{
    Shop, ShopError,
    ai::{Word, call},
};
use tokio::sync::mpsc;

use crate::error::Failed;

#[derive(Deserialize)]
pub(crate) struct Question {
    #[serde(default)]
    ms: u64,
    #[serde(default)]
    stream: u8,
}

/// Answers with the slot and what the model says: when that is complete, or a line for each word as it comes.
pub(crate) async fn ask(
    State(shop): State<Shop>,
    held: HeldPermit,
    Query(question): Query<Question>,
) -> Result<Response, Failed> {
    let slot = held.slot();
    let permit = held.take().ok_or(ShopError::NoSlot)?;
    let mut words = call(shop, permit, Duration::from_millis(question.ms));
    if question.stream != 0 {
        return Ok(streamed(slot, words));
    }
    let mut answer = Vec::new();
    while let Some(word) = words.recv().await.transpose()? {
        answer.push(word);
    }
    let answer = answer.join(" ");
    Ok(Json(json!({ "slot": slot, "answer": answer })).into_response())
}

fn streamed(slot: u32, words: mpsc::Receiver<Word>) -> Response {
    let lines = stream::unfold(words, move |mut words| async move {
        let word = words.recv().await?;
        // An error ends the stream, so that the client sees that there should have been more.
        let line = word.map(|word| format!("{}\n", json!({ "slot": slot, "answer": word })));
        Some((line, words))
    });
    ([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}
