use crate::key::Key;

/// Computes what PostgreSQL's `hashtext(name)` returns, for `pg_advisory_lock(hashtext('...'))`.
///
/// The number has 32 bits and a sign; PostgreSQL widens it, so the key is in the 64-bit space and 32 bits strong. For
/// `pg_advisory_lock(class, hashtext('...'))` see [`hashtext32`].
///
/// Formula: Bob Jenkins' lookup3 over the text's bytes in the server's encoding, with PostgreSQL's start value. It
/// agrees with a little-endian server (x86-64, ARM64, and all hosted services) whose database is in UTF-8, under every
/// deterministic collation. PostgreSQL does not promise that these functions stay the same; 13, 15 and 18 agree.
///
/// # Examples
///
/// ```
/// use latchwork_core::key::{Key, compat};
///
/// assert_eq!(compat::hashtext("foo"), Key::bigint(1955559433));
/// ```
#[must_use]
pub fn hashtext(name: &str) -> Key {
    Key::bigint(i64::from(hashtext32(name)))
}

/// Computes the number that PostgreSQL's `hashtext(name)` returns, to build pairs with.
///
/// As [`hashtext`] says.
///
/// # Examples
///
/// ```
/// use latchwork_core::key::{Key, compat};
///
/// // pg_advisory_lock(hashtext('orders'), 42)
/// let key = Key::pair(compat::hashtext32("orders"), 42);
/// # let _ = key;
/// ```
#[must_use]
pub fn hashtext32(name: &str) -> i32 {
    let (_, c) = lookup3(start(name), name.as_bytes());
    c as i32
}

/// Computes what PostgreSQL's `hashtextextended(name, seed)` returns, for
/// `pg_advisory_lock(hashtextextended('...', 0))`.
///
/// As [`hashtext`] says, with 64 bits. The usual seed is 0; a server has the function from PostgreSQL 11 on.
#[must_use]
pub fn hashtextextended(name: &str, seed: i64) -> Key {
    let mut state = start(name);
    if seed != 0 {
        // The seed is mixed in as if it were a first block of the text.
        state[0] = state[0].wrapping_add((seed >> 32) as u32);
        state[1] = state[1].wrapping_add(seed as u32);
        state = mixed(state);
    }
    let (b, c) = lookup3(state, name.as_bytes());
    Key::bigint((u64::from(b) << 32 | u64::from(c)) as i64)
}

/// The three words that lookup3 works on.
type State = [u32; 3];

fn start(name: &str) -> State {
    // The length counts modulo 2^32; PostgreSQL texts end at 1 GiB.
    let word = 0x9e37_79b9_u32.wrapping_add(name.len() as u32).wrapping_add(3_923_095);
    [word; 3]
}

/// Takes in the bytes and returns the last two words.
fn lookup3(mut state: State, bytes: &[u8]) -> (u32, u32) {
    let mut blocks = bytes.chunks_exact(12);
    for block in &mut blocks {
        state = mixed(plus(state, block.try_into().expect("the chunks have 12 bytes")));
    }
    // PostgreSQL keeps the lowest byte of the last word for the length, so that word takes at most 3 bytes, one higher.
    let rest = blocks.remainder();
    let mut block = [0; 12];
    let (low, high) = rest.split_at(rest.len().min(8));
    block[..low.len()].copy_from_slice(low);
    block[9..9 + high.len()].copy_from_slice(high);
    let [_, b, c] = finished(plus(state, block));
    (b, c)
}

fn plus(state: State, block: [u8; 12]) -> State {
    let word = |at: usize| u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    [
        state[0].wrapping_add(word(0)),
        state[1].wrapping_add(word(4)),
        state[2].wrapping_add(word(8)),
    ]
}

/// Mixes after a block of 12 bytes: six rounds, the words taking turns.
fn mixed([mut a, mut b, mut c]: State) -> State {
    for [first, second, third] in [[4, 6, 8], [16, 19, 4]] {
        a = a.wrapping_sub(c) ^ c.rotate_left(first);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(second);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(third);
        b = b.wrapping_add(a);
    }
    [a, b, c]
}

/// Mixes after the last block.
fn finished([mut a, mut b, mut c]: State) -> State {
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    c = (c ^ b).wrapping_sub(b.rotate_left(24));
    [a, b, c]
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "the quick brown fox jumps over the lazy dog";
    const SEED: i64 = -81985529216486896;

    /// What PostgreSQL 15 says of the first 0, 1, 2, .. bytes of the text: every length of the last block, with no, one
    /// and two blocks before it. Without a seed, with the seed 0, and with the seed above.
    const SERVER: [(i32, i64, i64); 27] = [
        (-1477818771, -6939563903564495251, -4360243155399339951),
        (-1881210152, 4275320112252125912, -2482422446611371735),
        (-1444241630, -260480641141137630, -6035976297063228946),
        (600074762, -7279885857207326198, -3139965387063229945),
        (7913492, 6850303757150371860, -6105707512752453724),
        (1149411084, -2448769718559793396, -3640718305614654314),
        (1697403352, -2413607138587029032, -969299528237254325),
        (-1628164279, 9152116406072127305, -9012266038955517402),
        (-1094783329, -2787860562804019553, 2485041740806586656),
        (-1729394027, -744539420078929259, -6590390792486881593),
        (1889871343, -1849078621283211793, 7817778750591002649),
        (-1908858520, 7682751335837016424, -1904326129548972152),
        (1889281494, -5123255151643318826, 6641744290503488362),
        (46570034, 8874471081575356978, -4698103442198935732),
        (1844197808, -7321833551707752016, 3062724927055367110),
        (-699650311, -7098276748398416135, 3737866679184068184),
        (-1108778844, 5607407419629592740, -2863700517784799345),
        (-1195212318, 4378984968307769826, 6294843122357767309),
        (1943249779, -7852856955829509261, -8877913369546672518),
        (-716906088, -5837659518682209896, 5989164812174142407),
        (-788383395, 1321335228853270877, -7171893376691304708),
        (177345300, 1534525432023618324, 7561426359031339765),
        (-577128545, 180991214061467551, -1531440512563614102),
        (1822420587, 1973960885095362155, 4727020086171192317),
        (1714565059, 3717288698844426179, -4309385302996863074),
        (84238858, 6931113687160021514, -3915032368820848357),
        (-805606539, -2898813388975281291, -8160553492383144705),
    ];

    #[test]
    fn every_length_of_the_last_block_matches_the_server() {
        for (len, (plain, extended, seeded)) in SERVER.into_iter().enumerate() {
            let text = &TEXT[..len];
            assert_eq!(hashtext32(text), plain, "{text}");
            assert_eq!(hashtext(text), Key::bigint(i64::from(plain)), "{text}");
            assert_eq!(hashtextextended(text, 0), Key::bigint(extended), "{text}");
            assert_eq!(hashtextextended(text, SEED), Key::bigint(seeded), "{text}");
        }
    }

    #[test]
    fn text_beyond_ascii_is_hashed_as_utf8() {
        let text = "größe 漢字 😀";
        assert_eq!(hashtext32(text), -259805565);
        assert_eq!(hashtextextended(text, 0), Key::bigint(-6686581455209648509));
        assert_eq!(hashtextextended(text, SEED), Key::bigint(-1505867122584786696));
        assert_eq!(hashtext32("foo"), 1955559433);
        assert_eq!(hashtextextended("foo", 0), Key::bigint(-1635844193734658039));
    }
}
