//! Where the connections of a pool live.

use std::future::poll_fn;

use deadpool_postgres::{ConfigConnectImpl, Connect};
use futures_util::future::BoxFuture;
use tokio::{runtime::Handle, task::JoinHandle};
use tokio_postgres::{
    Client, Config, Error, Socket,
    tls::{MakeTlsConnect, TlsConnect},
};

/// Makes connections on one runtime, whichever asks for them.
///
/// Each worker of actix-web has a runtime of its own, and they end one by one. A connection belongs to the runtime that
/// it was made on: it would end with the worker that made it, under a request of another one that has it from the pool.
#[derive(Debug)]
pub(crate) struct OnRuntime<C> {
    runtime: Handle,
    connect: C,
}

impl<T> OnRuntime<ConfigConnectImpl<T>>
where
    T: MakeTlsConnect<Socket> + Clone + Sync + Send + 'static,
    T::Stream: Sync + Send,
    T::TlsConnect: Sync + Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    pub(crate) const fn new(runtime: Handle, tls: T) -> Self {
        let connect = ConfigConnectImpl { tls };
        Self { runtime, connect }
    }
}

impl<C: Connect> Connect for OnRuntime<C> {
    fn connect(&self, config: &Config) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), Error>> {
        let mut connecting = self.connect.connect(config);
        Box::pin(poll_fn(move |context| {
            let _entered = self.runtime.enter();
            connecting.as_mut().poll(context)
        }))
    }
}
