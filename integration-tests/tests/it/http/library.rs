//! The database libraries whose transactions handlers are given: how one of them connects, and runs SQL.

use std::{
    error::Error,
    fmt::Debug,
    future::{Future, ready},
    sync::Arc,
    time::Duration,
};

use deadpool_postgres::{Manager, Pool};
use diesel::{
    PgConnection, QueryableByName,
    connection::CacheSize,
    connection::SimpleConnection as _,
    r2d2::{self, ConnectionManager, CustomizeConnection},
    sql_query,
    sql_types::BigInt,
};
use diesel_async::{
    AsyncConnection as _, AsyncPgConnection, RunQueryDsl as _, SimpleAsyncConnection as _,
    pooled_connection::{AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod, bb8, deadpool},
};
use futures_util::future::try_join_all;
use latchwork_diesel::DieselTx;
use latchwork_diesel_async::DieselAsyncTx;
use latchwork_http::TxProvider;
use latchwork_postgres::transaction::DeadpoolTx;
use latchwork_sea_orm::SeaOrmTx;
use latchwork_sqlx::SqlxTx;
use sea_orm::{ConnectionTrait as _, DatabaseConnection, DbBackend, Statement};
use sqlx::{
    AssertSqlSafe, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::sync::Mutex;
use tokio_postgres::NoTls;

pub(super) trait Library: Clone + Send + Sync + 'static {
    type Provider: TxProvider + Debug;

    /// How many connections a pool needs to end the session of a statement that a handler has left running.
    const TO_END_A_SESSION: usize = 1;

    /// Whether it knows before COMMIT that the connection has ended, and so that nothing was stored.
    const NOTICES_LOSS: bool = false;

    /// A provider over a pool of this size, which connects when it has to.
    fn connect(url: &str, size: usize) -> Self::Provider;

    /// The same over a pooler in transaction mode, which keeps no prepared statements.
    fn connect_behind_pooler(url: &str, size: usize) -> impl Future<Output = Self::Provider> {
        ready(Self::connect(url, size))
    }

    /// Runs statements that have no rows.
    fn run(tx: &mut Tx<Self>, sql: &str) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Runs a statement that has one row, with a number that is called `n`.
    fn number(tx: &mut Tx<Self>, sql: &str) -> impl Future<Output = Result<i64, Failed>> + Send;
}

/// What handlers are given.
pub(super) type Tx<L> = <<L as Library>::Provider as TxProvider>::Tx;

pub(super) type Failed = Box<dyn Error + Send + Sync>;

#[derive(Clone)]
pub(super) enum Deadpool {}

impl Library for Deadpool {
    type Provider = DeadpoolTx;

    const NOTICES_LOSS: bool = true;

    fn connect(url: &str, size: usize) -> DeadpoolTx {
        let manager = Manager::new(url.parse().unwrap(), NoTls);
        Pool::builder(manager).max_size(size).build().unwrap().into()
    }

    async fn run(tx: &mut Tx<Self>, sql: &str) -> Result<(), Failed> {
        Ok(tx.batch_execute(sql).await?)
    }

    async fn number(tx: &mut Tx<Self>, sql: &str) -> Result<i64, Failed> {
        Ok(tx.query_one(sql, &[]).await?.try_get(0)?)
    }
}

#[derive(Clone)]
pub(super) enum Sqlx {}

impl Library for Sqlx {
    type Provider = SqlxTx;

    fn connect(url: &str, size: usize) -> SqlxTx {
        let pool = PgPoolOptions::new().max_connections(size as u32);
        pool.connect_lazy(url).unwrap().into()
    }

    async fn connect_behind_pooler(url: &str, size: usize) -> SqlxTx {
        behind_pooler(url, size).into()
    }

    async fn run(tx: &mut Tx<Self>, sql: &str) -> Result<(), Failed> {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut ***tx).await?;
        Ok(())
    }

    async fn number(tx: &mut Tx<Self>, sql: &str) -> Result<i64, Failed> {
        // Poolers keep none.
        let number = sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false);
        Ok(number.fetch_one(&mut ***tx).await?)
    }
}

#[derive(Clone)]
pub(super) enum SeaOrm {}

impl Library for SeaOrm {
    type Provider = SeaOrmTx;

    fn connect(url: &str, size: usize) -> SeaOrmTx {
        let pool = PgPoolOptions::new().max_connections(size as u32);
        DatabaseConnection::from(pool.connect_lazy(url).unwrap()).into()
    }

    async fn connect_behind_pooler(url: &str, size: usize) -> SeaOrmTx {
        DatabaseConnection::from(behind_pooler(url, size)).into()
    }

    async fn run(tx: &mut Tx<Self>, sql: &str) -> Result<(), Failed> {
        tx.execute_unprepared(sql).await?;
        Ok(())
    }

    async fn number(tx: &mut Tx<Self>, sql: &str) -> Result<i64, Failed> {
        let statement = Statement::from_string(DbBackend::Postgres, sql);
        let row = tx.query_one_raw(statement).await?;
        Ok(row.ok_or("no row")?.try_get("", "n")?)
    }
}

fn behind_pooler(url: &str, size: usize) -> PgPool {
    let options: PgConnectOptions = url.parse().unwrap();
    // PgBouncer refuses what sqlx asks for by default, unless it is told to ignore it.
    let options = options.extra_float_digits(None);
    PgPoolOptions::new()
        .max_connections(size as u32)
        .connect_lazy_with(options)
}

/// Over a pool of deadpool's.
#[derive(Clone)]
pub(super) enum DieselAsync {}

impl Library for DieselAsync {
    type Provider = DieselAsyncTx;

    fn connect(url: &str, size: usize) -> DieselAsyncTx {
        let pool = deadpool::Pool::builder(AsyncDieselConnectionManager::new(url));
        pool.max_size(size).build().unwrap().into()
    }

    async fn connect_behind_pooler(url: &str, size: usize) -> DieselAsyncTx {
        let pool = deadpool::Pool::builder(manager_without_statements(url));
        let pool = pool.max_size(size).build().unwrap();
        let made = try_join_all((0..size).map(|_| pool.get()));
        drop(made.await.unwrap());
        pool.into()
    }

    async fn run(tx: &mut Tx<Self>, sql: &str) -> Result<(), Failed> {
        Ok(tx.batch_execute(sql).await?)
    }

    async fn number(tx: &mut Tx<Self>, sql: &str) -> Result<i64, Failed> {
        let connection: &mut AsyncPgConnection = tx;
        let row: Number = sql_query(sql).get_result(connection).await?;
        Ok(row.n)
    }
}

/// diesel-async over a pool of bb8's.
#[derive(Clone)]
pub(super) enum Bb8 {}

impl Library for Bb8 {
    type Provider = DieselAsyncTx;

    fn connect(url: &str, size: usize) -> DieselAsyncTx {
        let pool = bb8::Pool::builder().max_size(size as u32);
        // Nobody waits longer, and it pauses for up to half of this before it tries again to connect.
        let pool = pool.connection_timeout(Duration::from_secs(8));
        pool.build_unchecked(AsyncDieselConnectionManager::new(url)).into()
    }

    async fn connect_behind_pooler(url: &str, size: usize) -> DieselAsyncTx {
        let pool = bb8::Pool::builder().max_size(size as u32).min_idle(size as u32);
        pool.build(manager_without_statements(url)).await.unwrap().into()
    }

    async fn run(tx: &mut Tx<Self>, sql: &str) -> Result<(), Failed> {
        DieselAsync::run(tx, sql).await
    }

    async fn number(tx: &mut Tx<Self>, sql: &str) -> Result<i64, Failed> {
        DieselAsync::number(tx, sql).await
    }
}

/// For pools that make their connections before anything else happens, since diesel-async prepares statements outside of
/// transactions then. One at a time.
fn manager_without_statements(url: &str) -> AsyncDieselConnectionManager<AsyncPgConnection> {
    let connecting = Arc::new(Mutex::new(()));
    let mut config = ManagerConfig::default();
    config.recycling_method = RecyclingMethod::Fast;
    config.custom_setup = Box::new(move |url| {
        let (url, connecting) = (url.to_owned(), Arc::clone(&connecting));
        Box::pin(async move {
            let _one_at_a_time = connecting.lock().await;
            // It takes two messages that the pooler may give to two sessions.
            let mut made = AsyncPgConnection::establish(&url).await;
            while made.is_err() {
                made = AsyncPgConnection::establish(&url).await;
            }
            let mut connection = made?;
            connection.set_prepared_statement_cache_size(CacheSize::Disabled);
            Ok(connection)
        })
    });
    AsyncDieselConnectionManager::new_with_config(url, config)
}

#[derive(Clone)]
pub(super) enum Diesel {}

impl Library for Diesel {
    type Provider = DieselTx;

    /// libpq cannot be stopped midway, so it does not give its connection up first.
    const TO_END_A_SESSION: usize = 2;
    const NOTICES_LOSS: bool = true;

    fn connect(url: &str, size: usize) -> DieselTx {
        Self::pool(size).build_unchecked(ConnectionManager::new(url)).into()
    }

    async fn connect_behind_pooler(url: &str, size: usize) -> DieselTx {
        let pool = Self::pool(size).connection_customizer(Box::new(WithoutStatements));
        pool.build_unchecked(ConnectionManager::new(url)).into()
    }

    async fn run(tx: &mut Tx<Self>, sql: &str) -> Result<(), Failed> {
        let sql = sql.to_owned();
        Ok(tx.run(move |conn| conn.batch_execute(&sql)).await?)
    }

    async fn number(tx: &mut Tx<Self>, sql: &str) -> Result<i64, Failed> {
        let sql = sql_query(sql);
        let row = tx.run(|conn| diesel::RunQueryDsl::get_result::<Number>(sql, conn));
        Ok(row.await?.n)
    }
}

impl Diesel {
    fn pool(size: usize) -> r2d2::Builder<ConnectionManager<PgConnection>> {
        let pool = r2d2::Pool::builder().max_size(size as u32).min_idle(Some(0));
        // It pauses for up to half of this before it tries again to connect.
        pool.connection_timeout(Duration::from_secs(2))
    }
}

#[derive(Debug)]
struct WithoutStatements;

impl CustomizeConnection<PgConnection, r2d2::Error> for WithoutStatements {
    fn on_acquire(&self, connection: &mut PgConnection) -> Result<(), r2d2::Error> {
        diesel::Connection::set_prepared_statement_cache_size(connection, CacheSize::Disabled);
        Ok(())
    }
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    n: i64,
}
