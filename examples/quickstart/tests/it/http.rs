use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::{self, JoinHandle};

use crate::program::PATIENCE;

/// A status, the head with lower-case names, and the body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Sends `POST /path` or the like; `None` when the connection ends without an answer.
pub(crate) fn try_ask(address: &str, request: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("{request} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer {
        status,
        head: head.to_lowercase(),
        body: body.to_owned(),
    })
}

pub(crate) fn ask(address: &str, request: &str) -> Answer {
    try_ask(address, request).unwrap_or_else(|| panic!("no answer to {request}"))
}

/// The same in a thread.
pub(crate) fn ask_meanwhile(address: &str, request: &str) -> JoinHandle<Option<Answer>> {
    let (address, request) = (address.to_owned(), request.to_owned());
    thread::spawn(move || try_ask(&address, &request))
}
