use std::{
    future::{Future, poll_fn},
    pin::Pin,
};

use deadpool_postgres::{ConfigConnectImpl, Connect};
use tokio::{runtime::Handle, task::JoinHandle};
use tokio_postgres::{
    Client, Config, Error, Socket,
    tls::{MakeTlsConnect, TlsConnect},
};

/// Makes a pool's connections on one runtime, whichever asks for them.
///
/// A connection belongs to the runtime that it was made on. Each worker of actix-web has a runtime of its own, and they
/// end one by one: without this a connection ends with the worker that has made it, under a request of another worker
/// that has it from the pool.
///
/// # Examples
///
/// ```no_run
/// use deadpool_postgres::{Manager, ManagerConfig, Pool};
/// use latchwork_postgres::transaction::OnRuntime;
/// use tokio_postgres::NoTls;
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let config: tokio_postgres::Config = "postgres://shop@db.internal/shop".parse()?;
/// // On the program's runtime, before the server's workers are there.
/// let manager = Manager::from_connect(config, OnRuntime::current(NoTls), ManagerConfig::default());
/// let pool = Pool::builder(manager).max_size(16).build()?;
/// # let _ = pool;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct OnRuntime<C> {
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
    /// Connections on the runtime that this is called in.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    #[must_use]
    pub fn current(tls: T) -> Self {
        Self::new(Handle::current(), ConfigConnectImpl { tls })
    }
}

impl<C> OnRuntime<C> {
    /// What `connect` makes, on a runtime.
    pub const fn new(runtime: Handle, connect: C) -> Self {
        Self { runtime, connect }
    }
}

impl<C: Connect> Connect for OnRuntime<C> {
    fn connect(&self, config: &Config) -> Connecting<'_> {
        let mut connecting = self.connect.connect(config);
        Box::pin(poll_fn(move |context| {
            let _entered = self.runtime.enter();
            connecting.as_mut().poll(context)
        }))
    }
}

type Connecting<'a> = Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + 'a>>;
