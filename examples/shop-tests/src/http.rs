//! Requests and answers, as they go over the wire.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    thread::{self, JoinHandle},
};

use crate::program::PATIENCE;

/// A request on a connection of its own.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    line: String,
    headers: String,
    body: String,
}

impl Request {
    /// `POST /path` or the like.
    pub(crate) fn new(line: &str) -> Self {
        Self {
            line: line.to_owned(),
            headers: String::new(),
            body: String::new(),
        }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers += &format!("{name}: {value}\r\n");
        self
    }

    pub(crate) fn body(self, body: &str) -> Self {
        let body = body.to_owned();
        Self { body, ..self }
    }

    /// Sends it, and leaves the answer unread; `None` if nobody is there.
    pub(crate) fn send(&self, address: &str) -> Option<BufReader<TcpStream>> {
        let Self { line, headers, body } = self;
        let length = body.len();
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let text = format!(
            "{line} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        );
        stream.write_all(text.as_bytes()).ok()?;
        Some(BufReader::new(stream))
    }

    /// Sends it and reads the whole answer; `None` if the connection ends without one.
    pub(crate) fn try_ask(&self, address: &str) -> Option<Answer> {
        Answer::read(self.send(address)?)
    }

    pub(crate) fn ask(&self, address: &str) -> Answer {
        self.try_ask(address)
            .unwrap_or_else(|| panic!("no answer to {}", self.line))
    }

    /// The same in a thread.
    pub(crate) fn ask_meanwhile(self, address: &str) -> JoinHandle<Option<Answer>> {
        let address = address.to_owned();
        thread::spawn(move || self.try_ask(&address))
    }
}

pub(crate) fn get(address: &str, target: &str) -> Answer {
    Request::new(&format!("GET {target}")).ask(address)
}

/// An answer as it came over the wire.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    /// Reads the whole of it; `None` if the connection ends without one.
    pub(crate) fn read(mut from: impl Read) -> Option<Self> {
        let mut read = String::new();
        from.read_to_string(&mut read).ok()?;
        let (head, body) = read.split_once("\r\n\r\n")?;
        Some(Self {
            status: head.split(' ').nth(1)?.parse().ok()?,
            head: head.to_owned(),
            body: body.to_owned(),
        })
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn is_refused(&self, status: u16, kind: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert!(self.body.contains(&format!("urn:latchwork:problem:{kind}")), "{self:?}");
    }
}

/// An answer that is read as it comes.
pub(crate) struct Stream {
    pub(crate) status: u16,
    reader: BufReader<TcpStream>,
}

impl Stream {
    /// Reads the head only.
    pub(crate) fn open(address: &str, target: &str) -> Self {
        let mut reader = Request::new(&format!("GET {target}")).send(address).unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, reader }
    }

    /// The next line that is JSON, between which stand the sizes of the chunks; `None` when the stream has ended.
    pub(crate) fn next(&mut self) -> Option<serde_json::Value> {
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).unwrap_or(0) == 0 || line == "0\r\n" {
                return None;
            }
            if line.starts_with('{') {
                return Some(serde_json::from_str(&line).unwrap());
            }
        }
    }

    /// Whether it ended in order, that is with an empty chunk, after the lines that are left.
    pub(crate) fn ends_in_order(mut self) -> bool {
        let mut rest = String::new();
        let read = self.reader.read_to_string(&mut rest);
        read.is_ok() && rest.ends_with("0\r\n\r\n")
    }
}
