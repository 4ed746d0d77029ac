//! The service: the part of this example that is meant to be copied.

use axum::extract::{Path, Query, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use latchwork::Locks;
use latchwork::tower::key::param;
use latchwork::tower::{HeldPermit, LockLayer, SlotLayer};
use serde::Serialize;

use crate::failure::Failure;
use crate::work::{Visit, Work};

/// How many requests may be with the model at once, over all instances.
pub(crate) const MODEL_SLOTS: u32 = 5;

/// Builds one instance of the service on the locks that it shares with the others.
pub(crate) fn router(locks: &Locks, instance: &'static str) -> Result<Router, Failure> {
    // One charge at a time for each order, whatever the instance: the others are told 409.
    let one_per_order = LockLayer::new(locks.clone(), ("order", param("id")))?;
    // So many requests at once over all instances: the others are told 503.
    let model_slots = SlotLayer::global(locks.slots("model", MODEL_SLOTS)?);
    Ok(Router::new()
        .route("/orders/{id}/charge", post(charge).route_layer(one_per_order))
        .route("/ai", get(ask_model).route_layer(model_slots))
        .with_state(instance))
}

async fn charge(
    State(instance): State<&'static str>,
    Path(order): Path<String>,
    Query(work): Query<Work>,
) -> Json<Charged> {
    let visit = work.run().await;
    Json(Charged { instance, order, visit })
}

async fn ask_model(
    State(instance): State<&'static str>,
    permit: HeldPermit,
    Query(work): Query<Work>,
) -> Json<Answered> {
    let slot = permit.slot();
    let visit = work.run().await;
    Json(Answered { instance, slot, visit })
}

#[derive(Serialize)]
struct Charged {
    instance: &'static str,
    order: String,
    #[serde(flatten)]
    visit: Visit,
}

#[derive(Serialize)]
struct Answered {
    instance: &'static str,
    slot: u32,
    #[serde(flatten)]
    visit: Visit,
}
