use redis::{AsyncConnectionConfig, Client, Value, aio::MultiplexedConnection, cmd};

use crate::{
    Failure,
    locks::contender::{Contender, Stopwatch, Task},
};

/// Deletes the key if it is still ours.
const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";
/// Longer than any round, so that no lock expires while it is held.
const EXPIRES_MS: u32 = 60_000;

/// `SET NX PX` and compare-and-delete on one multiplexed connection.
#[derive(Debug)]
pub(crate) struct Redis {
    connection: MultiplexedConnection,
    script: String,
}

impl Redis {
    pub(crate) async fn connect(url: &str) -> Result<Self, Failure> {
        // Without a time limit for each command, which would cost a timer each.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let mut connection = Client::open(url)?
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        let script = cmd("SCRIPT")
            .arg("LOAD")
            .arg(COMPARE_AND_DELETE)
            .query_async(&mut connection)
            .await?;
        Ok(Self { connection, script })
    }
}

impl Contender for Redis {
    type Task = RedisTask;

    fn task(&self, key: i64) -> RedisTask {
        let connection = self.connection.clone();
        RedisTask {
            connection,
            script: self.script.clone(),
            key: format!("lock:{key}"),
        }
    }
}

#[derive(Debug)]
pub(crate) struct RedisTask {
    connection: MultiplexedConnection,
    script: String,
    key: String,
}

impl Task for RedisTask {
    async fn cycle(&mut self, watch: &mut Stopwatch) -> Result<(), Failure> {
        // A fresh value each time, so that nobody deletes another's lock.
        let holder = fastrand::u128(..).to_ne_bytes();
        let mut set = cmd("SET");
        set.arg(&self.key).arg(&holder[..]).arg("NX").arg("PX").arg(EXPIRES_MS);
        let answer: Value = set.query_async(&mut self.connection).await?;
        watch.acquired(answer == Value::Okay)?;
        let mut delete = cmd("EVALSHA");
        delete.arg(&self.script).arg(1).arg(&self.key).arg(&holder[..]);
        let deleted: i64 = delete.query_async(&mut self.connection).await?;
        if deleted == 1 {
            Ok(())
        } else {
            Err("the lock was not held".into())
        }
    }
}
