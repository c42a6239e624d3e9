//! What holds of the pure functions for every input.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use syncguard::{
    ErrorKind, Fence, Key, KeySpace, MAX_KEY_LENGTH_BYTES, format_fence, make_storage_key,
};

/// Text with a taste for what changes under normalisation, and for our own separators.
fn text(pieces: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => any::<char>().prop_map(String::from),
        2 => "[a-z0-9:]{1,8}",
        1 => Just("e\u{301}".to_owned()),
        1 => Just("\u{1100}\u{1161}\u{11a8}".to_owned()),
        1 => Just("a\u{323}\u{307}".to_owned()),
        1 => Just("a\u{307}\u{323}".to_owned()),
        1 => Just("\u{fb1d}".to_owned()),
        1 => Just("fence:".to_owned()),
        1 => Just("id:".to_owned()),
        1 => Just("x".repeat(60)),
    ];
    prop::collection::vec(piece, pieces).prop_map(|pieces| pieces.concat())
}

/// The stores' own limits, and some that cut even short keys.
fn space() -> impl Strategy<Value = (String, usize, usize)> {
    prop_oneof![
        Just((String::new(), 1700, 0)),
        Just(("syncguard".to_owned(), 1000, 26)),
        Just((String::new(), 1500, 0)),
        ("[a-z:]{0,12}", 60..200usize, 0..20usize),
    ]
}

fn key_space(space: &(String, usize, usize)) -> KeySpace<'_> {
    KeySpace {
        prefix: &space.0,
        limit_bytes: space.1,
        reserve_bytes: space.2,
    }
}

proptest! {
    #[test]
    fn normalisation_is_idempotent_and_its_length_is_checked(text in text(0..20)) {
        match Key::new(&text) {
            Ok(key) => {
                prop_assert!(!key.as_str().is_empty());
                prop_assert!(key.as_str().len() <= MAX_KEY_LENGTH_BYTES);
                let again = Key::new(key.as_str()).unwrap();
                prop_assert_eq!(again, key);
            }
            Err(error) => {
                prop_assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                let long = make_storage_key("", &text, usize::MAX, 0)
                    .is_ok_and(|name| name.len() > MAX_KEY_LENGTH_BYTES);
                prop_assert!(text.is_empty() || long);
            }
        }
    }

    #[test]
    fn texts_that_are_canonically_equal_are_one_key(text in text(1..10)) {
        use unicode_normalization::UnicodeNormalization;
        let forms = [text.nfc().collect::<String>(), text.nfd().collect()];
        if let Ok(key) = Key::new(&text) {
            for form in forms {
                prop_assert_eq!(&Key::new(&form).unwrap(), &key);
            }
        }
    }

    #[test]
    fn storage_keys_fit_and_are_always_the_same(text in text(1..40), space in space()) {
        let (prefix, limit, reserve) = &space;
        let name = make_storage_key(prefix, &text, *limit, *reserve).unwrap();
        prop_assert!(name.len() + reserve <= *limit);
        prop_assert_eq!(&make_storage_key(prefix, &text, *limit, *reserve).unwrap(), &name);
        let stem = prefix.trim_end_matches(':');
        if !stem.is_empty() {
            let lead = format!("{stem}:");
            prop_assert!(name.starts_with(&lead));
        }
        // Whole where there is room, 22 characters of hash where there is none.
        let whole = make_storage_key(prefix, &text, usize::MAX, 0).unwrap();
        if whole.len() + reserve <= *limit {
            prop_assert_eq!(name, whole);
        } else {
            let lead = if stem.is_empty() { 0 } else { stem.len() + 1 };
            prop_assert_eq!(name.len(), lead + 22);
        }
    }

    #[test]
    fn each_lock_has_a_fence_counter_of_its_own(
        first in text(1..12),
        second in text(1..12),
        space in space(),
    ) {
        let (Ok(first), Ok(second)) = (Key::new(&first), Key::new(&second)) else {
            return Ok(());
        };
        let space = key_space(&space);
        let names = |key| {
            let lock_key = space.lock_key(key).unwrap();
            let fence_key = space.fence_key(&lock_key).unwrap();
            (lock_key, fence_key)
        };
        let (one, other) = (names(&first), names(&second));
        prop_assert_eq!(one.0 == other.0, first == second);
        prop_assert_eq!(one.1 == other.1, first == second);
    }

    #[test]
    fn a_fence_counter_is_named_like_neither_its_lock_nor_an_index(
        text in text(1..12),
        lock_id in "[A-Za-z0-9_-]{22}",
        space in space(),
    ) {
        let Ok(key) = Key::new(&text) else { return Ok(()) };
        let space = key_space(&space);
        let lock_key = space.lock_key(&key).unwrap();
        let fence_key = space.fence_key(&lock_key).unwrap();
        let index_key = space.index_key(&lock_id).unwrap();
        prop_assert_ne!(&fence_key, &lock_key);
        prop_assert_ne!(&fence_key, &index_key);
    }

    #[test]
    fn the_order_of_texts_is_the_order_of_fences(
        first in 1..=900_000_000_000_000i64,
        second in prop_oneof![1..=900_000_000_000_000i64, 1..1000i64],
    ) {
        let one = Fence::from_counter(first).unwrap();
        let other = Fence::from_counter(second).unwrap();
        prop_assert_eq!(one.to_string().cmp(&other.to_string()), first.cmp(&second));
        prop_assert_eq!(one.cmp(&other), first.cmp(&second));
        prop_assert_eq!(one.to_string().len(), 15);
        prop_assert_eq!(Fence::parse(&one.to_string()).unwrap(), one);
    }

    #[test]
    fn numbers_are_formatted_like_fences(number in 0..1_000_000_000_000_000u64) {
        let text = format_fence(&number.to_string()).unwrap();
        prop_assert_eq!(text.len(), 15);
        prop_assert_eq!(text.parse::<u64>().unwrap(), number);
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in any::<String>()) {
        let _ = Fence::parse(&text);
        let _ = syncguard::LockId::parse(&text);
        prop_assert_eq!(syncguard::hash_key(&text).len(), 24);
    }
}
