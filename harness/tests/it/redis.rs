use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use latchwork_harness::Redis;

#[test]
fn redis_answers_on_its_socket_and_its_port() {
    fn set(mut stream: impl Read + Write) -> [u8; 5] {
        let mut answer = [0; 5];
        stream.write_all(b"SET key value\r\n").unwrap();
        stream.read_exact(&mut answer).unwrap();
        answer
    }
    let redis = Redis::start().unwrap();
    assert_eq!(&set(UnixStream::connect(redis.socket()).unwrap()), b"+OK\r\n");
    assert_eq!(
        &set(TcpStream::connect(("127.0.0.1", redis.port())).unwrap()),
        b"+OK\r\n"
    );
    assert_eq!(redis.url(), format!("redis://127.0.0.1:{}/", redis.port()));
}
