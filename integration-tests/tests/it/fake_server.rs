//! A few lines of the wire protocol, to play servers that are not at hand: other products, a server that starts up.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What the server does with a client.
#[derive(Clone)]
pub(crate) enum Script {
    /// Refuses the login with this SQLSTATE.
    Refuse(&'static str),
    /// Lets everybody in, calls itself this, and answers every other question with "undefined function".
    Product(&'static str),
}

/// Listens until the test ends.
pub(crate) async fn start(script: Script) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that hangs up is no fault of the script.
            tokio::spawn(serve(stream, script.clone()));
        }
    });
    address
}

async fn serve(mut stream: TcpStream, script: Script) -> std::io::Result<()> {
    loop {
        let length = stream.read_u32().await?;
        let mut body = vec![0; length as usize - 4];
        stream.read_exact(&mut body).await?;
        // An SSLRequest is answered with a no, and the startup message follows.
        if body[..4] != 80_877_103_u32.to_be_bytes() {
            break;
        }
        stream.write_all(b"N").await?;
    }
    match script {
        Script::Refuse(code) => stream.write_all(&error("FATAL", code)).await,
        Script::Product(product) => {
            let mut hello = message(b'R', &0_u32.to_be_bytes());
            hello.extend(message(b'K', &[0, 0, 0, 7, 0, 0, 0, 8]));
            hello.extend(message(b'Z', b"I"));
            stream.write_all(&hello).await?;
            while stream.read_u8().await? == b'Q' {
                let length = stream.read_u32().await?;
                let mut query = vec![0; length as usize - 4];
                stream.read_exact(&mut query).await?;
                let mut answer = Vec::new();
                if String::from_utf8_lossy(&query).contains("version()") {
                    answer.extend(row("version", product));
                    answer.extend(message(b'C', b"SELECT 1\0"));
                }
                answer.extend(error("ERROR", "42883"));
                answer.extend(message(b'Z', b"I"));
                stream.write_all(&answer).await?;
            }
            Ok(())
        }
    }
}

fn row(column: &str, value: &str) -> Vec<u8> {
    let mut description = 1_u16.to_be_bytes().to_vec();
    description.extend(column.as_bytes());
    description.push(0);
    description.extend(0_u32.to_be_bytes());
    description.extend(0_u16.to_be_bytes());
    description.extend(25_u32.to_be_bytes());
    description.extend((-1_i16).to_be_bytes());
    description.extend((-1_i32).to_be_bytes());
    description.extend(0_u16.to_be_bytes());
    let mut data = 1_u16.to_be_bytes().to_vec();
    data.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
    data.extend(value.as_bytes());
    let mut messages = message(b'T', &description);
    messages.extend(message(b'D', &data));
    messages
}

fn error(severity: &str, code: &str) -> Vec<u8> {
    let mut fields = Vec::new();
    for (field, value) in [(b'S', severity), (b'C', code), (b'M', "played by the test")] {
        fields.push(field);
        fields.extend(value.as_bytes());
        fields.push(0);
    }
    fields.push(0);
    message(b'E', &fields)
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    message.extend(body);
    message
}
