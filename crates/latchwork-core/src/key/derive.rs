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
