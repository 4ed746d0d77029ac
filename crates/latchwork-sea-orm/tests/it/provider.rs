//! Transactions for HTTP requests.

mod begins;
mod ends;

use std::time::Duration;

use latchwork_harness::http::in_time;
use latchwork_http::tx::{TxError, TxProvider as _, TxRequest};
use latchwork_sea_orm::{Key, PooledTx, SeaOrmTx};

use crate::support::World;

const KEY: Key = Key::bigint(5);

async fn provider(world: &World, connections: u32) -> SeaOrmTx {
    world.database(connections).await.into()
}

async fn begin(provider: &SeaOrmTx, request: TxRequest) -> Option<PooledTx> {
    in_time(provider.begin(request)).await.unwrap()
}

/// One whose every answer has little time. Where the machine has none to spare it is begun again.
async fn begin_in_a_hurry(provider: &SeaOrmTx) -> PooledTx {
    let request = TxRequest::new(KEY).with_answer_within(Duration::from_millis(200));
    in_time(async {
        loop {
            match provider.begin(request.clone()).await {
                Ok(Some(tx)) => break tx,
                Ok(None) | Err(TxError::Unavailable(_)) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    })
    .await
}
