//! The same arithmetic as a script on Redis, over one multiplexed connection.

use redis::{AsyncConnectionConfig, Client, Script, aio::MultiplexedConnection};

use crate::Failure;

/// The generic cell rate algorithm on Redis' clock, in microseconds; 10,000 a second and as many at once.
const GCRA: &str = r"
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now) + 100
if tat - now > 1000000 then return 0 end
redis.call('SET', KEYS[1], string.format('%.0f', tat), 'PX', math.ceil((tat - now) / 1000))
return 1";

#[derive(Clone)]
pub(super) struct RedisLimit {
    connection: MultiplexedConnection,
    script: Script,
}

impl RedisLimit {
    pub(super) async fn connect(url: &str) -> Result<Self, Failure> {
        // Without a time limit for each command, which would cost a timer each.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = Client::open(url)?
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        Ok(Self {
            connection,
            script: Script::new(GCRA),
        })
    }

    pub(super) async fn charge(&self, key: u64) -> Result<bool, Failure> {
        let mut connection = self.connection.clone();
        let allowed: i64 = self
            .script
            .key(format!("rate:{key}"))
            .invoke_async(&mut connection)
            .await?;
        Ok(allowed == 1)
    }
}
