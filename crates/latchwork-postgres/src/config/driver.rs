//! The driver's form of the settings.

use std::time::Duration;

use super::{ChannelBinding, Config, HostEntry, LoadBalance, Secret, SslMode, TargetSessionAttrs, default_host};
use super::{is_default_socket, passfile};

impl Config {
    /// Makes the driver's form of these settings, for use with the driver's own `connect`, or with a pool. TLS needs
    /// the connector of [`tls_connector`](Self::tls_connector) beside it.
    ///
    /// The driver knows less than this library does: of `target_session_attrs` it gets `read-write` for `primary`,
    /// `read-only` for `standby` and `any` for `prefer-standby`; `sslmode=allow` becomes `disable`; a password file is
    /// asked for the first host only; and TLS that is required is required of unix sockets too, unless there are only
    /// sockets.
    #[must_use]
    pub fn to_tokio_postgres(&self) -> tokio_postgres::Config {
        use tokio_postgres::config::TargetSessionAttrs as Attrs;
        let mut driver = self.driver();
        let on_sockets_only = self.hosts.iter().all(HostEntry::is_socket);
        driver
            .ssl_mode(crate::tls::driver_mode(if on_sockets_only {
                SslMode::Disable
            } else {
                self.ssl_mode
            }))
            .connect_timeout(self.connect_timeout())
            .target_session_attrs(match self.target_session_attrs {
                TargetSessionAttrs::ReadWrite | TargetSessionAttrs::Primary => Attrs::ReadWrite,
                TargetSessionAttrs::ReadOnly | TargetSessionAttrs::Standby => Attrs::ReadOnly,
                TargetSessionAttrs::Any | TargetSessionAttrs::PreferStandby => Attrs::Any,
            })
            .load_balance_hosts(match self.load_balance {
                LoadBalance::Disable => tokio_postgres::config::LoadBalanceHosts::Disable,
                LoadBalance::Random => tokio_postgres::config::LoadBalanceHosts::Random,
            });
        if let Some(password) = self.hosts.first().and_then(|host| self.password_for(host)) {
            driver.password(password.expose());
        }
        let addresses = self.hosts.iter().filter(|host| host.address.is_some()).count();
        for host in &self.hosts {
            match (&host.name, host.address) {
                (Some(name), _) => driver.host(name),
                (None, Some(address)) => driver.host(address.to_string()),
                (None, None) => driver.host(default_host(host.port)),
            };
            // The driver wants an address for every host or for none.
            if let Some(address) = host.address.filter(|_| addresses == self.hosts.len()) {
                driver.hostaddr(address);
            }
            driver.port(host.port);
        }
        if self.ssl_direct {
            driver.ssl_negotiation(tokio_postgres::config::SslNegotiation::Direct);
        }
        driver
    }

    /// The driver's settings for everything but hosts and TLS. The password is left to
    /// [`password_for`](Self::password_for), which depends on the host.
    pub(crate) fn driver(&self) -> tokio_postgres::Config {
        let mut driver = tokio_postgres::Config::new();
        driver
            .keepalives(self.keepalives)
            .channel_binding(match self.channel_binding {
                ChannelBinding::Disable => tokio_postgres::config::ChannelBinding::Disable,
                ChannelBinding::Prefer => tokio_postgres::config::ChannelBinding::Prefer,
                ChannelBinding::Require => tokio_postgres::config::ChannelBinding::Require,
            });
        if let Some(user) = &self.user {
            driver.user(user);
        }
        if let Some(dbname) = &self.dbname {
            driver.dbname(dbname);
        }
        if let Some(name) = &self.application_name {
            driver.application_name(name);
        }
        if let Some(options) = &self.options {
            driver.options(options);
        }
        driver
    }

    /// Puts the keepalive settings into `driver`: the user's own where given, else ones that find a dead network
    /// path after `silence`.
    pub(crate) fn apply_keepalive(&self, driver: &mut tokio_postgres::Config, silence: Duration) {
        // Keepalive counts whole seconds; three probes after the idle time, so never less than `silence` in all.
        let step = Duration::from_secs((silence.as_secs_f64() / 4.0).ceil().max(1.0) as u64);
        driver
            .keepalives_idle(self.keepalives_idle.unwrap_or(step))
            .keepalives_interval(self.keepalives_interval.unwrap_or(step))
            .keepalives_retries(self.keepalives_count.unwrap_or(3))
            .tcp_user_timeout(self.tcp_user_timeout.unwrap_or(silence));
    }

    /// The password to use with one host: the one that is set, or the first that fits in the password file.
    pub(crate) fn password_for(&self, host: &HostEntry) -> Option<Secret> {
        if self.password.is_some() {
            return self.password.clone();
        }
        let path = self.passfile.as_deref()?;
        let user = self.user.clone().or_else(|| whoami::username().ok())?;
        let address = host.address.map(|address| address.to_string());
        // The default socket goes by the name of localhost.
        let name = host
            .name
            .as_deref()
            .or(address.as_deref())
            .filter(|name| !is_default_socket(name));
        let wanted = passfile::Wanted {
            host: name.unwrap_or("localhost"),
            port: host.port,
            database: self.dbname.as_deref().unwrap_or(&user),
            user: &user,
        };
        passfile::lookup(path, wanted)
    }
}
