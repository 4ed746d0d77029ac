//! The choices among a few words that a connection setting can have.

/// How TLS is used, with libpq's names and meanings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SslMode {
    /// Never.
    Disable,
    /// Only if the server refuses a connection without it.
    Allow,
    /// If the server offers it; the default. Gives no protection from a network that tampers.
    #[default]
    Prefer,
    /// Always, without looking at the certificate, unless a root certificate is configured: then as
    /// [`VerifyCa`](Self::VerifyCa).
    Require,
    /// Always, and the certificate must lead to a trusted root.
    VerifyCa,
    /// Always, the certificate must lead to a trusted root, and must be made out for the host name.
    VerifyFull,
}

impl SslMode {
    pub(super) const NAMES: &[(&'static str, Self)] = &[
        ("disable", Self::Disable),
        ("allow", Self::Allow),
        ("prefer", Self::Prefer),
        ("require", Self::Require),
        ("verify-ca", Self::VerifyCa),
        ("verify-full", Self::VerifyFull),
    ];

    /// Names the mode as libpq does.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(_, mode)| *mode == self)
            .map_or("", |(name, _)| name)
    }

    /// Says whether a connection without TLS is refused.
    #[must_use]
    pub fn requires_tls(self) -> bool {
        matches!(self, Self::Require | Self::VerifyCa | Self::VerifyFull)
    }
}

/// What the server at the other end must be, with libpq's names and meanings.
///
/// Locks need a primary: a hot standby grants advisory locks that exclude nobody elsewhere, so a session that lands
/// on one is refused whatever is asked for here. With several hosts ask for [`ReadWrite`](Self::ReadWrite) or
/// [`Primary`](Self::Primary).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TargetSessionAttrs {
    /// Anything that answers; the default.
    #[default]
    Any,
    /// Transactions can write by default.
    ReadWrite,
    /// Transactions cannot write by default.
    ReadOnly,
    /// Not a hot standby.
    Primary,
    /// A hot standby.
    Standby,
    /// A hot standby if there is one among the hosts, else anything.
    PreferStandby,
}

impl TargetSessionAttrs {
    pub(super) const NAMES: &[(&'static str, Self)] = &[
        ("any", Self::Any),
        ("read-write", Self::ReadWrite),
        ("read-only", Self::ReadOnly),
        ("primary", Self::Primary),
        ("standby", Self::Standby),
        ("prefer-standby", Self::PreferStandby),
    ];

    /// Names the requirement as libpq does.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(_, attrs)| *attrs == self)
            .map_or("", |(name, _)| name)
    }
}

/// In which order several hosts are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LoadBalance {
    /// As written; the default.
    #[default]
    Disable,
    /// At random, and the addresses of one name too.
    Random,
}

impl LoadBalance {
    pub(super) const NAMES: &[(&'static str, Self)] = &[("disable", Self::Disable), ("random", Self::Random)];
}

/// Whether a SCRAM password exchange is bound to the TLS connection that it runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ChannelBinding {
    /// Never.
    Disable,
    /// When both sides can; the default.
    #[default]
    Prefer,
    /// Always; a server that cannot is refused.
    Require,
}

impl ChannelBinding {
    pub(super) const NAMES: &[(&'static str, Self)] = &[
        ("disable", Self::Disable),
        ("prefer", Self::Prefer),
        ("require", Self::Require),
    ];
}
