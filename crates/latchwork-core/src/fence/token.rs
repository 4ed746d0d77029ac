use std::{fmt, str::FromStr};

use crate::{key::Key, mode::Mode};

/// What a fenced transaction proves: the identity of one fenced grant.
///
/// It is a value that proves nothing by itself, and may be handed to other tasks, and as a text to other processes that
/// work for the holder.
///
/// # Examples
///
/// ```
/// use latchwork_core::{Key, Mode, fence::Fence};
///
/// let fence = Fence::new(Key::bigint(42), Mode::Exclusive, Key::bigint(-7));
/// assert_eq!(fence.to_string().parse(), Ok(fence));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    key: Key,
    mode: Mode,
    grant: Key,
}

impl Fence {
    /// The fence of one grant of a key, whose session also holds `grant`: a key that was never used before. Made by
    /// engines.
    #[must_use]
    pub const fn new(key: Key, mode: Mode, grant: Key) -> Self {
        Self { key, mode, grant }
    }

    /// A fence for a new grant of a key, with a fresh grant key. Made by engines.
    #[must_use]
    pub fn fresh(key: Key, mode: Mode) -> Self {
        Self::new(key, mode, Key::bigint(fastrand::i64(..)))
    }

    /// The key that is locked.
    #[must_use]
    pub const fn key(&self) -> Key {
        self.key
    }

    /// How it is held.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The key that the session of this very grant holds beside the lock's own, and nobody ever did before.
    #[must_use]
    pub const fn grant_key(&self) -> Key {
        self.grant
    }

    /// The key that transactions of holders in a mode have shared while they run.
    #[must_use]
    pub fn transactions_key(key: Key, mode: Mode) -> Key {
        key.derive("fence", u32::from(mode == Mode::Shared))
    }

    /// The keys whose transactions must have ended before this grant begins: of exclusive holders, and for an exclusive
    /// grant of shared ones too.
    #[must_use]
    pub fn drained_keys(&self) -> Vec<Key> {
        let modes: &[Mode] = match self.mode {
            Mode::Exclusive => &[Mode::Exclusive, Mode::Shared],
            Mode::Shared => &[Mode::Exclusive],
        };
        modes
            .iter()
            .map(|mode| Self::transactions_key(self.key, *mode))
            .collect()
    }
}

/// The letter of the mode, and three numbers in hexadecimal.
impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Mode::Exclusive => 'x',
            Mode::Shared => 's',
        };
        write!(f, "{mode}")?;
        for key in [self.key, self.grant] {
            write!(f, "-{}{:08x}{:08x}", key.objsubid(), key.classid(), key.objid())?;
        }
        Ok(())
    }
}

impl FromStr for Fence {
    type Err = ParseFenceError;

    fn from_str(text: &str) -> Result<Self, ParseFenceError> {
        let mut parts = text.split('-');
        let mode = match parts.next() {
            Some("x") => Mode::Exclusive,
            Some("s") => Mode::Shared,
            _ => return Err(ParseFenceError),
        };
        let mut key = || parts.next().and_then(parse_key).ok_or(ParseFenceError);
        let fence = Self::new(key()?, mode, key()?);
        match parts.next() {
            None => Ok(fence),
            Some(_) => Err(ParseFenceError),
        }
    }
}

fn parse_key(text: &str) -> Option<Key> {
    let number = |range| text.get(range).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let is_hex = text.len() == 17 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let subid = u16::try_from(number(0..1)?).ok()?;
    Key::from_pg_locks(number(1..9)?, number(9..17)?, subid).filter(|_| is_hex)
}

/// A text that is no [`Fence`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no fence: take the text that `to_string` has made of one")]
#[non_exhaustive]
pub struct ParseFenceError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_its_text() {
        for key in [Key::bigint(i64::MIN), Key::bigint(1), Key::pair(-1, 2)] {
            for mode in [Mode::Exclusive, Mode::Shared] {
                let fence = Fence::fresh(key, mode);
                assert_eq!(fence.to_string().parse(), Ok(fence));
            }
        }
        for text in [
            "",
            "x",
            "x-1",
            "y-10000000000000001-10000000000000001",
            "x-30000000000000001-10000000000000001",
            "x-1+000000000000001-10000000000000001",
            "x-10000000000000001-10000000000000001-10000000000000001",
            "x-1000000000000000ö-10000000000000001",
        ] {
            assert_eq!(text.parse::<Fence>(), Err(ParseFenceError), "{text}");
        }
    }

    #[test]
    fn each_grant_has_a_key_of_its_own_and_readers_do_not_wait_for_readers() {
        let key = Key::bigint(5);
        let (one, other) = (Fence::fresh(key, Mode::Exclusive), Fence::fresh(key, Mode::Exclusive));
        assert_ne!(one.grant_key(), other.grant_key());
        let exclusive = Fence::transactions_key(key, Mode::Exclusive);
        let shared = Fence::transactions_key(key, Mode::Shared);
        assert_eq!(one.drained_keys(), [exclusive, shared]);
        assert_eq!(Fence::fresh(key, Mode::Shared).drained_keys(), [exclusive]);
    }
}
