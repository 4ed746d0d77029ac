use std::fmt;
use std::sync::Arc;

use super::digest::{Hasher, check_name, first_i32, first_i64};
use super::{Key, KeyError, MAX_NAME_LEN};

/// The fewest bytes that a secret may have.
pub(super) const MIN_SECRET_LEN: usize = 16;

/// The part of a name that says whose name it is, mixed into every key made from it.
///
/// Two programs that share a database and lock on `"reindex"` each get their own key if their namespaces differ, and
/// the same key if they are equal. Cloning is cheap.
///
/// # The canonical key
///
/// The bytes that are hashed are, for the namespace and then for each part of the name in order: the length in bytes
/// as 4 bytes big-endian, then the text in UTF-8. The key is the first 8 bytes of their SHA-256, read big-endian as a
/// signed number. So `Namespace::new("shop")?.key_of(&["order", "42"])` is
///
/// ```text
/// SHA-256( 00 00 00 04 "shop"  00 00 00 05 "order"  00 00 00 02 "42" )[0..8]
/// ```
///
/// The lengths keep `["a", "bc"]` apart from `["ab", "c"]`. Texts are compared byte by byte: case counts, and two
/// Unicode spellings of one letter are two names. The unnamed namespace has the length 0. With a secret
/// ([`with_secret`](Self::with_secret)) HMAC-SHA-256 takes the place of SHA-256. The module [`sql`](super::sql) yields
/// the same as an SQL expression.
///
/// # Examples
///
/// ```
/// use latchwork_core::key::Namespace;
///
/// let shop = Namespace::new("shop")?;
/// assert_eq!(shop.key("reindex")?, shop.key_of(&["reindex"])?);
/// assert_ne!(shop.key("reindex")?, Namespace::new("forum")?.key("reindex")?);
/// # Ok::<(), latchwork_core::key::KeyError>(())
/// ```
#[derive(Clone)]
pub struct Namespace(Arc<Inner>);

struct Inner {
    name: Box<str>,
    hasher: Hasher,
}

impl Namespace {
    /// Names a namespace, usually after the application.
    ///
    /// # Errors
    ///
    /// [`KeyError::EmptyNamespace`] (a setting that was not set must not silently mean "shared with everybody": see
    /// [`unnamed`](Self::unnamed)), [`KeyError::NamespaceTooLong`] above [`MAX_NAME_LEN`], and
    /// [`KeyError::NulInNamespace`].
    pub fn new(name: impl AsRef<str>) -> Result<Self, KeyError> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(KeyError::EmptyNamespace);
        }
        if name.len() > MAX_NAME_LEN {
            return Err(KeyError::NamespaceTooLong { len: name.len() });
        }
        if name.contains('\0') {
            return Err(KeyError::NulInNamespace);
        }
        Ok(Self::plain(name))
    }

    /// Returns the namespace without a name, shared by all programs of the database that have none.
    ///
    /// It is the default. Right for a database with a single application.
    #[must_use]
    pub fn unnamed() -> Self {
        Self::plain("")
    }

    /// Mixes a secret into every key, for names that come from hostile users.
    ///
    /// Without it anybody can compute keys, and needs about 2^44 hashes to find a name that falls on one of a million
    /// live keys. With it nobody outside can aim at all. Every instance needs the same secret, and the keys differ
    /// from those of the same namespace without it. The secret is neither kept nor shown by `Debug`.
    ///
    /// # Errors
    ///
    /// [`KeyError::SecretTooShort`] below 16 bytes; 32 random bytes are best.
    ///
    /// # Examples
    ///
    /// ```
    /// use latchwork_core::key::Namespace;
    ///
    /// let secret = b"32 random bytes from a vault ...";
    /// let uploads = Namespace::new("uploads")?.with_secret(secret)?;
    /// assert_ne!(uploads.key("a.png")?, Namespace::new("uploads")?.key("a.png")?);
    /// # Ok::<(), latchwork_core::key::KeyError>(())
    /// ```
    pub fn with_secret(self, secret: impl AsRef<[u8]>) -> Result<Self, KeyError> {
        let secret = secret.as_ref();
        if secret.len() < MIN_SECRET_LEN {
            return Err(KeyError::SecretTooShort { len: secret.len() });
        }
        let hasher = Hasher::keyed(self.name(), secret);
        Ok(Self(Arc::new(Inner {
            name: self.name().into(),
            hasher,
        })))
    }

    /// Returns the name, empty for the unnamed namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Tells whether a secret is mixed into the keys.
    #[must_use]
    pub fn has_secret(&self) -> bool {
        matches!(self.0.hasher, Hasher::Keyed(_))
    }

    /// Makes the key of a name: the same as [`key_of`](Self::key_of) with that one part.
    ///
    /// # Errors
    ///
    /// As [`key_of`](Self::key_of).
    pub fn key(&self, name: &str) -> Result<Key, KeyError> {
        self.key_of(&[name])
    }

    /// Makes the key of a name in several parts.
    ///
    /// Use parts, and not a text with separators, when a part comes from outside: `["a/b", "c"]` and `["a", "b/c"]`
    /// are two keys, `"a/b/c"` is a third. A part may be empty, as long as one is not.
    ///
    /// # Errors
    ///
    /// [`KeyError::EmptyName`] when there is no part or all are empty, [`KeyError::NameTooLong`] when the parts have
    /// more than [`MAX_NAME_LEN`] bytes together, [`KeyError::NulInName`].
    ///
    /// # Examples
    ///
    /// ```
    /// use latchwork_core::key::Namespace;
    ///
    /// let shop = Namespace::new("shop")?;
    /// assert_ne!(shop.key_of(&["a", "bc"])?, shop.key_of(&["ab", "c"])?);
    /// # Ok::<(), latchwork_core::key::KeyError>(())
    /// ```
    pub fn key_of(&self, parts: &[&str]) -> Result<Key, KeyError> {
        check_name(parts)?;
        Ok(Key::bigint(first_i64(&self.0.hasher.name(parts))))
    }

    /// Makes the key of a row: the same as [`key_of`](Self::key_of) with the table's name and the row's primary key as
    /// text. Several columns of a primary key are better given as parts of their own.
    ///
    /// The name is taken as it is given: `"orders"` and `"public.orders"` are two keys.
    ///
    /// # Errors
    ///
    /// As [`key_of`](Self::key_of).
    pub fn row_key(&self, table: &str, primary_key: impl fmt::Display) -> Result<Key, KeyError> {
        self.key_of(&[table, &primary_key.to_string()])
    }

    /// Hashes a name to 32 bits: the first 4 bytes, big-endian, of the hash that [`key`](Self::key) takes 8 of.
    ///
    /// Too short to keep names apart (100,000 of them collide with a probability of 69 %): for markers and for the
    /// first half of pairs only.
    ///
    /// # Errors
    ///
    /// As [`key_of`](Self::key_of).
    pub fn hash32(&self, name: &str) -> Result<i32, KeyError> {
        let parts = [name];
        check_name(&parts)?;
        Ok(first_i32(&self.0.hasher.name(&parts)))
    }

    fn plain(name: &str) -> Self {
        Self(Arc::new(Inner {
            name: name.into(),
            hasher: Hasher::plain(name),
        }))
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self::unnamed()
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Namespace")
            .field("name", &self.0.name)
            .field("has_secret", &self.has_secret())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8; 32] = b"32 random bytes from a vault ...";

    fn shop() -> Namespace {
        Namespace::new("shop").unwrap()
    }

    /// Computed with another implementation of SHA-256, from the format that the docs state.
    #[test]
    fn golden_vectors() {
        let long = "x".repeat(MAX_NAME_LEN);
        let vectors: [(&[&str], i64); 8] = [
            (&["reindex"], 3107224507058314625),
            (&["nightly-billing"], -9029671160158306976),
            (&["order", "42"], -4728112896971531517),
            (&["a", "bc"], 2664691309395599828),
            (&["ab", "c"], 8441599351220422243),
            (&["", "x"], 3723822353019566499),
            (&["größe 漢字 😀"], -570430833716758184),
            (&[&long], -8847966502732291306),
        ];
        for (parts, key) in vectors {
            assert_eq!(shop().key_of(parts), Ok(Key::bigint(key)), "{:.40}", parts[0]);
        }
        assert_eq!(
            Namespace::unnamed().key("reindex"),
            Ok(Key::bigint(-767873005507550786))
        );
        let uploads = Namespace::new("uploads").unwrap().with_secret(SECRET).unwrap();
        assert_eq!(uploads.key("a.png"), Ok(Key::bigint(-2070480240658742062)));
    }

    #[test]
    fn one_part_is_the_same_as_the_name_alone() {
        for name in ["x", "order/42", "größe"] {
            assert_eq!(shop().key(name), shop().key_of(&[name]));
        }
    }

    #[test]
    fn no_two_ways_to_split_a_text_give_one_key() {
        const TEXT: &str = "aaaaaaaaaaa";
        let mut keys = std::collections::HashSet::new();
        // Each bit says whether the text is cut after that letter. The first piece is the namespace.
        for cuts in 1_u32..1 << (TEXT.len() - 1) {
            let mut pieces = vec![];
            let mut start = 0;
            for end in (1..TEXT.len())
                .filter(|end| cuts >> (end - 1) & 1 == 1)
                .chain([TEXT.len()])
            {
                pieces.push(&TEXT[start..end]);
                start = end;
            }
            let key = Namespace::new(pieces[0]).unwrap().key_of(&pieces[1..]).unwrap();
            assert!(keys.insert(key), "{pieces:?}");
        }
        assert_eq!(keys.len(), 1023);
    }

    #[test]
    fn names_are_case_sensitive_and_namespaces_are_apart() {
        assert_ne!(shop().key("Reindex"), shop().key("reindex"));
        assert_ne!(shop().key("reindex"), Namespace::new("forum").unwrap().key("reindex"));
        assert_ne!(shop().key("reindex"), Namespace::unnamed().key_of(&["shop", "reindex"]));
        assert_eq!(Namespace::default().key("x"), Namespace::unnamed().key("x"));
    }

    #[test]
    fn hash32_is_the_high_half_of_the_key() {
        assert_eq!(shop().hash32("reindex"), Ok(723457081));
        for name in ["a", "b", "nightly-billing"] {
            let key = shop().key(name).unwrap();
            assert_eq!(shop().hash32(name), Ok(key.classid() as i32));
        }
        assert_eq!(shop().hash32(""), Err(KeyError::EmptyName));
    }

    #[test]
    fn a_secret_changes_every_key_and_is_never_shown() {
        let with = |secret: &[u8]| shop().with_secret(secret).unwrap();
        assert_ne!(with(SECRET).key("a"), shop().key("a"));
        assert_ne!(with(SECRET).key("a"), with(b"another secret of enough bytes").key("a"));
        assert_eq!(with(SECRET).key("a"), with(SECRET).clone().key("a"));
        assert!(with(SECRET).has_secret() && !shop().has_secret());
        assert_eq!(
            format!("{:?}", with(SECRET)),
            "Namespace { name: \"shop\", has_secret: true }"
        );
    }

    #[test]
    fn a_short_secret_is_refused() {
        for len in [0, MIN_SECRET_LEN - 1] {
            assert_eq!(
                shop().with_secret(vec![7; len]).unwrap_err(),
                KeyError::SecretTooShort { len }
            );
        }
        assert!(shop().with_secret([7; MIN_SECRET_LEN]).is_ok());
    }

    #[test]
    fn bad_names_are_refused() {
        let shop = shop();
        for parts in [&[][..], &[""], &["", ""]] {
            assert_eq!(shop.key_of(parts), Err(KeyError::EmptyName));
        }
        let longest = "x".repeat(MAX_NAME_LEN);
        assert!(shop.key(&longest).is_ok());
        assert_eq!(
            shop.key_of(&[&longest, "y"]),
            Err(KeyError::NameTooLong { len: MAX_NAME_LEN + 1 })
        );
        let huge = "x".repeat(10_000_000);
        assert_eq!(shop.key(&huge), Err(KeyError::NameTooLong { len: 10_000_000 }));
        assert_eq!(shop.key_of(&["a", "b\0c"]), Err(KeyError::NulInName { part: 1, at: 1 }));
    }

    #[test]
    fn bad_namespaces_are_refused() {
        assert_eq!(Namespace::new("").unwrap_err(), KeyError::EmptyNamespace);
        assert_eq!(Namespace::new("a\0").unwrap_err(), KeyError::NulInNamespace);
        let len = MAX_NAME_LEN + 1;
        assert_eq!(
            Namespace::new("x".repeat(len)).unwrap_err(),
            KeyError::NamespaceTooLong { len }
        );
        assert!(Namespace::new("x".repeat(MAX_NAME_LEN)).is_ok());
    }
}
