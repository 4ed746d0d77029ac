/// A libpq URL; the host may be the folder of a socket.
pub(crate) fn libpq_url(user: &str, host: &str, port: u16, database: &str) -> String {
    format!(
        "postgresql://{}@{}:{port}/{}",
        encode(user),
        encode(host),
        encode(database)
    )
}

/// Percent-encodes all but the characters that are safe in every part of a URL.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            _ => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_folder_is_percent_encoded() {
        assert_eq!(
            libpq_url("a@b", "/tmp/x", 5432, "d/b"),
            "postgresql://a%40b@%2Ftmp%2Fx:5432/d%2Fb"
        );
        assert_eq!(
            libpq_url("postgres", "127.0.0.1", 1, "app"),
            "postgresql://postgres@127.0.0.1:1/app"
        );
    }
}
