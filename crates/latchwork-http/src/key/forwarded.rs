//! Reads which hops a request came by.

use std::net::{IpAddr, SocketAddr};

/// The hops of an `X-Forwarded-For`, last first. `None` for one that is no address.
pub(super) fn x_forwarded_for(value: &str) -> impl Iterator<Item = Option<IpAddr>> {
    value.rsplit(',').map(address)
}

/// The hops of a `Forwarded` (RFC 7239), last first. `None` for one that is hidden or no address.
///
/// It is cut at each comma, quoted or not: what stands to the left comes from clients, and a quote that one leaves open
/// must not swallow what a proxy has added.
pub(super) fn forwarded(value: &str) -> impl Iterator<Item = Option<IpAddr>> {
    value.rsplit(',').map(|element| {
        let mut named = element.split(';').filter_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            name.trim().eq_ignore_ascii_case("for").then_some(value.trim())
        });
        let value = named.next()?;
        // Twice in one element is nothing that a proxy writes.
        if named.next().is_some() {
            return None;
        }
        address(
            value
                .strip_prefix('"')
                .and_then(|value| value.strip_suffix('"'))
                .unwrap_or(value),
        )
    })
}

/// An address, alone or with a port, in brackets or not.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .unwrap_or(text);
    let address = bare
        .parse()
        .or_else(|_| text.parse().map(|with_port: SocketAddr| with_port.ip()));
    address.ok().map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hops(hops: impl Iterator<Item = Option<IpAddr>>) -> Vec<String> {
        hops.map(|hop| hop.map_or_else(|| "-".to_owned(), |hop| hop.to_string()))
            .collect()
    }

    #[test]
    fn hops_are_read_from_the_right() {
        let read = hops(x_forwarded_for(
            " evil, 203.0.113.9 ,10.0.0.1:8080,[2001:db8::1]:443, [2001:db8::2],2001:db8::3, ::ffff:10.0.0.2,",
        ));
        assert_eq!(
            read,
            [
                "-",
                "10.0.0.2",
                "2001:db8::3",
                "2001:db8::2",
                "2001:db8::1",
                "10.0.0.1",
                "203.0.113.9",
                "-"
            ]
        );
    }

    #[test]
    fn forwarded_elements_are_read_from_the_right() {
        let read = hops(forwarded(
            "for=\"open, FOR=192.0.2.43; proto=https, for=\"[2001:db8:cafe::17]:4711\";by=203.0.113.60, for=_hidden, \
             for=unknown, proto=http, for=1.2.3.4;for=5.6.7.8",
        ));
        assert_eq!(read, ["-", "-", "-", "-", "2001:db8:cafe::17", "192.0.2.43", "-"]);
    }
}
