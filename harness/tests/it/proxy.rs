use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use latchwork_harness::{Cluster, Endpoint, Proxy, wait_until};

const PATIENCE: Duration = Duration::from_secs(30);

/// A server that sends every line back.
fn echo_server() -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            thread::spawn(move || {
                for line in BufReader::new(stream.try_clone().unwrap())
                    .lines()
                    .map_while(Result::ok)
                {
                    if writeln!(&stream, "{line}").is_err() {
                        break;
                    }
                }
            });
        }
    });
    Endpoint::Tcp(address)
}

fn connect(proxy: &Proxy) -> BufReader<UnixStream> {
    match proxy.endpoint() {
        Endpoint::Unix(path) => BufReader::new(UnixStream::connect(path).unwrap()),
        other => panic!("{other:?} is no unix socket"),
    }
}

fn send(client: &BufReader<UnixStream>, line: &str) {
    writeln!(client.get_ref(), "{line}").unwrap();
}

fn receive(client: &mut BufReader<UnixStream>) -> String {
    let mut line = String::new();
    client.get_ref().set_read_timeout(Some(PATIENCE)).unwrap();
    client.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

fn nothing_comes(client: &mut BufReader<UnixStream>) -> bool {
    client
        .get_ref()
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let mut line = String::new();
    client
        .read_line(&mut line)
        .is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn a_proxy_forwards_and_counts_round_trips() {
    let proxy = Proxy::start(echo_server()).unwrap();
    let mut client = connect(&proxy);
    for _ in 0..3 {
        send(&client, "hello");
        assert_eq!(receive(&mut client), "hello");
    }
    assert_eq!((proxy.round_trips(), proxy.accepted(), proxy.open()), (3, 1, 1));
    assert_eq!((proxy.bytes_to_server(), proxy.bytes_to_client()), (18, 18));
}

#[test]
fn nothing_passes_a_frozen_proxy_and_nothing_is_lost() {
    let proxy = Proxy::start(echo_server()).unwrap();
    let mut client = connect(&proxy);
    send(&client, "before");
    assert_eq!(receive(&mut client), "before");
    proxy.freeze();
    send(&client, "during");
    let mut late = connect(&proxy);
    send(&late, "late");
    assert!(nothing_comes(&mut client) && nothing_comes(&mut late));
    proxy.thaw();
    assert_eq!(receive(&mut client), "during");
    assert_eq!(receive(&mut late), "late");
}

#[test]
fn with_frozen_answers_the_server_acts_and_the_client_does_not_learn_of_it() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(cluster.endpoint()).unwrap();
    proxy.freeze_answers();
    let url = proxy.url();
    let client = thread::spawn(move || {
        std::process::Command::new("psql")
            .args(["-XqAt", &url, "-c", "SELECT 7"])
            .output()
            .unwrap()
    });
    // The request to connect has reached the server, whose answer waits in the proxy.
    assert!(wait_until(PATIENCE, || proxy.bytes_to_client() > 0));
    assert!(!client.is_finished());
    proxy.thaw();
    assert_eq!(client.join().unwrap().stdout, b"7\n");
}

#[test]
fn a_cut_closes_connections_also_frozen_ones_and_welcomes_new_ones() {
    let proxy = Proxy::start(echo_server()).unwrap();
    let mut client = connect(&proxy);
    send(&client, "x");
    assert_eq!(receive(&mut client), "x");
    proxy.freeze();
    send(&client, "y");
    proxy.cut();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    assert_eq!(proxy.open(), 0);
    proxy.thaw();
    let mut again = connect(&proxy);
    send(&again, "z");
    assert_eq!(receive(&mut again), "z");
}

#[test]
fn a_refusing_proxy_closes_new_connections_until_it_thaws() {
    let proxy = Proxy::start(echo_server()).unwrap();
    proxy.refuse();
    assert_eq!(connect(&proxy).read(&mut [0]).unwrap(), 0);
    proxy.thaw();
    let mut client = connect(&proxy);
    send(&client, "x");
    assert_eq!(receive(&mut client), "x");
}

#[test]
fn the_end_of_a_connection_reaches_the_other_side() {
    let proxy = Proxy::start(echo_server()).unwrap();
    let client = connect(&proxy);
    assert!(wait_until(PATIENCE, || proxy.open() == 1));
    drop(client);
    assert!(wait_until(PATIENCE, || proxy.open() == 0));
}

#[test]
fn a_dead_upstream_closes_the_client() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(cluster.endpoint()).unwrap();
    cluster.kill_server().unwrap();
    assert_eq!(connect(&proxy).read(&mut [0]).unwrap(), 0);
}

#[test]
fn postgres_is_reached_through_a_socket_and_through_tcp() {
    let cluster = Cluster::builder().tcp().start().unwrap();
    let over_socket = Proxy::start(cluster.endpoint()).unwrap();
    let over_tcp = Proxy::start_tcp(cluster.tcp_endpoint().unwrap()).unwrap();
    for proxy in [over_socket, over_tcp] {
        let psql = std::process::Command::new("psql")
            .args(["-XqAt", &proxy.url(), "-c", "SELECT 7"])
            .output()
            .unwrap();
        assert_eq!(psql.stdout, b"7\n", "{}", String::from_utf8_lossy(&psql.stderr));
        assert_eq!(proxy.accepted(), 1);
    }
}
