use sha1::{Digest, Sha1};

use crate::key::Key;

/// Computes the key of .NET's DistributedLock.Postgres, as `new PostgresAdvisoryLockKey(name, allowHashing: true)`.
///
/// Three forms, tried in this order:
///
/// 1. Up to 9 ASCII characters (control characters and the empty name included): 7 bits a character, then a 0 bit,
///    then 1 bits up to 64; taken as a **pair**, high half first.
/// 2. 16 hexadecimal digits: that **64-bit** number. 8 hexadecimal digits, a comma, 8 hexadecimal digits: that
///    **pair**. Upper and lower case are the same.
/// 3. Anything else: the first 8 bytes of the SHA-1 of the UTF-8 bytes, little-endian, a **64-bit** number. Without
///    `allowHashing` the library refuses such names.
///
/// Not covered: UTF-16 text that is not valid Unicode, which no `&str` can hold, and hexadecimal forms that end in NUL
/// characters.
#[must_use]
pub fn distributed_lock_net(name: &str) -> Key {
    packed_ascii(name).or_else(|| hexadecimal(name)).unwrap_or_else(|| {
        let hash = Sha1::digest(name);
        Key::bigint(i64::from_le_bytes(*hash.first_chunk().expect("SHA-1 has 20 bytes")))
    })
}

fn packed_ascii(name: &str) -> Option<Key> {
    const LONGEST: usize = 9;
    if name.len() > LONGEST || !name.is_ascii() {
        return None;
    }
    let text = name.bytes().fold(0_u64, |bits, byte| bits << 7 | u64::from(byte));
    let fill = 7 * (LONGEST - name.len());
    let bits = (text << 1) << fill | ((1_u64 << fill) - 1);
    Some(Key::pair((bits >> 32) as i32, bits as i32))
}

fn hexadecimal(name: &str) -> Option<Key> {
    let (high, low) = name.split_at_checked(8)?;
    match low.strip_prefix(',') {
        Some(low) => Some(Key::pair(eight_digits(high)? as i32, eight_digits(low)? as i32)),
        None => {
            let bits = u64::from(eight_digits(high)?) << 32 | u64::from(eight_digits(low)?);
            Some(Key::bigint(bits as i64))
        }
    }
}

fn eight_digits(digits: &str) -> Option<u32> {
    // `from_str_radix` alone would also take a sign.
    let right = digits.len() == 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    right.then(|| u32::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ascii_names_are_packed_into_a_pair() {
        assert_eq!(distributed_lock_net("foo"), Key::pair(-843088897, -1));
        assert_eq!(distributed_lock_net(""), Key::pair(i32::MAX, -1));
        assert_eq!(distributed_lock_net("\0\0\0\0\0\0\0\0\0"), Key::pair(0, 0));
        // Nine times 0x7f, then the 0 bit and no fill.
        assert_eq!(
            distributed_lock_net("\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}"),
            Key::pair(-1, -2)
        );
    }

    #[test]
    fn packed_names_never_meet() {
        let mut keys = std::collections::HashSet::new();
        for byte in 0..128_u8 {
            for len in 0..=9 {
                let fresh = keys.insert(distributed_lock_net(&char::from(byte).to_string().repeat(len)));
                assert!(fresh || len == 0);
            }
        }
    }

    #[test]
    fn hexadecimal_names_are_the_number_they_spell() {
        assert_eq!(distributed_lock_net("0000000000000001"), Key::bigint(1));
        assert_eq!(distributed_lock_net("ffffffffFFFFFFFE"), Key::bigint(-2));
        assert_eq!(distributed_lock_net("00000003,ffffffff"), Key::pair(3, -1));
        assert_eq!(distributed_lock_net("00000000,00000000"), Key::pair(0, 0));
    }

    #[test]
    fn all_else_is_hashed() {
        assert_eq!(distributed_lock_net("MyLockName"), Key::bigint(4062898426641073528));
        assert_eq!(
            distributed_lock_net(&"漢".repeat(18)),
            Key::bigint(-5707277204051710361)
        );
        for name in [
            "漢字",
            "+000000000000001",
            "00000003;ffffffff",
            "0000003,ffffffff0",
            "000000000000000g",
            "é23456789ab,defgh",
        ] {
            assert_eq!(
                distributed_lock_net(name),
                Key::bigint(i64::from_le_bytes(*Sha1::digest(name).first_chunk().unwrap())),
                "{name}"
            );
        }
    }
}
