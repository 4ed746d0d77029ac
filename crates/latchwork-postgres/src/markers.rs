//! Markers: what workers and pools show themselves to each other by, as shared locks of keys whose second halves speak.

use std::sync::Arc;

use latchwork_core::{
    Key, Mode,
    engine::{AnnounceRequest, Announced, Grant},
};

use crate::{
    error::StatementError,
    link::{End, Link},
    shared::Shared,
    sql,
};

/// Holds a pool's marker, and finds the other markers of the pool.
pub(crate) async fn announce(shared: &Shared, link: &mut Link, request: AnnounceRequest) -> Result<(), End> {
    let Some((pool, limit)) = request.marker.as_pair() else {
        return Ok(());
    };
    let held = request.held.filter(|held| held.session().id() == link.health.id());
    if held.is_none()
        && let Err(error) = hold_marker(shared, link, request.marker).await?
    {
        request.reply.send(Err(error.into_engine()));
        return Ok(());
    }
    let pool = &pool.cast_unsigned();
    // A server whose lock table is full refuses this too; then the others stay unknown.
    let asked = link
        .ask_or_refuse(|client| async move { client.query(sql::MARKERS, &[pool]).await })
        .await?;
    link.settle().await?;
    let others = asked.map(|rows| {
        let halves = rows.iter().map(|row| row.get::<_, u32>(0).cast_signed());
        halves.filter(|other| *other != limit).collect()
    });
    let others = others.map_err(|error| StatementError::from_driver(error).into_engine());
    let grant = held.unwrap_or_else(|| Grant::new(Arc::clone(&link.health)));
    request.reply.send(Ok(Announced { grant, others }));
    Ok(())
}

/// Takes a pool's marker where there is room for it. One that the server refuses is no reason to end the session.
async fn hold_marker(shared: &Shared, link: &mut Link, marker: Key) -> Result<Result<(), StatementError>, End> {
    let Some(reservation) = shared.room.reserve() else {
        let held = shared.room.taken();
        return Ok(Err(StatementError::TooManyHeld { held }));
    };
    let (client, take) = (Arc::clone(&link.client), sql::try_once(marker, Mode::Shared));
    let taken = match link.call(async move { client.query(&take, &[]).await }).await? {
        Ok(rows) if rows.first().is_some_and(|row| row.get(0)) => Ok(()),
        // Nobody holds a marker in another mode.
        Ok(_) => Err(StatementError::Unreadable),
        // It may have been granted before the error.
        Err(_) if link.own_locks().await?.contains(&(marker, Mode::Shared)) => Ok(()),
        Err(error) => Err(StatementError::from_driver(error)),
    };
    if taken.is_ok() {
        reservation.keep();
        link.held += 1;
    }
    Ok(taken)
}
