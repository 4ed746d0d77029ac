//! What a record is found by, and what tells one request from another with the same key.

use latchwork_core::{Key, Namespace};
use sha2::{Digest, Sha256};

/// The name of a record: SHA-256 over its scope and the client's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordId([u8; 32]);

impl RecordId {
    /// The record of one key of one principal on one route: the 8 bytes of the namespace's key, big-endian, then each part
    /// with its length before it (8 bytes big-endian), so that no two scopes read alike.
    pub(crate) fn new<'a>(
        namespace: &Namespace,
        principal: impl Iterator<Item = &'a str>,
        method: &str,
        route: &str,
        key: &str,
    ) -> Self {
        let mut hash = Sha256::new();
        // A key of the namespace stands for it, its secret included.
        let scope = namespace
            .key("idempotency")
            .expect("a short name, and not an empty one");
        hash.update(scope.classid().to_be_bytes());
        hash.update(scope.objid().to_be_bytes());
        for part in principal {
            add(&mut hash, part.as_bytes());
        }
        // A principal of one part and a principal of two must not meet.
        hash.update(u64::MAX.to_be_bytes());
        for part in [method, route, key] {
            add(&mut hash, part.as_bytes());
        }
        Self(hash.finalize().into())
    }

    pub(crate) const fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The key of the lock that says that a request is being worked on: the first 8 bytes, big-endian. Two records that
    /// share it would wait for each other and never be taken for each other.
    pub(crate) fn lock(&self) -> Key {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        Key::bigint(i64::from_be_bytes([a, b, c, d, e, f, g, h])).derive("idempotency", 0)
    }
}

/// SHA-256 over what a request asks for: its path with the query, its content type, its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub(crate) fn new(target: &str, content_type: &[u8], body: &[u8]) -> Self {
        let mut hash = Sha256::new();
        for part in [target.as_bytes(), content_type, body] {
            add(&mut hash, part);
        }
        Self(hash.finalize().into())
    }

    pub(crate) const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

fn add(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_be_bytes());
    hash.update(part);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(principal: &[&str], method: &str, route: &str, key: &str) -> RecordId {
        RecordId::new(&Namespace::unnamed(), principal.iter().copied(), method, route, key)
    }

    /// What a change would lose: everybody's records.
    #[test]
    fn a_record_is_found_by_the_same_bytes_for_ever() {
        let expected = "987a80adf4acb1763aa8bbc38c0fb30b822435c0867bb7fcf5abc8631dfb608f";
        let record = id(&["ann"], "POST", "/payments", "k");
        let hex: String = record.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected);
    }

    #[test]
    fn namespaces_have_records_of_their_own() {
        let of = |namespace: &Namespace| RecordId::new(namespace, ["ann"].into_iter(), "POST", "/payments", "k");
        let [shop, bank] = ["shop", "bank"].map(|name| Namespace::new(name).unwrap());
        let secret = bank.clone().with_secret([7; 32]).unwrap();
        let records = [&Namespace::unnamed(), &shop, &bank, &secret].map(of);
        for (at, one) in records.iter().enumerate() {
            assert!(!records[at + 1..].contains(one));
        }
        assert_eq!(of(&shop), of(&shop));
    }

    #[test]
    fn scopes_that_read_alike_when_joined_are_different_records() {
        let records = [
            id(&["ann"], "POST", "/payments", "k"),
            id(&["bob"], "POST", "/payments", "k"),
            id(&["ann"], "PATCH", "/payments", "k"),
            id(&["ann"], "POST", "/payment", "sk"),
            id(&["ann", "POST"], "POST", "/payments", "k"),
            id(&["annPOST"], "", "/payments", "k"),
            id(&[], "ann", "POST", "k"),
        ];
        for (at, one) in records.iter().enumerate() {
            for other in &records[at + 1..] {
                assert_ne!(one, other);
                assert_ne!(one.lock(), other.lock());
            }
        }
        assert_eq!(records[0], id(&["ann"], "POST", "/payments", "k"));
    }

    #[test]
    fn a_fingerprint_differs_with_each_part_of_the_request() {
        let one = Fingerprint::new("/payments?x=1", b"application/json", b"{}");
        assert_eq!(one, Fingerprint::new("/payments?x=1", b"application/json", b"{}"));
        assert_ne!(one, Fingerprint::new("/payments?x=2", b"application/json", b"{}"));
        assert_ne!(one, Fingerprint::new("/payments?x=1", b"text/plain", b"{}"));
        assert_ne!(one, Fingerprint::new("/payments?x=1", b"application/json", b"{} "));
    }
}
