use crate::support::attempts::Attempts as _;
use syncguard::{Key, MAX_KEY_LENGTH_BYTES, ReleaseOutcome};

use crate::fixture::{Context, LONG, Stage, is_the_time, tests};

tests![
    hostile_keys_are_keys_like_any_other,
    hostile_beginnings_are_keys_like_any_other,
    similar_keys_are_different_keys,
    one_text_in_two_normal_forms_is_one_key,
    the_longest_keys_stay_apart,
    a_key_named_like_a_fence_counter_has_its_own,
];

/// Locks all of them at once: each is another key, and each comes back as it went in.
async fn all_apart(t: &Context, keys: &[Key]) {
    let mut grants = Vec::new();
    for key in keys {
        let grant = t.acquire(key, LONG).await;
        assert!(is_the_time(&grant));
        grants.push(grant);
    }
    for (key, grant) in keys.iter().zip(grants) {
        assert!(t.try_acquire(key, LONG).await.is_locked());
        let record = t.by_key(key).await.unwrap();
        assert_eq!(&record.key, key);
        assert_eq!(record.lock_id, grant.lock_id);
        let released = t.backend.release(&grant.lock_id).await.unwrap();
        assert_eq!(released, ReleaseOutcome::Released);
        assert!(!t.is_locked(key).await);
    }
}

async fn hostile_keys_are_keys_like_any_other(stage: Stage) {
    let t = stage.open().await;
    let names = [
        "'",
        "\"",
        "''",
        "\\",
        "\\'",
        "`",
        "{}",
        "{a}",
        "}{",
        "[1]",
        "%s",
        "%",
        "_",
        "*",
        "?",
        "$1",
        "?1",
        ":name",
        "@p",
        "#",
        "--",
        "/* */",
        ";",
        "'; DROP TABLE syncguard_locks; --",
        "\n",
        "\r\n",
        "\t",
        "\u{1}",
        "\u{1b}[31m",
        "\u{7f}",
        " ",
        "  ",
        "🔒",
        "👩‍👩‍👧",
        "キー",
        "\u{202e}rtl",
        "\u{feff}",
        "/",
        "//",
        ".",
        "..",
        "../..",
        "__x__",
        "a b",
        "null",
        "true",
        "0",
        "-1",
        "1e3",
        "{\"key\":1}",
        "\u{10ffff}",
        "\u{fffd}",
    ];
    let keys: Vec<_> = names.iter().map(|name| t.key(name)).collect();
    all_apart(&t, &keys).await;
}

async fn hostile_beginnings_are_keys_like_any_other(stage: Stage) {
    let t = stage.open().await;
    let own = &t.namespace;
    let keys: Vec<_> = [
        "",
        "fence:",
        "id:",
        "fence:fence:",
        "id:fence:",
        ":",
        "::",
        "{",
        "'",
        "syncguard:",
        " ",
        "/",
        "__",
    ]
    .iter()
    .map(|start| Key::new(&format!("{start}{own}")).unwrap())
    .collect();
    all_apart(&t, &keys).await;
}

async fn similar_keys_are_different_keys(stage: Stage) {
    let t = stage.open().await;
    // Letter case, trailing blanks and colons, and letters that look or fold alike.
    let keys: Vec<_> = [
        "a", "A", "a ", " a", "a:", "a::", "а", "ａ", "ß", "ss", "i", "ı", "İ", "I",
    ]
    .iter()
    .map(|name| t.key(name))
    .collect();
    all_apart(&t, &keys).await;
}

async fn one_text_in_two_normal_forms_is_one_key(stage: Stage) {
    let t = stage.open().await;
    for (composed, decomposed) in [
        ("café", "cafe\u{301}"),
        ("Å", "A\u{30a}"),
        ("각", "\u{1100}\u{1161}\u{11a8}"),
    ] {
        let grant = t.acquire(&t.key(composed), LONG).await;
        let other = t.key(decomposed);
        assert!(t.is_locked(&other).await);
        assert!(t.try_acquire(&other, LONG).await.is_locked());
        assert_eq!(t.by_key(&other).await.unwrap().lock_id, grant.lock_id);
    }
}

async fn the_longest_keys_stay_apart(stage: Stage) {
    let t = stage.open().await;
    let filled = |end: &str| {
        let room = MAX_KEY_LENGTH_BYTES - t.namespace.len() - 1 - end.len();
        t.key(&format!("{}{end}", "x".repeat(room)))
    };
    let keys = [filled("a"), filled("b"), filled("é"), filled("🔒")];
    for key in &keys {
        assert_eq!(key.as_str().len(), MAX_KEY_LENGTH_BYTES);
    }
    all_apart(&t, &keys).await;
}

async fn a_key_named_like_a_fence_counter_has_its_own(stage: Stage) {
    let t = stage.open().await;
    let plain = t.key("a");
    let before = t.acquire(&plain, LONG).await;
    t.backend.release(&before.lock_id).await.unwrap();
    let namesake = Key::new(&format!("fence:{}", plain.as_str())).unwrap();
    let grant = t.acquire(&namesake, LONG).await;
    assert!(is_the_time(&grant));
    assert!(!t.is_locked(&plain).await);
    t.backend.release(&grant.lock_id).await.unwrap();
    assert!(t.acquire(&plain, LONG).await.fence > before.fence);
}
