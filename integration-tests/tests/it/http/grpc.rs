//! Policies for gRPC calls: two instances of one tonic server on one database.

mod instance;
mod locks;
mod rates;
mod services;
mod transactions;

use std::time::Duration;

use latchwork_harness::{
    Cluster,
    grpc::call,
    http::{Event, in_time},
};
use latchwork_postgres::schema;
use tokio::task::JoinHandle;
use tonic::{Code, Request, Response, Status, transport::Channel};

use self::instance::Instance;
use super::tx::{TABLES, is_clean};
use crate::onlooker::Onlooker;

/// How long a patient call waits for its turn.
const PATIENT: Duration = Duration::from_secs(15);

struct Shop {
    cluster: Cluster,
    onlooker: Onlooker,
    one: Instance,
    other: Instance,
}

impl Shop {
    async fn open() -> Self {
        let cluster = Cluster::start().unwrap();
        let onlooker = Onlooker::new(&cluster.url()).await;
        onlooker.0.batch_execute(TABLES).await.unwrap();
        schema::install(&onlooker.0).await.unwrap();
        let one = Instance::start(&cluster.url()).await;
        let other = Instance::start(&cluster.url()).await;
        Self {
            cluster,
            onlooker,
            one,
            other,
        }
    }

    async fn charges(&self) -> i64 {
        self.onlooker.number("SELECT count(*) FROM charges").await
    }

    async fn is_clean(&self) {
        is_clean(&self.onlooker).await;
    }

    /// Ends both instances, and sees that the server has nothing left of them.
    async fn close(self) {
        self.one.close().await;
        self.other.close().await;
        is_clean(&self.onlooker).await;
    }
}

/// Calls a method for an order, as somebody, and has its handler succeed.
async fn asks(channel: &Channel, path: &'static str, key: &str) -> Result<Vec<u8>, Status> {
    ends(channel, path, key, "well").await
}

/// Calls a method, and says how its handler is to end.
async fn ends(channel: &Channel, path: &'static str, key: &str, how: &'static str) -> Result<Vec<u8>, Status> {
    let mut request = Request::new(Vec::new());
    request.metadata_mut().insert("x-key", key.parse().unwrap());
    request.metadata_mut().insert("x-ends", how.parse().unwrap());
    call(channel, path, request).await.map(Response::into_inner)
}

/// A call in a task of its own, which is all that has the channel.
fn spawn(channel: Channel, path: &'static str) -> JoinHandle<Result<Vec<u8>, Status>> {
    tokio::spawn(async move { asks(&channel, path, "42").await })
}

async fn code(channel: &Channel, path: &'static str) -> Code {
    asks(channel, path, "42")
        .await
        .map_or_else(|status| status.code(), |_| Code::Ok)
}

/// How a call can end for its client before there is an answer.
#[derive(Clone, Copy, Debug)]
enum Gone {
    /// The client cancels the call, and keeps its connection.
    Cancelled,
    /// The connection is cut, and the client knows as little as the server.
    Cut,
}

/// Has a handler run whose client then is gone, and sees that it is dropped.
async fn leaves(instance: &mut Instance, path: &'static str, how: Gone) {
    let proxy = instance.proxy();
    let kept = match how {
        Gone::Cancelled => instance.channel.clone(),
        Gone::Cut => instance::channel_through(&proxy),
    };
    let client = in_time(enters(instance, &kept, path)).await;
    match how {
        Gone::Cancelled => client.abort(),
        Gone::Cut => proxy.cut(),
    }
    instance.sees(Event::Dropped).await;
    if let Ok(answer) = in_time(client).await {
        answer.unwrap_err();
    }
}

/// Calls until a handler runs. Who was there before may give up its lock or slot a moment after its answer.
async fn enters(instance: &mut Instance, channel: &Channel, path: &'static str) -> JoinHandle<Result<Vec<u8>, Status>> {
    loop {
        let mut client = spawn(channel.clone(), path);
        tokio::select! {
            () = instance.sees(Event::Entered) => return client,
            refused = &mut client => {
                let code = refused.unwrap().unwrap_err().code();
                assert!(matches!(code, Code::Aborted | Code::ResourceExhausted), "{code:?}");
            }
        }
    }
}
