use std::fmt;

/// A fencing token for what is outside of the database: it grows with each fenced grant, so that a resource which keeps the
/// greatest that it has seen can refuse whoever comes with a smaller one.
///
/// It is the server's timeline and a transaction number of 64 bits. Its text has always the same length, so that texts
/// compare as terms do.
///
/// # Examples
///
/// ```
/// use latchwork_core::fence::Term;
///
/// let (old, new) = (Term::new(1, 9_000), Term::new(2, 731));
/// assert!(old < new);
/// assert_eq!(new.to_string(), "00000002-00000000000002db");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term {
    timeline: u32,
    transaction: u64,
}

impl Term {
    /// A term of a server's timeline and a transaction number in it.
    #[must_use]
    pub const fn new(timeline: u32, transaction: u64) -> Self {
        Self { timeline, transaction }
    }

    /// The server's timeline: it changes when a standby is promoted.
    #[must_use]
    pub const fn timeline(self) -> u32 {
        self.timeline
    }

    /// The number of the transaction in it.
    #[must_use]
    pub const fn transaction(self) -> u64 {
        self.transaction
    }

    /// The term as one number.
    #[must_use]
    pub const fn as_u128(self) -> u128 {
        ((self.timeline as u128) << 64) | self.transaction as u128
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{:016x}", self.timeline, self.transaction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_numbers_and_texts_grow_alike() {
        let terms = [
            Term::new(1, 0),
            Term::new(1, 9),
            Term::new(1, 10),
            Term::new(1, u64::MAX),
            Term::new(2, 3),
            Term::new(u32::MAX, u64::MAX),
        ];
        for pair in terms.windows(2) {
            assert!(pair[0] < pair[1]);
            assert!(pair[0].as_u128() < pair[1].as_u128());
            assert!(pair[0].to_string() < pair[1].to_string());
        }
    }
}
