//! The services, which differ in what is around one handler.

use std::net::SocketAddr;

use axum::{
    Router,
    extract::{Path, Request, State},
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::post,
};
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use latchwork_core::{
    Key,
    rate::{OnOutage, Quota, RateLimits, RateLimitsOptions},
};
use latchwork_harness::Redis;
use latchwork_postgres::{
    Postgres, PostgresOptions, RateOptions, schema,
    transaction::{DeadpoolTx, XactLockExt},
};
use latchwork_tower::{LockLayer, RateLimitLayer, SlotLayer, TxLockLayer, key::param};
use tokio::net::TcpListener;
use tokio_postgres::{Client, NoTls};

use super::redis_limit::RedisLimit;
use crate::Failure;

/// More than there are connections, so that nobody is refused.
const SLOTS: u32 = 128;
/// Connections of the pools.
const POOL: usize = 16;

/// What is around the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    None,
    Lock,
    TxLock,
    Slot,
    Rate,
    MemoryRate,
    RedisRate,
    PooledXact,
}

/// What the services share.
pub(super) struct Context {
    postgres: Postgres,
    pub(super) rates: RateLimits,
    pool: Pool,
    redis: Option<RedisLimit>,
    /// For questions of our own.
    pub(super) client: Client,
}

impl Context {
    pub(super) async fn new(url: &str, redis: Option<&Redis>) -> Result<Self, Failure> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        schema::install(&client).await?;
        let postgres = Postgres::connect(url.parse()?, PostgresOptions::default()).await?;
        // Closed, so that no outage makes it fast.
        let limits = RateLimitsOptions::default().with_on_outage(OnOutage::Closed);
        let rates = postgres.rate_limits(RateOptions::default().with_limits(limits));
        // The fastest way that deadpool has: no statement when a connection changes hands.
        let config = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let manager = Manager::from_config(url.parse()?, NoTls, config);
        let redis = match redis {
            Some(redis) => Some(RedisLimit::connect(&redis.unix_url()).await?),
            None => None,
        };
        Ok(Self {
            postgres,
            rates,
            pool: Pool::builder(manager).max_size(POOL).build()?,
            redis,
            client,
        })
    }
}

/// So much that nobody is refused.
pub(super) fn quota() -> Result<Quota, Failure> {
    Ok(Quota::per_second(10_000)?)
}

impl Service {
    pub(super) const ALL: [Self; 8] = [
        Self::None,
        Self::Lock,
        Self::TxLock,
        Self::Slot,
        Self::Rate,
        Self::MemoryRate,
        Self::RedisRate,
        Self::PooledXact,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "no layer",
            Self::Lock => "ours: lock",
            Self::TxLock => "ours: transaction lock",
            Self::Slot => "ours: slot",
            Self::Rate => "ours: rate limit",
            Self::MemoryRate => "tower_governor in memory",
            Self::RedisRate => "GCRA on Redis",
            Self::PooledXact => "pooled connection, xact lock",
        }
    }

    /// Serves on a port of its own; `None` where what it needs is not there.
    pub(super) async fn serve(self, context: &Context) -> Result<Option<SocketAddr>, Failure> {
        let Some(app) = self.app(context)? else {
            return Ok(None);
        };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let app = app.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Some(address))
    }

    fn app(self, context: &Context) -> Result<Option<Router>, Failure> {
        let app = Router::new().route("/things/{key}", post(handler));
        let key = ("thing", param("key"));
        Ok(Some(match self {
            Self::None => app,
            Self::Lock => app.layer(LockLayer::new(context.postgres.locks(), key)?),
            Self::TxLock => app.layer(TxLockLayer::<DeadpoolTx>::new(context.pool.clone(), key)?),
            Self::Slot => app.layer(SlotLayer::global(context.postgres.locks().slots("things", SLOTS)?)),
            Self::Rate => app.layer(RateLimitLayer::new(context.rates.clone(), key, quota()?)?),
            Self::MemoryRate => return memory_limit(app),
            Self::RedisRate => match &context.redis {
                Some(redis) => app.layer(middleware::from_fn_with_state(redis.clone(), redis_limit)),
                None => return Ok(None),
            },
            Self::PooledXact => app.layer(middleware::from_fn_with_state(context.pool.clone(), pooled_xact)),
        }))
    }
}

async fn handler() -> &'static str {
    "done"
}

#[cfg(feature = "peers")]
fn memory_limit(app: Router) -> Result<Option<Router>, Failure> {
    use tower_governor::{GovernorError, GovernorLayer, governor::GovernorConfigBuilder, key_extractor::KeyExtractor};

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct ByPath;

    impl KeyExtractor for ByPath {
        type Key = u64;

        fn extract<B>(&self, request: &axum::http::Request<B>) -> Result<u64, GovernorError> {
            let last = request.uri().path().rsplit('/').next();
            last.and_then(|key| key.parse().ok())
                .ok_or(GovernorError::UnableToExtractKey)
        }
    }

    let mut config = GovernorConfigBuilder::default().key_extractor(ByPath);
    let config = config.per_nanosecond(100_000).burst_size(10_000).finish();
    Ok(Some(
        app.layer(GovernorLayer::new(config.ok_or("the governor has no quota")?)),
    ))
}

#[cfg(not(feature = "peers"))]
#[expect(clippy::unnecessary_wraps, reason = "as with the feature")]
fn memory_limit(_: Router) -> Result<Option<Router>, Failure> {
    Ok(None)
}

async fn redis_limit(State(limit): State<RedisLimit>, Path(key): Path<u64>, request: Request, next: Next) -> Response {
    match limit.charge(key).await {
        Ok(true) => next.run(request).await,
        Ok(false) => StatusCode::TOO_MANY_REQUESTS.into_response(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// A connection for as long as the request runs, and a lock of its transaction.
async fn pooled_xact(State(pool): State<Pool>, Path(key): Path<u64>, request: Request, next: Next) -> Response {
    let locked = async {
        let mut connection = pool.get().await?;
        let transaction = connection.transaction().await?;
        if !transaction.try_xact_lock(Key::bigint(i64::try_from(key)?)).await? {
            return Ok(StatusCode::CONFLICT.into_response());
        }
        let response = next.run(request).await;
        transaction.commit().await?;
        Ok::<_, Failure>(response)
    };
    locked
        .await
        .unwrap_or_else(|_| StatusCode::SERVICE_UNAVAILABLE.into_response())
}
