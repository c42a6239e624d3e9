use crate::support::attempts::Attempts as _;
use syncguard::{AcquireOutcome, Key, LockOptions, Owner, Ttl};

use crate::fixture::{Context, LONG, Stage, prepared, tests, ttl};

tests![
    a_label_is_stored_and_shown,
    without_a_label_there_is_none,
    any_text_can_be_a_label,
    an_extension_keeps_the_label,
    a_refused_attempt_leaves_the_label,
    the_next_holder_does_not_inherit_it,
    lock_passes_it_on,
];

async fn acquire_as(t: &Context, key: &Key, ttl: Ttl, owner: &str) -> AcquireOutcome {
    let mut request = prepared(t.backend.as_ref(), key, ttl);
    request.labels.owner = Some(Owner::new(owner).unwrap());
    t.backend.acquire(&request).await.unwrap()
}

async fn label(t: &Context, key: &Key) -> Option<String> {
    let owner = t.by_key(key).await.unwrap().labels.owner;
    owner.map(|owner| owner.as_str().to_owned())
}

async fn a_label_is_stored_and_shown(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let AcquireOutcome::Acquired(mut grants) = acquire_as(&t, &key, LONG, "worker-7").await else {
        panic!("locked");
    };
    let grant = grants.remove(0);
    assert_eq!(label(&t, &key).await.as_deref(), Some("worker-7"));
    let by_id = t.by_id(&grant.lock_id).await.unwrap();
    assert_eq!(by_id.labels.owner.unwrap().as_str(), "worker-7");
}

async fn without_a_label_there_is_none(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    t.acquire(&key, LONG).await;
    assert_eq!(label(&t, &key).await, None);
}

async fn any_text_can_be_a_label(stage: Stage) {
    let t = stage.open().await;
    for (number, text) in [
        "é".repeat(127) + "x",
        "';\"\\{}[]:%_".to_owned(),
        "line\nbreak\ttab\u{1}".to_owned(),
        "🔒 e\u{301}".to_owned(),
        "null".to_owned(),
        " ".to_owned(),
    ]
    .iter()
    .enumerate()
    {
        let key = t.key(&number.to_string());
        acquire_as(&t, &key, LONG, text).await;
        // Unlike a key, a label is not normalised.
        assert_eq!(label(&t, &key).await.as_ref(), Some(text));
    }
}

async fn an_extension_keeps_the_label(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    acquire_as(&t, &key, LONG, "worker-7").await;
    let lock_id = t.by_key(&key).await.unwrap().lock_id;
    t.backend.extend(&lock_id, LONG).await.unwrap();
    assert_eq!(label(&t, &key).await.as_deref(), Some("worker-7"));
}

async fn a_refused_attempt_leaves_the_label(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    acquire_as(&t, &key, LONG, "holder").await;
    let refused = acquire_as(&t, &key, LONG, "other").await;
    assert!(refused.is_locked());
    assert_eq!(label(&t, &key).await.as_deref(), Some("holder"));
}

async fn the_next_holder_does_not_inherit_it(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    acquire_as(&t, &key, ttl(50), "gone").await;
    t.pass_ms(1200).await;
    t.acquire(&key, LONG).await;
    assert_eq!(label(&t, &key).await, None);
}

async fn lock_passes_it_on(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let options = LockOptions {
        owner: Some(Owner::new("worker-7").unwrap()),
        ..LockOptions::default()
    };
    let guard = syncguard::lock(&t.backend, &key, &options).await.unwrap();
    assert_eq!(label(&t, &key).await.as_deref(), Some("worker-7"));
    guard.release().await.unwrap();
}
