use sha2::{Digest, Sha256};

use super::Key;
use super::digest::{first_i32, first_i64};

/// Stands where a canonical name has the length of its namespace, which is never that long: so no name of anybody can
/// be spelt to yield the bytes of a derived key.
const DOMAIN: [u8; 4] = [0xff; 4];

impl Key {
    /// Derives a further key of the 64-bit space from this one, for slots, fences and the like.
    ///
    /// The key is the first 8 bytes, big-endian, of the SHA-256 over: 4 bytes `ff`; the `objsubid` of this key (1 or
    /// 2) as one byte; its `classid` and `objid`, each as 4 bytes big-endian; the length of `purpose` as 4 bytes
    /// big-endian, then `purpose`; `index` as 4 bytes big-endian. No namespace is that long, so no name can be chosen
    /// to meet a derived key on purpose.
    ///
    /// # Examples
    ///
    /// ```
    /// use latchwork_core::key::Namespace;
    ///
    /// let pool = Namespace::new("shop")?.key("ai-calls")?;
    /// assert_ne!(pool.derive("slot", 0), pool.derive("slot", 1));
    /// assert_ne!(pool.derive("slot", 0), pool.derive("fence", 0));
    /// # Ok::<(), latchwork_core::key::KeyError>(())
    /// ```
    #[must_use]
    pub fn derive(self, purpose: &'static str, index: u32) -> Self {
        Self::bigint(first_i64(&self.derived_hash(purpose, index)))
    }

    /// Derives a pair `(hash, number)` from this key, for a marker that carries a number anybody can read in
    /// `pg_locks`.
    ///
    /// The hash is the first 4 bytes, big-endian, of the SHA-256 of [`derive`](Self::derive) with the index 0. Two
    /// keys can share it: for reports only, never for exclusion.
    #[must_use]
    pub fn derive_pair(self, purpose: &'static str, number: i32) -> Self {
        Self::pair(first_i32(&self.derived_hash(purpose, 0)), number)
    }

    fn derived_hash(self, purpose: &'static str, index: u32) -> [u8; 32] {
        Sha256::new()
            .chain_update(DOMAIN)
            .chain_update([self.objsubid() as u8])
            .chain_update(self.classid().to_be_bytes())
            .chain_update(self.objid().to_be_bytes())
            .chain_update((purpose.len() as u32).to_be_bytes())
            .chain_update(purpose)
            .chain_update(index.to_be_bytes())
            .finalize()
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{MAX_NAME_LEN, Namespace};

    /// Computed with another implementation of SHA-256, from the format that the docs state.
    #[test]
    fn golden_vectors() {
        let pool = Namespace::new("shop").unwrap().key("ai-calls").unwrap();
        assert_eq!(pool.derive("slot", 0), Key::bigint(405700751128997751));
        assert_eq!(pool.derive("slot", 1), Key::bigint(8657839954347610759));
        assert_eq!(pool.derive("fence", 0), Key::bigint(-7372609409683259859));
        assert_eq!(Key::pair(1, 2).derive("slot", 0), Key::bigint(-2931240742953733870));
        assert_eq!(Key::bigint(-1).derive("", u32::MAX), Key::bigint(6079486649177161622));
        assert_eq!(pool.derive_pair("slots", 0).as_pair().map(|pair| pair.1), Some(0));
        assert_eq!(pool.derive_pair("slot", 5), Key::pair(94459567, 5));
    }

    #[test]
    fn space_purpose_and_index_all_count() {
        let pair_as_bigint = Key::bigint(1 << 32 | 2);
        assert_ne!(Key::pair(1, 2).derive("slot", 0), pair_as_bigint.derive("slot", 0));
        let mut keys: Vec<Key> = (0..10_000).map(|index| pair_as_bigint.derive("slot", index)).collect();
        keys.extend((0..10_000).map(|index| pair_as_bigint.derive("slots", index)));
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 20_000);
    }

    #[test]
    fn no_name_can_spell_a_derived_key() {
        // A canonical name starts with the length of its namespace, which must stay below the domain's bytes.
        assert!((MAX_NAME_LEN as u64) < u64::from(u32::from_be_bytes(DOMAIN)));
    }
}
