//! Names of keys, for people who look at locks: declared at compile time with [`keys!`](crate::keys), or added at run
//! time.
//!
//! A [`Key`] has no name in it, and `pg_locks` shows numbers. A [`Registry`] turns them back into names.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use super::Key;
#[doc(hidden)]
pub use super::declare::named;

/// Names of keys.
///
/// The static `REGISTRY` of a module that [`keys!`](crate::keys) declares is one. Make a further one to put several
/// together, and to name keys of other kinds: raw numbers, keys of other tools, slots.
///
/// # Examples
///
/// ```
/// use latchwork_core::key::{Registry, compat};
///
/// latchwork_core::keys! {
///     mod keys in "shop" {
///         AI_CALLS = "ai-calls";
///     }
/// }
///
/// let mut names = Registry::new();
/// names.merge(&keys::REGISTRY)?;
/// names.add(compat::sqlx_migrate("app"), "sqlx migrations")?;
/// names.add_derived(keys::AI_CALLS, "slot", 0..5)?;
///
/// assert_eq!(names.name(keys::AI_CALLS), Some("ai-calls"));
/// assert_eq!(names.name(keys::AI_CALLS.derive("slot", 3)), Some("ai-calls slot 3"));
/// assert_eq!(names.name(compat::rails_migrations("app")), None);
/// # Ok::<(), latchwork_core::key::registry::RegistryError>(())
/// ```
#[derive(Clone, Default)]
pub struct Registry {
    declared: &'static [Entry<'static>],
    added: BTreeMap<Key, Name>,
}

#[derive(Clone)]
struct Name {
    namespace: Option<Cow<'static, str>>,
    name: Cow<'static, str>,
}

impl Registry {
    /// Makes an empty registry.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            declared: &[],
            added: BTreeMap::new(),
        }
    }

    /// Returns the name of a key.
    #[must_use]
    pub fn name(&self, key: Key) -> Option<&str> {
        self.entry(key).map(|entry| entry.name)
    }

    /// Returns what is known of a key: its name and, for a declared one, its namespace.
    #[must_use]
    pub fn entry(&self, key: Key) -> Option<Entry<'_>> {
        if let Some(name) = self.added.get(&key) {
            return Some(name.entry(key));
        }
        self.declared.iter().find(|entry| entry.key == key).copied()
    }

    /// Visits all entries, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        self.declared
            .iter()
            .copied()
            .chain(self.added.iter().map(|(key, name)| name.entry(*key)))
    }

    /// Names a key of any kind.
    ///
    /// To give the same name again changes nothing.
    ///
    /// # Errors
    ///
    /// [`RegistryError::KeyTaken`] when the key has another name.
    pub fn add(&mut self, key: Key, name: impl Into<Cow<'static, str>>) -> Result<(), RegistryError> {
        let name = Name {
            namespace: None,
            name: name.into(),
        };
        if self.is_new(name.entry(key))? {
            self.added.insert(key, name);
        }
        Ok(())
    }

    /// Names keys that [`Key::derive`] makes from one key, such as its slots.
    ///
    /// Each is called by the name of `key` (its number, if it has none), the purpose and the index: `ai-calls slot 3`.
    ///
    /// # Errors
    ///
    /// [`RegistryError::KeyTaken`] when one of the keys has another name; those before it stay named.
    pub fn add_derived(&mut self, key: Key, purpose: &'static str, indices: Range<u32>) -> Result<(), RegistryError> {
        let base = self.name(key).map_or_else(|| key.to_string(), str::to_owned);
        for index in indices {
            self.add(key.derive(purpose, index), format!("{base} {purpose} {index}"))?;
        }
        Ok(())
    }

    /// Takes over all names of another registry.
    ///
    /// # Errors
    ///
    /// [`RegistryError::KeyTaken`] when a key has different names in the two; nothing is taken over then.
    pub fn merge(&mut self, other: &Self) -> Result<(), RegistryError> {
        let mut fresh = Vec::new();
        for entry in other.iter() {
            if self.is_new(entry)? {
                fresh.push(entry);
            }
        }
        for entry in fresh {
            let namespace = entry.namespace.map(|namespace| Cow::Owned(namespace.to_owned()));
            self.added.insert(
                entry.key,
                Name {
                    namespace,
                    name: Cow::Owned(entry.name.to_owned()),
                },
            );
        }
        Ok(())
    }

    fn is_new(&self, entry: Entry<'_>) -> Result<bool, RegistryError> {
        match self.entry(entry.key) {
            None => Ok(true),
            Some(first) if first == entry => Ok(false),
            Some(first) => Err(RegistryError::KeyTaken {
                key: entry.key,
                first: first.to_string(),
                second: entry.to_string(),
            }),
        }
    }

    /// Holds the entries that [`keys!`](crate::keys) declares; two that share a key do not compile.
    ///
    /// ```
    /// use latchwork_core::key::{Key, registry::{Entry, Registry}};
    /// static TWO: Registry = Registry::declared(&[
    ///     Entry::declared(Key::bigint(1), "shop", "a"),
    ///     Entry::declared(Key::bigint(2), "shop", "b"),
    /// ]);
    /// ```
    ///
    /// ```compile_fail,E0080
    /// use latchwork_core::key::{Key, registry::{Entry, Registry}};
    /// static TWO: Registry = Registry::declared(&[
    ///     Entry::declared(Key::bigint(1), "shop", "a"),
    ///     Entry::declared(Key::bigint(1), "shop", "b"),
    /// ]);
    /// ```
    #[doc(hidden)]
    #[must_use]
    pub const fn declared(entries: &'static [Entry<'static>]) -> Self {
        let mut second = 1;
        while second < entries.len() {
            let mut first = 0;
            while first < second {
                assert!(
                    !same_bigint(entries[first].key, entries[second].key),
                    "two names of these keys have the same key: rename one of them"
                );
                first += 1;
            }
            second += 1;
        }
        Self {
            declared: entries,
            added: BTreeMap::new(),
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Name {
    fn entry(&self, key: Key) -> Entry<'_> {
        Entry {
            key,
            namespace: self.namespace.as_deref(),
            name: &self.name,
        }
    }
}

/// A key with its name.
///
/// Shown as `namespace: name`, or the name alone for an entry that has no namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    key: Key,
    namespace: Option<&'a str>,
    name: &'a str,
}

impl<'a> Entry<'a> {
    /// Returns the key.
    #[must_use]
    pub const fn key(&self) -> Key {
        self.key
    }

    /// Returns the namespace of a declared key.
    #[must_use]
    pub const fn namespace(&self) -> Option<&'a str> {
        self.namespace
    }

    /// Returns the name.
    #[must_use]
    pub const fn name(&self) -> &'a str {
        self.name
    }

    /// Describes a key that [`keys!`](crate::keys) declares.
    #[doc(hidden)]
    #[must_use]
    pub const fn declared(key: Key, namespace: &'a str, name: &'a str) -> Self {
        Self {
            key,
            namespace: Some(namespace),
            name,
        }
    }
}

impl fmt::Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace {
            Some(namespace) if !namespace.is_empty() => write!(f, "{namespace}: {}", self.name),
            _ => f.write_str(self.name),
        }
    }
}

/// Why a name could not be given to a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The key already has another name.
    #[error(
        "the key {key} is registered as {first:?} and cannot be {second:?} as well: if both mean one lock, give them one \
         name; if not, rename one so that it gets a key of its own"
    )]
    #[non_exhaustive]
    KeyTaken {
        /// The key.
        key: Key,
        /// The name that it has, with its namespace.
        first: String,
        /// The name that was refused, with its namespace.
        second: String,
    },
}

/// Compares keys where `==` is not const yet; declared keys are all of the 64-bit space.
const fn same_bigint(first: Key, second: Key) -> bool {
    matches!((first.as_bigint(), second.as_bigint()), (Some(first), Some(second)) if first == second)
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::keys! {
        mod shop in "shop" {
            REINDEX = "reindex";
            AI_CALLS = "ai-calls";
        }
    }

    crate::keys! {
        mod forum in "forum" {
            REINDEX = "reindex";
        }
    }

    #[test]
    fn registries_merge_and_keep_their_namespaces() {
        let mut names = Registry::new();
        names.merge(&shop::REGISTRY).unwrap();
        names.merge(&forum::REGISTRY).unwrap();
        names.merge(&shop::REGISTRY).unwrap();
        assert_eq!(names.iter().count(), 3);
        assert_eq!(names.entry(shop::REINDEX).unwrap().namespace(), Some("shop"));
        assert_eq!(names.entry(forum::REINDEX).unwrap().to_string(), "forum: reindex");
        assert_eq!(names.name(Key::bigint(1)), None);
    }

    #[test]
    fn a_declared_registry_takes_further_names() {
        let mut names = shop::REGISTRY.clone();
        names.add(Key::pair(1, 2), "legacy").unwrap();
        assert_eq!(names.name(Key::pair(1, 2)), Some("legacy"));
        assert_eq!(names.name(Key::bigint(1 << 32 | 2)), None);
        assert_eq!(names.name(shop::REINDEX), Some("reindex"));
        assert_eq!(names.iter().count(), 3);
    }

    #[test]
    fn derived_keys_are_called_after_their_key() {
        let mut names = shop::REGISTRY.clone();
        names.add_derived(shop::AI_CALLS, "slot", 0..3).unwrap();
        names.add_derived(Key::pair(7, 8), "fence", 0..1).unwrap();
        assert_eq!(names.name(shop::AI_CALLS.derive("slot", 2)), Some("ai-calls slot 2"));
        assert_eq!(names.name(shop::AI_CALLS.derive("slot", 3)), None);
        assert_eq!(names.name(Key::pair(7, 8).derive("fence", 0)), Some("(7, 8) fence 0"));
    }

    #[test]
    fn a_key_never_gets_a_second_name() {
        let mut names = shop::REGISTRY.clone();
        let taken = names.add(shop::REINDEX, "something else").unwrap_err();
        let RegistryError::KeyTaken { key, first, second } = &taken;
        assert_eq!(
            (*key, first.as_str(), second.as_str()),
            (shop::REINDEX, "shop: reindex", "something else")
        );
        assert!(taken.to_string().contains("rename one"));

        let mut others = Registry::new();
        others.add(Key::bigint(1), "one").unwrap();
        others.add(Key::bigint(1), "one").unwrap();
        others.add(shop::AI_CALLS, "another name").unwrap();
        names.merge(&others).unwrap_err();
        assert_eq!(names.name(Key::bigint(1)), None, "a refused merge takes nothing over");
    }

    #[test]
    #[should_panic(expected = "same key")]
    fn equal_keys_under_two_names_are_refused() {
        const TWICE: &[Entry<'static>] = &[
            Entry::declared(Key::bigint(1), "shop", "a"),
            Entry::declared(Key::bigint(1), "shop", "b"),
        ];
        let _ = Registry::declared(TWICE);
    }
}
