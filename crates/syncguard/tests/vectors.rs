//! The inputs and outputs of the pure functions that all implementations share: `vectors.json`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use syncguard::{
    Due, Error, Key, LockId, Owner, RetryPolicy, Ttl, format_fence, hash_key, hash_key_utf16,
    make_storage_key,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Vectors {
    hash_key: Vec<HashKey>,
    make_storage_key: Vec<StorageKey>,
    format_fence: Vec<NumberCase>,
    normalize: Vec<TextCase>,
    lock_id: Vec<TextCase>,
    ttl: Vec<NumberCase>,
    owner: Vec<TextCase>,
    due: Vec<TextCase>,
    acquisition: Vec<Acquisition>,
    #[cfg_attr(not(feature = "redis"), allow(dead_code))]
    redis_cluster: Vec<RedisCluster>,
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
struct NumberCase {
    input: serde_json::Number,
    #[serde(flatten)]
    expected: Expected,
}

#[derive(Deserialize)]
struct TextCase {
    input: String,
    #[serde(flatten)]
    expected: Expected,
}

/// An option of waiting, with its number as a text, because JSON has no infinity.
#[derive(Deserialize)]
struct Acquisition {
    option: String,
    input: String,
    message: Option<String>,
}

/// Where a lock is in a Redis Cluster.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(not(feature = "redis"), allow(dead_code))]
struct RedisCluster {
    key_prefix: String,
    client_key_prefix: String,
    key: String,
    /// The first byte of the lock id, where that is the shard.
    shard: Option<u8>,
    lock_id: String,
    /// Lock, index and fence.
    keys: [String; 3],
    slot: u16,
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
    assert_eq!(vectors.len(), 22);
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
    assert_eq!(vectors.len(), 13);
    for vector in vectors {
        let key = Key::new(&vector.input).map(|key| key.as_str().to_owned());
        vector.expected.check(key, &vector.input);
    }
}

#[test]
fn lock_ids_ttls_owners_and_periods_are_taken_as_in_the_shared_outputs() {
    let Vectors {
        lock_id,
        ttl,
        owner,
        due,
        ..
    } = vectors();
    assert_eq!(
        [lock_id.len(), ttl.len(), owner.len(), due.len()],
        [13, 13, 9, 36]
    );
    for vector in due {
        let due = Due::new(&vector.input).map(|due| due.as_stored().to_owned());
        vector.expected.check(due, &vector.input);
    }
    for vector in lock_id {
        let lock_id = LockId::parse(&vector.input).map(|id| id.as_str().to_owned());
        vector.expected.check(lock_id, &vector.input);
    }
    for vector in ttl {
        let ms = vector.input.as_f64().unwrap();
        let ttl = Ttl::from_f64(ms).map(|ttl| ttl.as_millis().to_string());
        vector.expected.check(ttl, &ms.to_string());
    }
    for vector in owner {
        let owner = Owner::new(&*vector.input).map(|owner| owner.as_str().to_owned());
        vector.expected.check(owner, &vector.input);
    }
}

#[test]
fn options_of_waiting_are_taken_as_in_the_shared_outputs() {
    let vectors = vectors().acquisition;
    assert_eq!(vectors.len(), 25);
    for vector in vectors {
        let (mut policy, number) = (RetryPolicy::default(), vector.input.parse().unwrap());
        *match vector.option.as_str() {
            "maxRetries" => &mut policy.max_retries,
            "retryDelayMs" => &mut policy.retry_delay_ms,
            "maxRetryDelayMs" => &mut policy.max_retry_delay_ms,
            "timeoutMs" => &mut policy.timeout_ms,
            other => panic!("{other} is no option"),
        } = number;
        let problem = policy.validate().err();
        let problem = problem.map(|error| error.message().to_owned());
        assert_eq!(problem, vector.message, "of {} {number}", vector.option);
    }
}

#[cfg(feature = "redis")]
#[test]
fn names_in_a_redis_cluster_are_the_shared_ones() {
    use syncguard::redis::{ClientPrefix, Names, acquire, key_slot};
    use syncguard::{AcquireRequest, LockId, Ttl};

    let vectors = vectors().redis_cluster;
    assert_eq!(vectors.len(), 11);
    for vector in vectors {
        let client_prefix = match vector.client_key_prefix.as_str() {
            "" => ClientPrefix::None,
            prefix => ClientPrefix::Ours(prefix.to_owned()),
        };
        let names = Names::in_cluster(&vector.key_prefix, client_prefix).unwrap();
        let key = Key::new(&vector.key).unwrap();
        let mut request = AcquireRequest::new(key, Ttl::DEFAULT).unwrap();
        request.claims[0].lock_id = LockId::parse(&vector.lock_id).unwrap();
        let plan = acquire::plan(&names, &request).unwrap();
        assert!(plan.keys().eq(&vector.keys), "of {:?}", vector.key);
        for name in &vector.keys {
            assert_eq!(key_slot(name), vector.slot, "of {:?}", vector.key);
        }
        // With a first byte of another shard, it is refused.
        if let Some(shard) = vector.shard {
            let other = if shard < 128 { "__" } else { "AA" };
            let other = format!("{other}{}", &vector.lock_id[2..]);
            request.claims[0].lock_id = LockId::parse(&other).unwrap();
            let error = acquire::plan(&names, &request).unwrap_err();
            assert!(error.message().starts_with("lockId"), "{error}");
        }
    }
}
