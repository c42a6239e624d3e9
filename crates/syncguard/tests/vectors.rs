//! The inputs and outputs of the pure functions that all implementations share: `vectors.json`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use syncguard::{Error, Key, format_fence, hash_key, hash_key_utf16, make_storage_key};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Vectors {
    hash_key: Vec<HashKey>,
    make_storage_key: Vec<StorageKey>,
    format_fence: Vec<FormatFence>,
    normalize: Vec<Normalize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HashKey {
    input: Utf16,
    output: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StorageKey {
    prefix: String,
    key: String,
    limit_bytes: usize,
    reserve_bytes: usize,
    #[serde(flatten)]
    expected: Expected,
}

#[derive(Deserialize)]
struct FormatFence {
    input: serde_json::Number,
    #[serde(flatten)]
    expected: Expected,
}

#[derive(Deserialize)]
struct Normalize {
    input: String,
    #[serde(flatten)]
    expected: Expected,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Expected {
    Output { output: String },
    Error { error: String, message: String },
}

impl Expected {
    fn check(&self, result: Result<String, Error>, input: &str) {
        match (self, result) {
            (Self::Output { output }, Ok(found)) => assert_eq!(&found, output, "of {input:?}"),
            (Self::Error { error, message }, Err(found)) => {
                assert_eq!(found.kind().as_str(), error, "of {input:?}");
                assert_eq!(found.message(), message, "of {input:?}");
            }
            (Self::Output { .. }, Err(found)) => panic!("{found} for {input:?}"),
            (Self::Error { .. }, Ok(found)) => panic!("{found:?} for {input:?}"),
        }
    }
}

/// A JSON string with lone surrogates, which no `String` can hold.
struct Utf16(Vec<u16>);

impl<'de> Deserialize<'de> for Utf16 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Utf16;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Utf16, E> {
                Ok(Utf16(decode_wtf8(bytes)))
            }
        }
        // As bytes, serde_json gives a lone surrogate in the three bytes that UTF-8 forbids.
        deserializer.deserialize_bytes(Bytes)
    }
}

fn decode_wtf8(bytes: &[u8]) -> Vec<u16> {
    let mut units = Vec::new();
    let mut run = Vec::new();
    let mut rest = bytes;
    while let Some((first, tail)) = rest.split_first() {
        if let [0xED, second @ 0xA0..=0xBF, third, after @ ..] = rest {
            flush(&mut run, &mut units);
            units.push(0xD000 | u16::from(second & 0x3F) << 6 | u16::from(third & 0x3F));
            rest = after;
        } else {
            run.push(*first);
            rest = tail;
        }
    }
    flush(&mut run, &mut units);
    units
}

fn flush(run: &mut Vec<u8>, units: &mut Vec<u16>) {
    let text = String::from_utf8(std::mem::take(run)).unwrap();
    units.extend(text.encode_utf16());
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("vectors.json")).unwrap()
}

#[test]
fn hash_key_gives_the_shared_outputs() {
    let vectors = vectors().hash_key;
    assert_eq!(vectors.len(), 14);
    let mut lone = 0;
    for HashKey { input, output } in vectors {
        assert_eq!(hash_key_utf16(&input.0), output);
        match String::from_utf16(&input.0) {
            Ok(text) => assert_eq!(hash_key(&text), output, "of {text:?}"),
            Err(_) => lone += 1,
        }
    }
    assert_eq!(lone, 1, "the table has one lone surrogate");
}

#[test]
fn make_storage_key_gives_the_shared_outputs() {
    let vectors = vectors().make_storage_key;
    assert_eq!(vectors.len(), 18);
    for vector in vectors {
        let name = make_storage_key(
            &vector.prefix,
            &vector.key,
            vector.limit_bytes,
            vector.reserve_bytes,
        );
        vector.expected.check(name, &vector.key);
    }
}

#[test]
fn format_fence_gives_the_shared_outputs() {
    let vectors = vectors().format_fence;
    assert_eq!(vectors.len(), 6);
    for vector in vectors {
        let number = vector.input.to_string();
        vector.expected.check(format_fence(&number), &number);
    }
}

#[test]
fn keys_are_normalised_as_in_the_shared_outputs() {
    let vectors = vectors().normalize;
    assert_eq!(vectors.len(), 6);
    for vector in vectors {
        let key = Key::new(&vector.input).map(|key| key.as_str().to_owned());
        vector.expected.check(key, &vector.input);
    }
}
