//! A client that asks as fast as it is answered, over connections that stay open. It reads no more of an answer than it
//! must, so that most of the machine is left to the service.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::{Builder, Runtime},
    task::JoinSet,
    time::timeout,
};

use super::KEYS;
use crate::{Failure, statistics::nanos};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// All connections to one service, and a thread of their own to drive them.
pub(super) struct Client {
    runtime: Runtime,
    connections: Vec<Connection>,
}

/// What came of one round.
pub(super) struct Round {
    elapsed: Duration,
    /// In nanoseconds, one a request.
    pub(super) latencies: Vec<u64>,
}

impl Round {
    pub(super) fn per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.elapsed.as_secs_f64()
    }
}

impl Client {
    pub(super) fn connect(server: SocketAddr, connections: usize) -> Result<Self, Failure> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let connections = runtime.block_on(async {
            let mut made = Vec::new();
            for number in 0..connections {
                made.push(Connection::open(server, number as u64).await?);
            }
            Ok::<_, Failure>(made)
        })?;
        Ok(Self { runtime, connections })
    }

    /// Has all connections ask for so long.
    pub(super) fn round(&mut self, length: Duration) -> Result<Round, Failure> {
        let connections = std::mem::take(&mut self.connections);
        let (round, connections) = self.runtime.block_on(async {
            let mut asking = JoinSet::new();
            let started = Instant::now();
            for connection in connections {
                asking.spawn(connection.ask_until(started + length));
            }
            let (mut latencies, mut connections) = (Vec::new(), Vec::new());
            while let Some(asked) = asking.join_next().await {
                let (connection, taken) = asked??;
                connections.push(connection);
                latencies.extend(taken);
            }
            let elapsed = started.elapsed();
            Ok::<_, Failure>((Round { elapsed, latencies }, connections))
        })?;
        self.connections = connections;
        Ok(round)
    }
}

struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
    /// Whose turn it is; no two connections ask for the same key at once.
    key: u64,
}

impl Connection {
    async fn open(server: SocketAddr, number: u64) -> Result<Self, Failure> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            read: Vec::with_capacity(4_096),
            key: number,
        })
    }

    async fn ask_until(mut self, end: Instant) -> Result<(Self, Vec<u64>), Failure> {
        let mut latencies = Vec::with_capacity(4_096);
        loop {
            let started = Instant::now();
            if started >= end {
                return Ok((self, latencies));
            }
            timeout(PATIENCE, self.ask()).await??;
            latencies.push(nanos(started.elapsed()));
        }
    }

    async fn ask(&mut self) -> Result<(), Failure> {
        self.key = (self.key + super::CONNECTIONS as u64) % KEYS;
        let request = format!(
            "POST /things/{} HTTP/1.1\r\nhost: bench\r\ncontent-length: 0\r\n\r\n",
            self.key
        );
        self.stream.write_all(request.as_bytes()).await?;
        self.read.clear();
        while !is_whole(&self.read)? {
            if self.stream.read_buf(&mut self.read).await? == 0 {
                return Err("the service has closed the connection".into());
            }
        }
        Ok(())
    }
}

/// Whether an answer is there to its end. Any but 200 is a failure: who is refused does not count as served.
fn is_whole(answer: &[u8]) -> Result<bool, Failure> {
    let Some(head) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return Ok(false);
    };
    let text = std::str::from_utf8(&answer[..head])?;
    if !text.starts_with("HTTP/1.1 200 ") {
        return Err(format!("the service has answered: {text}").into());
    }
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.ok_or("an answer without a length")?.parse()?;
    Ok(answer.len() >= head + 4 + length)
}
