//! Which hash slot of a Redis Cluster a key belongs to (Redis Cluster specification, "Hash tags" and "Key distribution
//! model").

/// How many hash slots there are.
pub(super) const HASH_SLOTS: u16 = 16384;

/// The part of a name that decides which hash slot it belongs to, if that is not the whole name: what is between the
/// first `{` and the first `}` after it, unless that is nothing.
pub(super) fn hash_tag(name: &str) -> Option<&str> {
    let (_, rest) = name.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// The hash slot of a Redis Cluster to which a key belongs.
pub fn key_slot(name: &str) -> u16 {
    crc16(hash_tag(name).unwrap_or(name).as_bytes()) % HASH_SLOTS
}

/// CRC-16/XMODEM, a bit at a time: what is hashed is short.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_the_servers() {
        // The first is the specification's own example; the others are answers to CLUSTER KEYSLOT.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (name, expected) in [
            ("", 0),
            ("foo", 12182),
            ("{foo}bar", 12182),
            ("a{foo}{bar}", 12182),
            ("foo{}{bar}", 8363),
            ("foo{{bar}}zap", 4015),
            ("{syncguard:7f}:job", 4614),
        ] {
            assert_eq!(key_slot(name), expected, "{name}");
        }
    }

    #[test]
    fn the_first_braces_count() {
        for (name, tag) in [
            ("a", None),
            ("{a", None),
            ("a}", None),
            ("}a{", None),
            ("{}a", None),
            ("{}{a}", None),
            ("{a}", Some("a")),
            ("x{a}y{b}", Some("a")),
            ("}{a}", Some("a")),
            ("{{a}}", Some("{a")),
        ] {
            assert_eq!(hash_tag(name), tag, "{name}");
        }
    }
}
