//! The keys of libpq and the values that they may have.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::{ChannelBinding, Config, ConfigError, HostEntry, LoadBalance, Secret, SslMode, TargetSessionAttrs};

macro_rules! keys {
    ($($variant:ident = $name:literal),+ $(,)?) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Key { $($variant),+ }

        impl Key {
            fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)+ _ => None }
            }

            fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

keys! {
    Host = "host",
    Hostaddr = "hostaddr",
    Port = "port",
    User = "user",
    Password = "password",
    Passfile = "passfile",
    Dbname = "dbname",
    Sslmode = "sslmode",
    Sslrootcert = "sslrootcert",
    Sslcert = "sslcert",
    Sslkey = "sslkey",
    Sslsni = "sslsni",
    Sslnegotiation = "sslnegotiation",
    ConnectTimeout = "connect_timeout",
    TargetSessionAttrs = "target_session_attrs",
    LoadBalanceHosts = "load_balance_hosts",
    ApplicationName = "application_name",
    FallbackApplicationName = "fallback_application_name",
    Options = "options",
    Keepalives = "keepalives",
    KeepalivesIdle = "keepalives_idle",
    KeepalivesInterval = "keepalives_interval",
    KeepalivesCount = "keepalives_count",
    KeepalivesRetries = "keepalives_retries",
    TcpUserTimeout = "tcp_user_timeout",
    ChannelBinding = "channel_binding",
    ClientEncoding = "client_encoding",
    Gssencmode = "gssencmode",
    Sslcompression = "sslcompression",
}

/// Keys of libpq that are refused, each with what to do instead: to ignore one would give a connection other than
/// the one that was asked for.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("service", "write out what the service file says"),
    ("servicefile", "write out what the service file says"),
    ("sslpassword", "decrypt the key file, and protect it by its permissions"),
    (
        "sslcrl",
        "leave it out, or end TLS at a proxy that checks revocation lists",
    ),
    (
        "sslcrldir",
        "leave it out, or end TLS at a proxy that checks revocation lists",
    ),
    (
        "sslcertmode",
        "give sslcert and sslkey to send a certificate, leave them out to send none",
    ),
    (
        "ssl_min_protocol_version",
        "leave it out; TLS 1.2 is the oldest that is spoken",
    ),
    ("ssl_max_protocol_version", "leave it out; TLS 1.2 and 1.3 are spoken"),
    (
        "min_protocol_version",
        "leave it out; version 3.0 of the protocol is spoken",
    ),
    (
        "max_protocol_version",
        "leave it out; version 3.0 of the protocol is spoken",
    ),
    ("requirepeer", "protect the folder of the socket by its permissions"),
    ("require_auth", "use channel_binding=require, or client certificates"),
    ("requiressl", "use sslmode=require"),
    ("krbsrvname", "use a password or a client certificate"),
    ("gsslib", "use a password or a client certificate"),
    ("gssdelegation", "use a password or a client certificate"),
    ("replication", "leave it out; locks need an ordinary session"),
    ("scram_client_key", "give the password"),
    ("scram_server_key", "give the password"),
    ("oauth_issuer", "use a password or a client certificate"),
    ("oauth_client_id", "use a password or a client certificate"),
    ("oauth_client_secret", "use a password or a client certificate"),
    ("oauth_scope", "use a password or a client certificate"),
];

/// What to do instead of setting a key, if that is refused.
pub(super) fn advice_instead_of(name: &str) -> Option<&'static str> {
    UNSUPPORTED
        .iter()
        .find(|(key, _)| *key == name)
        .map(|(_, advice)| *advice)
}

/// Keys and values as written; a later one replaces an earlier one, as in libpq.
#[derive(Default)]
pub(super) struct Draft(BTreeMap<Key, String>);

impl Draft {
    pub(super) fn set(&mut self, key: Key, value: String) -> Result<(), ConfigError> {
        if value.contains('\0') {
            return Err(ConfigError::InvalidValue {
                key: key.name(),
                expected: "a text without a NUL character",
            });
        }
        self.0.insert(key, value);
        Ok(())
    }

    pub(super) fn set_named(&mut self, name: &str, value: String) -> Result<(), ConfigError> {
        if name == "ssl" && value == "true" {
            return self.set(Key::Sslmode, "require".to_owned());
        }
        if let Some(&(key, advice)) = UNSUPPORTED.iter().find(|(key, _)| *key == name) {
            return Err(ConfigError::UnsupportedKey { key, advice });
        }
        match Key::from_name(name) {
            Some(key) => self.set(key, value),
            None => Err(ConfigError::UnknownKey { key: name.to_owned() }),
        }
    }

    /// Fills in what is not set, or is empty, from another draft.
    pub(super) fn or(mut self, other: Self) -> Self {
        self.0.retain(|_, value| !value.is_empty());
        for (key, value) in other.0 {
            self.0.entry(key).or_insert(value);
        }
        self
    }

    /// Checks every value. An empty value is the same as none, as in libpq.
    pub(super) fn build(mut self) -> Result<Config, ConfigError> {
        self.0.retain(|_, value| !value.is_empty());
        self.refuse_other_worlds()?;
        let ssl_mode = self.parsed(Key::Sslmode, SslMode::NAMES)?;
        let ssl_root_cert = self.take(Key::Sslrootcert).map(PathBuf::from);
        // Anyone can get a certificate that a public root vouches for, so the name must be checked too.
        let default_mode = match &ssl_root_cert {
            Some(path) if path.as_os_str() == "system" => SslMode::VerifyFull,
            _ => SslMode::default(),
        };
        let config = Config {
            hosts: self.hosts()?,
            user: self.take(Key::User),
            password: self.take(Key::Password).map(Secret::new),
            passfile: self.take(Key::Passfile).map(PathBuf::from),
            dbname: self.take(Key::Dbname),
            ssl_mode: ssl_mode.unwrap_or(default_mode),
            ssl_root_cert,
            ssl_cert: self.take(Key::Sslcert).map(PathBuf::from),
            ssl_key: self.take(Key::Sslkey).map(PathBuf::from),
            ssl_sni: self.switch(Key::Sslsni)?.unwrap_or(true),
            ssl_direct: self
                .parsed(Key::Sslnegotiation, &[("postgres", false), ("direct", true)])?
                .unwrap_or(false),
            connect_timeout: self.seconds(Key::ConnectTimeout)?,
            target_session_attrs: self
                .parsed(Key::TargetSessionAttrs, TargetSessionAttrs::NAMES)?
                .unwrap_or_default(),
            load_balance: self
                .parsed(Key::LoadBalanceHosts, LoadBalance::NAMES)?
                .unwrap_or_default(),
            application_name: self
                .take(Key::ApplicationName)
                .or_else(|| self.take(Key::FallbackApplicationName)),
            options: self.take(Key::Options),
            keepalives: self.switch(Key::Keepalives)?.unwrap_or(true),
            keepalives_idle: self.seconds(Key::KeepalivesIdle)?,
            keepalives_interval: self.seconds(Key::KeepalivesInterval)?,
            keepalives_count: self.keepalives_count()?,
            tcp_user_timeout: self
                .number(Key::TcpUserTimeout, "a number of milliseconds")?
                .map(Duration::from_millis),
            channel_binding: self
                .parsed(Key::ChannelBinding, ChannelBinding::NAMES)?
                .unwrap_or_default(),
        };
        config.check()?;
        Ok(config)
    }

    fn take(&mut self, key: Key) -> Option<String> {
        self.0.remove(&key)
    }

    fn parsed<T: Copy>(&mut self, key: Key, names: &'static [(&'static str, T)]) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        match names.iter().find(|(name, _)| *name == value) {
            Some((_, parsed)) => Ok(Some(*parsed)),
            None => Err(ConfigError::InvalidValue {
                key: key.name(),
                expected: key.expected(),
            }),
        }
    }

    fn switch(&mut self, key: Key) -> Result<Option<bool>, ConfigError> {
        self.parsed(key, &[("0", false), ("1", true)])
    }

    /// A whole number; zero and negative numbers mean "not set", as in libpq.
    fn number(&mut self, key: Key, expected: &'static str) -> Result<Option<u64>, ConfigError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        match value.trim().parse::<i32>() {
            Ok(number) => Ok(u64::try_from(number).ok().filter(|number| *number > 0)),
            Err(_) => Err(ConfigError::InvalidValue {
                key: key.name(),
                expected,
            }),
        }
    }

    fn seconds(&mut self, key: Key) -> Result<Option<Duration>, ConfigError> {
        Ok(self.number(key, "a whole number of seconds")?.map(Duration::from_secs))
    }

    fn keepalives_count(&mut self) -> Result<Option<u32>, ConfigError> {
        const EXPECTED: &str = "a number of probes";
        let retries = self.number(Key::KeepalivesRetries, EXPECTED)?;
        let count = self.number(Key::KeepalivesCount, EXPECTED)?.or(retries);
        Ok(count.map(|count| u32::try_from(count).unwrap_or(u32::MAX)))
    }

    fn hosts(&mut self) -> Result<Vec<HostEntry>, ConfigError> {
        let list = |value: Option<String>| -> Vec<String> {
            value
                .map(|value| value.split(',').map(|part| part.trim().to_owned()).collect())
                .unwrap_or_default()
        };
        let names = list(self.take(Key::Host));
        let addresses = list(self.take(Key::Hostaddr));
        let ports = list(self.take(Key::Port));
        let count = names.len().max(addresses.len()).max(1);
        if !names.is_empty() && !addresses.is_empty() && names.len() != addresses.len() {
            return Err(ConfigError::ListLength {
                key: "hostaddr",
                hosts: names.len(),
                others: addresses.len(),
            });
        }
        if ports.len() > 1 && ports.len() != count {
            return Err(ConfigError::ListLength {
                key: "port",
                hosts: count,
                others: ports.len(),
            });
        }
        (0..count)
            .map(|index| {
                let port = ports.get(index).or_else(|| ports.first()).map_or("", String::as_str);
                Ok(HostEntry {
                    name: names.get(index).filter(|name| !name.is_empty()).cloned(),
                    address: addresses
                        .get(index)
                        .filter(|a| !a.is_empty())
                        .map(|a| parse_address(a))
                        .transpose()?,
                    port: parse_port(port)?,
                })
            })
            .collect()
    }

    fn refuse_other_worlds(&mut self) -> Result<(), ConfigError> {
        if let Some(encoding) = self.take(Key::ClientEncoding) {
            let plain: String = encoding.to_ascii_lowercase().chars().filter(|c| *c != '-').collect();
            if !matches!(plain.as_str(), "utf8" | "unicode" | "auto") {
                return Err(ConfigError::InvalidValue {
                    key: "client_encoding",
                    expected: "UTF8, or leave it out",
                });
            }
        }
        self.parsed(Key::Gssencmode, &[("disable", ()), ("prefer", ())])?;
        self.parsed(Key::Sslcompression, &[("0", ())])?;
        Ok(())
    }
}

impl Key {
    fn expected(self) -> &'static str {
        match self {
            Self::Sslmode => "disable, allow, prefer, require, verify-ca or verify-full",
            Self::Sslnegotiation => "postgres or direct",
            Self::TargetSessionAttrs => "any, read-write, read-only, primary, standby or prefer-standby",
            Self::LoadBalanceHosts => "disable or random",
            Self::ChannelBinding => "disable, prefer or require",
            Self::Gssencmode => "disable or prefer; GSS encryption is not supported, use TLS",
            Self::Sslcompression => "0; TLS compression is not safe",
            _ => "0 or 1",
        }
    }
}

fn parse_port(text: &str) -> Result<u16, ConfigError> {
    match text {
        "" => Ok(5432),
        text => text
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or(ConfigError::InvalidValue {
                key: "port",
                expected: "a number from 1 to 65535",
            }),
    }
}

fn parse_address(text: &str) -> Result<IpAddr, ConfigError> {
    text.parse().map_err(|_| ConfigError::InvalidValue {
        key: "hostaddr",
        expected: "an IPv4 or IPv6 address",
    })
}
