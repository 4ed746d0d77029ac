//! What is locked: a [`Key`], and the ways to come by one.
//!
//! - A name in a [`Namespace`]: the canonical form, for everything that is new.
//! - A number of your own: [`Key::bigint`] and [`Key::pair`].
//! - The key that another tool uses for the same thing: [`compat`].
//! - A constant declared with [`keys!`](crate::keys), checked at compile time and named by the inspection.
//!
//! PostgreSQL has two spaces of advisory keys that never meet: one 64-bit number, and a pair of 32-bit numbers. Named
//! keys, raw numbers, most `compat` keys and everything that [`Key::derive`] yields **share the 64-bit space**. A raw
//! `Key::bigint(1)` therefore excludes everybody else's `1` in the same database; a named key meets another one by
//! accident with a probability of about 3e-8 among a million names.

pub mod compat;
mod declare;
mod derive;
mod digest;
mod error;
mod into_key;
mod namespace;
pub mod registry;
pub mod sql;

use std::fmt;

pub use error::KeyError;
pub use into_key::IntoKey;
pub use namespace::Namespace;
pub use registry::Registry;

/// The most bytes that a name may have, over all of its parts, and that a namespace may have: 64 KiB.
pub const MAX_NAME_LEN: usize = 64 * 1024;

/// The identity of a lock in PostgreSQL: a 64-bit number or a pair of 32-bit numbers.
///
/// The two kinds are disjoint: `Key::bigint(0)` and `Key::pair(0, 0)` exclude nobody but themselves. A key is 16 bytes,
/// is copied freely, and carries no name; a [`Registry`] finds the name again.
///
/// # Examples
///
/// ```
/// use latchwork_core::key::{Key, Namespace};
///
/// const LEGACY_JOB: Key = Key::bigint(7_100);
/// assert_eq!(LEGACY_JOB.to_string(), "7100");
///
/// let order = Namespace::new("shop")?.key_of(&["order", "42"])?;
/// assert!(order.as_bigint().is_some());
/// # Ok::<(), latchwork_core::key::KeyError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Repr);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Repr {
    Bigint(i64),
    Pair(i32, i32),
}

impl Key {
    /// Takes a raw number, as in `pg_advisory_lock(bigint)`.
    #[must_use]
    pub const fn bigint(value: i64) -> Self {
        Self(Repr::Bigint(value))
    }

    /// Takes a raw pair, as in `pg_advisory_lock(int, int)`.
    #[must_use]
    pub const fn pair(first: i32, second: i32) -> Self {
        Self(Repr::Pair(first, second))
    }

    /// Returns the number, or `None` for a pair.
    #[must_use]
    pub const fn as_bigint(self) -> Option<i64> {
        match self.0 {
            Repr::Bigint(value) => Some(value),
            Repr::Pair(..) => None,
        }
    }

    /// Returns the pair, or `None` for a 64-bit number.
    #[must_use]
    pub const fn as_pair(self) -> Option<(i32, i32)> {
        match self.0 {
            Repr::Bigint(_) => None,
            Repr::Pair(first, second) => Some((first, second)),
        }
    }

    /// Returns what `pg_locks.classid` shows: the high half of the number, or the first of the pair.
    #[must_use]
    pub const fn classid(self) -> u32 {
        match self.0 {
            Repr::Bigint(value) => (value >> 32) as u32,
            Repr::Pair(first, _) => first as u32,
        }
    }

    /// Returns what `pg_locks.objid` shows: the low half of the number, or the second of the pair.
    #[must_use]
    pub const fn objid(self) -> u32 {
        match self.0 {
            Repr::Bigint(value) => value as u32,
            Repr::Pair(_, second) => second as u32,
        }
    }

    /// Returns what `pg_locks.objsubid` shows: 1 for a 64-bit number, 2 for a pair.
    #[must_use]
    pub const fn objsubid(self) -> u16 {
        match self.0 {
            Repr::Bigint(_) => 1,
            Repr::Pair(..) => 2,
        }
    }

    /// The key of a row: of the table's name and the row's primary key, in the unnamed namespace. So that "one at a time
    /// per order" needs no invention; see [`Namespace::row_key`].
    ///
    /// # Errors
    ///
    /// As [`Namespace::key_of`].
    ///
    /// # Examples
    ///
    /// ```
    /// use latchwork_core::key::{Key, Namespace};
    ///
    /// assert_eq!(Key::row("orders", 42)?, Namespace::unnamed().key_of(&["orders", "42"])?);
    /// # Ok::<(), latchwork_core::key::KeyError>(())
    /// ```
    pub fn row(table: &str, primary_key: impl fmt::Display) -> Result<Self, KeyError> {
        Namespace::unnamed().row_key(table, primary_key)
    }

    /// Writes the key as the arguments of one of PostgreSQL's lock functions.
    ///
    /// # Examples
    ///
    /// ```
    /// use latchwork_core::Key;
    ///
    /// assert_eq!(Key::bigint(-7).sql_arguments(), "'-7'::pg_catalog.int8");
    /// assert_eq!(Key::pair(-1, 2).sql_arguments(), "'-1'::pg_catalog.int4, '2'::pg_catalog.int4");
    /// ```
    #[must_use]
    pub fn sql_arguments(self) -> String {
        // In quotes, since a cast binds closer than a minus does.
        match self.0 {
            Repr::Bigint(number) => format!("'{number}'::pg_catalog.int8"),
            Repr::Pair(first, second) => format!("'{first}'::pg_catalog.int4, '{second}'::pg_catalog.int4"),
        }
    }

    /// Reads a key back from a row of `pg_locks` whose `locktype` is `advisory`.
    ///
    /// Returns `None` for an `objsubid` that is not an advisory key's (neither 1 nor 2).
    ///
    /// # Examples
    ///
    /// ```
    /// use latchwork_core::key::Key;
    ///
    /// let key = Key::bigint(-2);
    /// assert_eq!(Key::from_pg_locks(key.classid(), key.objid(), key.objsubid()), Some(key));
    /// assert_eq!(Key::from_pg_locks(1, 2, 3), None);
    /// ```
    #[must_use]
    pub const fn from_pg_locks(classid: u32, objid: u32, objsubid: u16) -> Option<Self> {
        match objsubid {
            1 => Some(Self::bigint((((classid as u64) << 32) | objid as u64) as i64)),
            2 => Some(Self::pair(classid as i32, objid as i32)),
            _ => None,
        }
    }
}

/// Shows the number in decimal, or the pair as `(a, b)`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Repr::Bigint(value) => value.fmt(f),
            Repr::Pair(first, second) => write!(f, "({first}, {second})"),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Repr::Bigint(value) => write!(f, "Key({value})"),
            Repr::Pair(first, second) => write!(f, "Key({first}, {second})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_spaces_are_disjoint() {
        assert_ne!(Key::bigint(0), Key::pair(0, 0));
        assert_ne!(Key::bigint(1 << 32 | 2), Key::pair(1, 2));
        assert_eq!(Key::bigint(5).as_pair(), None);
        assert_eq!(Key::pair(5, 6).as_bigint(), None);
    }

    #[test]
    fn a_key_stays_small() {
        assert!(size_of::<Key>() <= 16);
        assert!(size_of::<Option<Key>>() <= 16);
    }

    #[test]
    fn every_key_comes_back_from_its_pg_locks_columns() {
        let mut keys = vec![
            Key::bigint(0),
            Key::bigint(-1),
            Key::bigint(i64::MIN),
            Key::bigint(i64::MAX),
            Key::bigint(i64::from(u32::MAX)),
            Key::pair(0, 0),
            Key::pair(-1, i32::MAX),
            Key::pair(i32::MIN, -1),
        ];
        let mut random = fastrand::Rng::with_seed(1);
        keys.extend((0..1_000).map(|_| Key::bigint(random.i64(..))));
        keys.extend((0..1_000).map(|_| Key::pair(random.i32(..), random.i32(..))));
        for key in keys {
            assert_eq!(
                Key::from_pg_locks(key.classid(), key.objid(), key.objsubid()),
                Some(key)
            );
        }
    }

    #[test]
    fn a_row_that_is_no_advisory_key_is_refused() {
        for objsubid in [0, 3, 4, u16::MAX] {
            assert_eq!(Key::from_pg_locks(1, 2, objsubid), None);
        }
    }

    #[test]
    fn pg_locks_columns_match_the_server() {
        // pg_advisory_lock(-2) shows as classid 4294967295, objid 4294967294, objsubid 1.
        let key = Key::bigint(-2);
        assert_eq!(
            (key.classid(), key.objid(), key.objsubid()),
            (u32::MAX, u32::MAX - 1, 1)
        );
        let key = Key::pair(-1, 7);
        assert_eq!((key.classid(), key.objid(), key.objsubid()), (u32::MAX, 7, 2));
    }

    #[test]
    fn printable_forms() {
        assert_eq!(Key::bigint(-42).to_string(), "-42");
        assert_eq!(Key::pair(-1, 2).to_string(), "(-1, 2)");
        assert_eq!(
            format!("{:?} {:?}", Key::bigint(-42), Key::pair(-1, 2)),
            "Key(-42) Key(-1, 2)"
        );
    }
}
