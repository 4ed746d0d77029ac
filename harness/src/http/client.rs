use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::in_time;

/// How a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "tests go through all of them")]
pub enum Leave {
    /// It closes the connection.
    Fin,
    /// It resets the connection.
    Rst,
    /// It closes its half of the connection, and still reads.
    HalfClose,
}

/// All ways to leave.
pub const WAYS_TO_LEAVE: [Leave; 3] = [Leave::Fin, Leave::Rst, Leave::HalfClose];

/// A connection on which HTTP/1 is spoken by hand.
#[derive(Debug)]
pub struct Client(TcpStream);

impl Client {
    /// Connects.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub async fn connect(server: SocketAddr) -> Self {
        Self(in_time(TcpStream::connect(server)).await.expect("the server listens"))
    }

    /// Sends a request, such as `GET /`, with lines of headers, and leaves its answer unread.
    pub async fn asks(server: SocketAddr, request: &str, headers: &str) -> Self {
        let mut client = Self::connect(server).await;
        let request = format!("{request} HTTP/1.1\r\nhost: test\r\n{headers}\r\n");
        client.send(request.as_bytes()).await;
        client
    }

    /// Sends bytes as they are.
    ///
    /// # Panics
    ///
    /// If the connection has ended.
    pub async fn send(&mut self, bytes: &[u8]) {
        in_time(self.0.write_all(bytes)).await.expect("the server reads");
    }

    /// Sends bytes to a server that may close the connection before it has them all.
    pub async fn offers(&mut self, bytes: &[u8]) {
        // What the server does with them is for the test to see.
        let _ = in_time(self.0.write_all(bytes)).await;
    }

    /// Reads until something that ends like this has come.
    ///
    /// # Panics
    ///
    /// If the connection ends before that, or it is not text.
    pub async fn reads_until(&mut self, end: &str) -> String {
        let mut read = Vec::new();
        while !read.ends_with(end.as_bytes()) {
            read.push(in_time(self.0.read_u8()).await.expect("the server goes on"));
        }
        String::from_utf8(read).expect("it is text")
    }

    /// Reads to the end of the connection.
    ///
    /// # Panics
    ///
    /// If the connection is reset, or it is not text.
    pub async fn answer(mut self) -> Answer {
        let mut read = Vec::new();
        in_time(self.0.read_to_end(&mut read))
            .await
            .expect("the server answers");
        Answer(String::from_utf8(read).expect("it is text"))
    }

    /// Leaves. What is returned keeps the other half of the connection, if that stays.
    ///
    /// # Panics
    ///
    /// If the system refuses to reset a connection.
    pub async fn leave(mut self, how: Leave) -> Option<Self> {
        match how {
            Leave::Fin => None,
            Leave::Rst => {
                self.0.set_zero_linger().expect("a socket can be set to reset");
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

/// A response as it came over the wire; empty if there was none.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "tests look at the text")]
pub struct Answer(pub String);

impl Answer {
    /// The status.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[must_use]
    pub fn status(&self) -> u16 {
        let status = self.0.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("no response: {self:?}"))
    }

    /// The first value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let (head, _) = self.0.split_once("\r\n\r\n")?;
        head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    /// The body, as it was sent.
    #[must_use]
    pub fn body(&self) -> &str {
        self.0.split_once("\r\n\r\n").map_or("", |(_, body)| body)
    }
}

/// One request on a connection of its own.
pub async fn ask(server: SocketAddr, request: &str) -> Answer {
    ask_with(server, request, "").await
}

/// One request on a connection of its own, with lines of headers.
pub async fn ask_with(server: SocketAddr, request: &str, headers: &str) -> Answer {
    let headers = format!("connection: close\r\n{headers}");
    Client::asks(server, request, &headers).await.answer().await
}
