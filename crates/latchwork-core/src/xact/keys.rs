use std::fmt;

use crate::Key;

/// The keys that a transaction locks together: each once, in the order that everybody takes them in.
///
/// Made from one key, or from any number of them.
///
/// # Examples
///
/// ```
/// use latchwork_core::{Key, xact::KeySet};
///
/// let accounts = KeySet::from([Key::bigint(7), Key::bigint(3), Key::bigint(7)]);
/// assert_eq!(accounts.as_slice(), [Key::bigint(3), Key::bigint(7)]);
/// assert_eq!(accounts.to_string(), "keys 3, 7");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeySet(Vec<Key>);

impl KeySet {
    /// The keys in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Key] {
        &self.0
    }
}

impl FromIterator<Key> for KeySet {
    fn from_iter<I: IntoIterator<Item = Key>>(keys: I) -> Self {
        let mut keys: Vec<Key> = keys.into_iter().collect();
        keys.sort_unstable();
        keys.dedup();
        Self(keys)
    }
}

impl From<Key> for KeySet {
    fn from(key: Key) -> Self {
        Self(vec![key])
    }
}

impl<const N: usize> From<[Key; N]> for KeySet {
    fn from(keys: [Key; N]) -> Self {
        keys.into_iter().collect()
    }
}

impl From<&[Key]> for KeySet {
    fn from(keys: &[Key]) -> Self {
        keys.iter().copied().collect()
    }
}

impl From<Vec<Key>> for KeySet {
    fn from(keys: Vec<Key>) -> Self {
        keys.into_iter().collect()
    }
}

impl fmt::Display for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_slice() {
            [] => f.write_str("no key"),
            [key] => write!(f, "key {key}"),
            [first, others @ ..] => {
                write!(f, "keys {first}")?;
                others.iter().try_for_each(|key| write!(f, ", {key}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_the_same_however_its_keys_are_given() {
        let (a, b, pair) = (Key::bigint(-1), Key::bigint(2), Key::pair(0, 0));
        let set = KeySet::from([pair, b, a]);
        assert_eq!(set, KeySet::from(vec![a, b, pair, a]));
        assert_eq!(set, KeySet::from(&[b, pair, a][..]));
        assert_eq!(set, [b, b, a, pair].into_iter().collect());
        assert_eq!(KeySet::from(a).as_slice(), [a]);
    }

    #[test]
    fn a_text_names_each_key() {
        assert_eq!(KeySet::from([]).to_string(), "no key");
        assert_eq!(KeySet::from(Key::bigint(4)).to_string(), "key 4");
        assert_eq!(
            KeySet::from([Key::bigint(4), Key::pair(1, 2)]).to_string(),
            "keys 4, (1, 2)"
        );
    }
}
