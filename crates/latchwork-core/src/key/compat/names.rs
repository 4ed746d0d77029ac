use hkdf::Hkdf;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::key::Key;

/// Hashes with FNV-1a to 32 bits, as many services do by hand before `pg_advisory_lock(bigint)`.
///
/// Formula: over the UTF-8 bytes, from 2166136261, exclusive-or with the byte, then times 16777619, modulo 2^32; the
/// result is unsigned, so the key is a 64-bit number that is never negative. JavaScript that hashes `charCodeAt` agrees
/// for ASCII names only, and code that keeps the signed 32-bit result (`| 0` in place of `>>> 0`) uses other keys:
/// check one name.
#[must_use]
pub fn fnv1a_32(name: &str) -> Key {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    Key::bigint(i64::from(hash))
}

/// Hashes with FNV-1a to 64 bits, for `pg_advisory_lock(bigint)`.
///
/// Formula: over the UTF-8 bytes, from 14695981039346656037, exclusive-or with the byte, then times 1099511628211,
/// modulo 2^64; the result is read as a signed number.
#[must_use]
pub fn fnv1a_64(name: &str) -> Key {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Key::bigint(hash as i64)
}

/// Computes the pair of the Ruby gem `with_advisory_lock`.
///
/// Formula: (CRC-32 of the UTF-8 bytes, `prefix`), each without its top bit. `prefix` is the number in the environment
/// variable `WITH_ADVISORY_LOCK_PREFIX` of the Ruby process, 0 when it is unset; Ruby reads the leading digits, so a
/// prefix such as `myapp` is 0 as well. The gem uses a numeric lock name as it is, without hashing:
/// `Key::pair((number & 0x7fff_ffff) as i32, prefix)`. Releases before the prefix was masked agree for prefixes from 0
/// to 2147483647.
///
/// The gem only ever tries, `pg_try_advisory_lock(int, int)`, and polls.
#[must_use]
pub fn with_advisory_lock(name: &str, prefix: i64) -> Key {
    let hash = crc32fast::hash(name.as_bytes()) & 0x7fff_ffff;
    Key::pair(hash as i32, (prefix & 0x7fff_ffff) as i32)
}

/// Computes the key of sqlx's `PgAdvisoryLock::new`.
///
/// Formula: HKDF-SHA-256 of the UTF-8 bytes, without a salt, with the info `SQLx (Rust) Postgres advisory lock`; 8
/// bytes, little-endian. Used with `pg_advisory_lock(bigint)`.
#[must_use]
pub fn sqlx(name: &str) -> Key {
    let mut bytes = [0; 8];
    Hkdf::<Sha256>::new(None, name.as_bytes())
        .expand(b"SQLx (Rust) Postgres advisory lock", &mut bytes)
        .expect("HKDF-SHA-256 yields up to 8160 bytes");
    Key::bigint(i64::from_le_bytes(bytes))
}

/// Computes the key of Python's django-pglock (`pglock.advisory`).
///
/// Formula: the first 8 bytes of the SHA-256 of the UTF-8 bytes, little-endian, signed. Used with
/// `pg_advisory_lock(bigint)`. A decorator without a name locks on `module.function`; an integer is used as it is
/// ([`Key::bigint`]); the empty name is refused there.
#[must_use]
pub fn django_pglock(name: &str) -> Key {
    Key::bigint(first_i64_le(&Sha256::digest(name)))
}

/// Computes the key of Python's PALs (`Locker(app).lock(name)`).
///
/// Formula: the first 8 bytes of the SHA-1 of `app.name`, or of `name` alone when the locker has no application name;
/// in the byte order of the Python process's machine, taken as little-endian here. Used with
/// `pg_advisory_lock(bigint)`.
#[must_use]
pub fn pals(app: Option<&str>, name: &str) -> Key {
    let mut sha = Sha1::new();
    if let Some(app) = app {
        sha.update(app);
        sha.update(".");
    }
    sha.update(name);
    Key::bigint(first_i64_le(&sha.finalize()))
}

/// Computes the pair of the Node package `advisory-lock`.
///
/// Formula: the SHA-256 of the UTF-8 bytes, read as signed 32-bit little-endian numbers at the bytes 0 and 4. That is
/// release 2.0.0; earlier sources read the second number at byte 1, and so lock on another pair. Used with
/// `pg_advisory_lock(int, int)`.
#[must_use]
pub fn node_advisory_lock(name: &str) -> Key {
    let both = first_i64_le(&Sha256::digest(name));
    Key::pair(both as i32, (both >> 32) as i32)
}

fn first_i64_le(hash: &[u8]) -> i64 {
    i64::from_le_bytes(*hash.first_chunk().expect("SHA-1 has 20 bytes and SHA-256 has 32"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv1a_matches_published_vectors() {
        assert_eq!(fnv1a_32("send-daily-report"), Key::bigint(3527090592));
        assert_eq!(fnv1a_32("clean-expired-sessions"), Key::bigint(1063687216));
        assert_eq!(fnv1a_32("foo"), Key::bigint(2851307223));
        assert_eq!(fnv1a_32(""), Key::bigint(0x811c_9dc5));
        assert_eq!(fnv1a_64("foo"), Key::bigint(-2543842089295555209));
        assert_eq!(fnv1a_64("foobar"), Key::bigint(0x85944171f73967e8_u64 as i64));
    }

    #[test]
    fn ruby_with_advisory_lock_uses_a_pair_without_sign_bits() {
        assert_eq!(with_advisory_lock("foo", 0), Key::pair(208889121, 0));
        assert_eq!(with_advisory_lock("foo", 7), Key::pair(208889121, 7));
        assert_eq!(with_advisory_lock("foo", -1), Key::pair(208889121, i32::MAX));
        assert_eq!(with_advisory_lock("", 0), Key::pair(0, 0));
    }

    #[test]
    fn sqlx_matches_its_documentation() {
        assert_eq!(sqlx("foo"), Key::bigint(171470676134381313));
        assert_eq!(
            sqlx("my first Postgres advisory lock!"),
            Key::bigint(-5560419505042474287)
        );
    }

    #[test]
    fn python_libraries_read_their_hash_little_endian() {
        assert_eq!(django_pglock("foo"), Key::bigint(-8086495256948496852));
        assert_eq!(pals(Some("app"), "foo"), Key::bigint(-1365832281233075688));
        assert_eq!(pals(None, "app.foo"), pals(Some("app"), "foo"));
        assert_ne!(pals(None, "foo"), pals(Some(""), "foo"));
    }

    #[test]
    fn node_advisory_lock_uses_a_pair() {
        assert_eq!(node_advisory_lock("foo"), Key::pair(1806968364, -1882783896));
    }
}
