//! A client that can leave at any moment.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::onlooker::SOON;

/// How a client leaves.
#[derive(Clone, Copy, Debug)]
pub(super) enum Leave {
    Fin,
    Rst,
    HalfClose,
}

pub(super) const WAYS_TO_LEAVE: [Leave; 3] = [Leave::Fin, Leave::Rst, Leave::HalfClose];

pub(super) struct Client(TcpStream);

impl Client {
    pub(super) async fn connect(server: SocketAddr) -> Self {
        Self(timeout(SOON, TcpStream::connect(server)).await.unwrap().unwrap())
    }

    /// Sends a request, and leaves its answer unread.
    pub(super) async fn asks(server: SocketAddr, request: &str, headers: &str) -> Self {
        let mut client = Self::connect(server).await;
        let request = format!("{request} HTTP/1.1\r\nhost: test\r\n{headers}\r\n");
        client.send(request.as_bytes()).await;
        client
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) {
        timeout(SOON, self.0.write_all(bytes)).await.unwrap().unwrap();
    }

    /// Reads until something that ends like this has come.
    pub(super) async fn reads_until(&mut self, end: &str) -> String {
        let mut read = Vec::new();
        while !read.ends_with(end.as_bytes()) {
            read.push(timeout(SOON, self.0.read_u8()).await.unwrap().unwrap());
        }
        String::from_utf8(read).unwrap()
    }

    /// Reads to the end of the connection.
    pub(super) async fn answer(mut self) -> Answer {
        let mut read = Vec::new();
        timeout(SOON, self.0.read_to_end(&mut read)).await.unwrap().unwrap();
        Answer(String::from_utf8(read).unwrap())
    }

    /// Leaves. What is returned keeps the other half of the connection, if that stays.
    pub(super) async fn leave(mut self, how: Leave) -> Option<Self> {
        match how {
            Leave::Fin => None,
            Leave::Rst => {
                self.0.set_zero_linger().unwrap();
                None
            }
            Leave::HalfClose => {
                // The server may have closed the connection already.
                let _ = self.0.shutdown().await;
                Some(self)
            }
        }
    }
}

/// A response as it came over the wire.
#[derive(Debug)]
pub(super) struct Answer(pub(super) String);

impl Answer {
    pub(super) fn status(&self) -> u16 {
        self.0.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(super) fn body(&self) -> &str {
        self.0.split_once("\r\n\r\n").unwrap().1
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let (head, _) = self.0.split_once("\r\n\r\n").unwrap();
        head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

/// One request on a connection of its own.
pub(super) async fn ask(server: SocketAddr, request: &str) -> Answer {
    Client::asks(server, request, "connection: close\r\n")
        .await
        .answer()
        .await
}
