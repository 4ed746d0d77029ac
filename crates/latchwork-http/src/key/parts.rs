use std::fmt;

use latchwork_core::key::{Key, KeyError, Namespace};

/// The parts of a key, as extractors add them.
#[derive(Default)]
pub struct KeyParts {
    text: String,
    ends: Vec<usize>,
    /// A key that was given as such. It counts while it stands alone.
    whole: Option<Key>,
}

impl KeyParts {
    /// Adds a part.
    pub fn push(&mut self, part: &str) {
        self.text.push_str(part);
        self.ends.push(self.text.len());
    }

    /// Adds a key: the key itself if it stays the only part, else its printed form.
    pub fn push_key(&mut self, key: Key) {
        self.whole = self.ends.is_empty().then_some(key);
        self.push(&key.to_string());
    }

    /// The number of parts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no part.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The parts in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(start, end)| &self.text[*start..*end])
    }

    /// Makes the key.
    ///
    /// # Errors
    ///
    /// As [`Namespace::key_of`].
    pub fn key(&self, namespace: &Namespace) -> Result<Key, KeyError> {
        match self.whole {
            Some(key) if self.len() == 1 => Ok(key),
            _ => namespace.key_of(&self.iter().collect::<Vec<_>>()),
        }
    }
}

/// Shows the number of parts only: they come from users.
impl fmt::Debug for KeyParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyParts")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_keep_their_borders() {
        let mut parts = KeyParts::default();
        assert!(parts.is_empty());
        for part in ["order", "", "42"] {
            parts.push(part);
        }
        assert_eq!(parts.iter().collect::<Vec<_>>(), ["order", "", "42"]);
        let shop = Namespace::new("shop").unwrap();
        assert_eq!(parts.key(&shop), shop.key_of(&["order", "", "42"]));
        assert_eq!(format!("{parts:?}"), "KeyParts { len: 3, .. }");
    }

    #[test]
    fn a_key_counts_as_itself_only_while_it_stands_alone() {
        let shop = Namespace::new("shop").unwrap();
        let mut parts = KeyParts::default();
        parts.push_key(Key::pair(1, 2));
        assert_eq!(parts.key(&shop), Ok(Key::pair(1, 2)));
        parts.push("x");
        assert_eq!(parts.key(&shop), shop.key_of(&["(1, 2)", "x"]));

        let mut parts = KeyParts::default();
        parts.push("x");
        parts.push_key(Key::bigint(5));
        assert_eq!(parts.key(&shop), shop.key_of(&["x", "5"]));
    }
}
