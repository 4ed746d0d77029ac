//! Forms of keys and certificates that the maker of certificates does not write.

use rcgen::SigningKey;

use super::Authority;

pub(super) fn pem(label: &str, der: Vec<u8>) -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in der.chunks(3) {
        let bits = chunk
            .iter()
            .enumerate()
            .fold(0_u32, |bits, (at, byte)| bits | u32::from(*byte) << (16 - 8 * at));
        for at in 0..4 {
            let sextet = (bits >> (18 - 6 * at)) as usize & 63;
            text.push(if at <= chunk.len() {
                char::from(ALPHABET[sextet])
            } else {
                '='
            });
        }
    }
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

/// Takes the SEC1 key out of a PKCS#8 one: the last element of its sequence.
pub(super) fn sec1(pkcs8: &[u8]) -> Vec<u8> {
    let (_, body, _) = element(pkcs8);
    let (_, _, rest) = element(body);
    let (_, _, rest) = element(rest);
    let (tag, key, _) = element(rest);
    assert_eq!(tag, 0x04);
    key.to_vec()
}

/// Signs a certificate again as one of version 1: no version field, no extensions.
pub(super) fn version_one(certificate: &[u8], authority: &Authority) -> String {
    let (_, body, _) = element(certificate);
    let (_, tbs, rest) = element(body);
    let (_, algorithm, _) = element(rest);
    let mut old = Vec::new();
    let mut left = tbs;
    while !left.is_empty() {
        let (tag, content, rest) = element(left);
        if tag != 0xa0 && tag != 0xa3 {
            old.extend(tlv(tag, content));
        }
        left = rest;
    }
    let old = tlv(0x30, &old);
    let mut signature = vec![0];
    signature.extend(authority.key().sign(&old).unwrap());
    let signed = [old, tlv(0x30, algorithm), tlv(0x03, &signature)].concat();
    pem("CERTIFICATE", tlv(0x30, &signed))
}

/// Splits the first DER element off: tag, content, what follows.
fn element(der: &[u8]) -> (u8, &[u8], &[u8]) {
    let (header, length) = match der[1] {
        short @ 0..0x80 => (2, usize::from(short)),
        long => {
            let bytes = usize::from(long & 0x7f);
            (
                2 + bytes,
                der[2..2 + bytes]
                    .iter()
                    .fold(0, |length, byte| length << 8 | usize::from(*byte)),
            )
        }
    };
    (der[0], &der[header..header + length], &der[header + length..])
}

fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut der = vec![tag];
    let length = content.len();
    match length {
        0..0x80 => der.push(length as u8),
        0x80..0x100 => der.extend([0x81, length as u8]),
        _ => der.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    der.extend(content);
    der
}
