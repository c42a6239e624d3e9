//! Texts from callers: keys, lock ids, fences, owners, prefixes.

use syncguard::{
    ErrorKind, Fence, Key, LockId, MAX_KEY_LENGTH_BYTES, Owner, Ttl, format_fence, hash_key,
    hash_key_utf16, make_storage_key,
};

use crate::input::{assert_discreet, checked, checked_debug, text_with_secrets, with_secrets};

/// Keys, and what is made of them for each store.
pub fn keys(data: &[u8]) {
    let bytes = with_secrets(data);
    let units: Vec<u16> = bytes
        .chunks(2)
        .map(|pair| pair.iter().fold(0, |sum, byte| sum << 8 | u16::from(*byte)))
        .collect();
    assert_eq!(hash_key_utf16(&units).len(), 24);
    let Some(text) = text_with_secrets(data) else {
        return;
    };
    texts(&text);
    let (prefix, rest) = text.split_once('\n').unwrap_or(("syncguard", &text));
    for (limit, reserve) in [(1000, 26), (1700, 0), (1500, 0), (data.len(), 0)] {
        if let Some(name) = checked(make_storage_key(prefix, rest, limit, reserve)) {
            assert!(name.len() + reserve <= limit);
        }
    }
    let Some(key) = checked(Key::new(&text)) else {
        return;
    };
    assert!(!key.as_str().is_empty() && key.as_str().len() <= MAX_KEY_LENGTH_BYTES);
    assert_eq!(Key::new(key.as_str()).ok().as_ref(), Some(&key));
    assert_discreet(&format!("{key:?}"));
    checked(syncguard::firestore::DocumentIds::of(&key));
    checked(syncguard::postgres::operations::PrimaryKeys::new(&key));
}

/// What else is a text.
fn texts(text: &str) {
    // Its error quotes what was given, which is no lock id: SyncGuard for TypeScript says it in the same words.
    if let Ok(lock_id) = LockId::parse(text) {
        assert_eq!(lock_id.as_str(), text);
        assert_discreet(&format!("{lock_id:?}"));
    }
    if let Some(fence) = checked(Fence::parse(text)) {
        assert_eq!(fence.to_string().len(), 15);
    }
    if let Some(fence) = checked(format_fence(text)) {
        assert_eq!(fence.len(), 15);
    }
    checked_debug(Owner::new(text));
    assert_eq!(hash_key(text).len(), 24);
    if let Ok(number) = text.parse::<f64>() {
        checked(Ttl::from_f64(number));
    }
    if let Ok(number) = text.parse::<i64>() {
        checked(Fence::from_counter(number));
        checked(Fence::after(number, number));
        checked(Ttl::from_millis(number));
    }
    assert_eq!(
        ErrorKind::from_name(text).map(ErrorKind::as_str),
        ErrorKind::from_name(text).map(|_| text)
    );
}
