//! The hash that telemetry shows in place of keys and lock ids.

use unicode_normalization::UnicodeNormalization;

/// 24 hexadecimal digits that stand for `text` in logs and metrics (docs/format.md, "Hash identifiers").
/// It is not cryptographic: whoever can guess the text can confirm the guess.
///
/// ```
/// assert_eq!(syncguard::hash_key("a"), "0000006100000123000002a7");
/// ```
pub fn hash_key(text: &str) -> String {
    let mut hash = Hash::default();
    hash.add(text);
    hash.finish()
}

/// [`hash_key`] over UTF-16, in which a lone surrogate counts as its code unit.
pub fn hash_key_utf16(units: &[u16]) -> String {
    let mut hash = Hash::default();
    let mut run = String::new();
    for unit in char::decode_utf16(units.iter().copied()) {
        match unit {
            Ok(character) => run.push(character),
            // No character composes with a lone surrogate, so the texts on both sides can be normalised
            // separately.
            Err(lone) => {
                hash.add(&run);
                run.clear();
                hash.add_unit(lone.unpaired_surrogate());
            }
        }
    }
    hash.add(&run);
    hash.finish()
}

/// Three wrapping accumulators over the UTF-16 code units of the text in NFC.
#[derive(Default)]
struct Hash([u32; 3]);

impl Hash {
    fn add(&mut self, text: &str) {
        let mut buffer = [0; 2];
        for character in text.nfc() {
            for unit in character.encode_utf16(&mut buffer) {
                self.add_unit(*unit);
            }
        }
    }

    fn add_unit(&mut self, unit: u16) {
        let unit = u32::from(unit);
        for (sum, (shift, factor)) in self.0.iter_mut().zip([(5, 1), (7, 3), (11, 7)]) {
            *sum = (*sum << shift)
                .wrapping_sub(*sum)
                .wrapping_add(factor * unit);
        }
    }

    fn finish(self) -> String {
        let [first, second, third] = self.0;
        format!("{first:08x}{second:08x}{third:08x}")
    }
}
