use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{
    ExtractError, ExtractKey, KeyParts, SetupError,
    forwarded::{forwarded, x_forwarded_for},
};
use crate::view::RequestView;

/// Takes the client's address.
///
/// By default that is the address at the other end of the connection, and no header can change it. Behind proxies say
/// which those are: see [`ClientAddress::behind`].
///
/// IPv6 addresses count by their /64, since a single client has that many; IPv4 addresses in IPv6 clothes
/// (`::ffff:192.0.2.1`) count as IPv4.
///
/// The server has to pass the peer's address on (axum: `into_make_service_with_connect_info::<SocketAddr>()`). Where
/// it does not, requests are answered with 500, for a key that all clients share would be no key.
#[must_use]
pub const fn client() -> ClientAddress {
    ClientAddress {
        proxies: Vec::new(),
        header: ForwardedHeader::XForwardedFor,
        ipv6_prefix: 64,
        error: None,
    }
}

/// The header in which proxies say whom they speak for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded`, as in RFC 7239.
    Forwarded,
}

/// An extractor made by [`client`].
#[derive(Clone, Debug)]
pub struct ClientAddress {
    proxies: Vec<IpNet>,
    header: ForwardedHeader,
    ipv6_prefix: u8,
    error: Option<SetupError>,
}

impl ClientAddress {
    /// Trusts proxies, given as ranges (`"10.0.0.0/8"`) or single addresses: the client is the rightmost hop that is
    /// none of them.
    ///
    /// The header is looked at only when the peer is one of the proxies. Each proxy must add the address that it was
    /// reached from at the right end of the header, and must not be reachable by anybody through another of them. A
    /// hop that is no address ends the search: the proxy that wrote it then counts as the client.
    #[must_use]
    pub fn behind<T: AsRef<str>>(mut self, proxies: impl IntoIterator<Item = T>) -> Self {
        for text in proxies {
            match parse(text.as_ref()) {
                Ok(range) => self.proxies.push(range),
                Err(error) => self.error = self.error.or(Some(error)),
            }
        }
        if self.proxies.is_empty() {
            self.error = self.error.or(Some(SetupError::NoProxies));
        }
        self
    }

    /// Sets the header that the proxies write. Default: `X-Forwarded-For`.
    #[must_use]
    pub fn forwarded_by(self, header: ForwardedHeader) -> Self {
        Self { header, ..self }
    }

    /// Sets how many bits of an IPv6 address count: 1 to 128. Default: 64.
    #[must_use]
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        if bits == 0 || bits > 128 {
            self.error = self.error.or(Some(SetupError::Ipv6Prefix { prefix: bits }));
        }
        self.ipv6_prefix = bits;
        self
    }

    /// Finds the client's address, whole.
    ///
    /// # Errors
    ///
    /// [`ExtractError`] if the server did not pass the peer's address on.
    pub fn address<V: RequestView>(&self, view: &V) -> Result<IpAddr, ExtractError> {
        let peer = view.peer().ok_or_else(|| ExtractError::setup(NO_PEER))?.to_canonical();
        if !self.trusts(peer) {
            return Ok(peer);
        }
        let mut all = String::new();
        view.headers(self.header.name(), &mut |value| {
            if !all.is_empty() {
                all.push(',');
            }
            all.push_str(&String::from_utf8_lossy(value));
        });
        Ok(match self.header {
            ForwardedHeader::XForwardedFor => self.nearest(peer, x_forwarded_for(&all)),
            ForwardedHeader::Forwarded => self.nearest(peer, forwarded(&all)),
        })
    }

    fn nearest(&self, peer: IpAddr, hops: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
        let mut client = peer;
        for hop in hops {
            let Some(hop) = hop else { break };
            client = hop;
            if !self.trusts(hop) {
                break;
            }
        }
        client
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.proxies.iter().any(|range| range.contains(&address))
    }
}

impl ForwardedHeader {
    const fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
        }
    }
}

impl<V: RequestView> ExtractKey<V> for ClientAddress {
    fn extract(&self, view: &V, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
        let text = match self.address(view)? {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => match Ipv6Net::new(address, self.ipv6_prefix) {
                Ok(network) => network.trunc().to_string(),
                Err(_) => address.to_string(),
            },
        };
        parts.push(&text);
        Ok(Some(()))
    }

    fn validate(&self) -> Result<(), SetupError> {
        self.error.clone().map_or(Ok(()), Err)
    }
}

/// Reads a range. One within `::ffff:0:0/96` is a range of IPv4.
fn parse(text: &str) -> Result<IpNet, SetupError> {
    let text = text.trim();
    let range = IpNet::from_str(text)
        .or_else(|_| IpAddr::from_str(text).map(IpNet::from))
        .map_err(|_| SetupError::Cidr { text: text.to_owned() })?;
    let range = match range {
        IpNet::V6(wide) => as_ipv4(wide).map_or(range, IpNet::V4),
        IpNet::V4(_) => range,
    };
    let everybody_v4 = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0));
    let everybody_v6 = IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0));
    if range.contains(&everybody_v4) || range.contains(&everybody_v6) {
        return Err(SetupError::TrustsEverybody { text: text.to_owned() });
    }
    Ok(range)
}

fn as_ipv4(range: Ipv6Net) -> Option<Ipv4Net> {
    let bits = range.prefix_len().checked_sub(96)?;
    Ipv4Net::new(range.addr().to_ipv4_mapped()?, bits).ok()
}

const NO_PEER: &str = "the service does not pass the peer's address on to the middleware that needs it";
