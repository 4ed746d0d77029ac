//! Transactions for HTTP requests.

mod begins;
mod ends;

use latchwork_harness::http::in_time;
use latchwork_http::tx::{TxProvider as _, TxRequest};
use latchwork_sea_orm::{Key, PooledTx, SeaOrmTx};

use crate::support::World;

const KEY: Key = Key::bigint(5);

async fn provider(world: &World, connections: u32) -> SeaOrmTx {
    world.database(connections).await.into()
}

async fn begin(provider: &SeaOrmTx, request: TxRequest) -> Option<PooledTx> {
    in_time(provider.begin(request)).await.unwrap()
}
