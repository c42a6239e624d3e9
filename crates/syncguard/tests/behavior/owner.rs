use crate::support::attempts::Attempts as _;
use syncguard::{
    AcquireOutcome, AcquireRequest, Claim, Due, ErrorKind, Key, Labels, LockOptions, OnceOptions,
    OnceOutcome, Owner, RetryPolicy, Slots, Ttl,
};

use crate::fixture::{Context, LONG, Stage, prepared, tests, ttl};

tests![
    a_label_is_stored_and_shown,
    without_a_label_it_is_that_of_the_process,
    whoever_wants_none_has_none,
    any_text_can_be_a_label,
    an_extension_keeps_the_label,
    a_refused_attempt_leaves_the_label,
    the_next_holder_does_not_inherit_it,
    lock_passes_it_on,
    a_busy_answer_says_who_and_for_how_long,
    of_several_it_is_about_what_stands_in_the_way,
    whoever_has_waited_is_told_too,
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

async fn acquire_unnamed(t: &Context, key: &Key, ttl: Ttl) {
    let mut request = prepared(t.backend.as_ref(), key, ttl);
    request.labels = Labels::default();
    let outcome = t.backend.acquire(&request).await.unwrap();
    assert!(!outcome.is_locked());
}

async fn without_a_label_it_is_that_of_the_process(stage: Stage) {
    let t = stage.open().await;
    let [alone, first, second, pool, once] = ["a", "1", "2", "p", "o"].map(|name| t.key(name));
    let process = Owner::of_process();
    let options = LockOptions::default();
    t.acquire(&alone, LONG).await;
    let whole = [&first, &second].map(|key| Claim::new(key.clone()).unwrap());
    let slot = Claim::slot(pool, Slots::new(2).unwrap()).unwrap();
    let all = whole.into_iter().chain([slot]).collect::<Vec<_>>();
    let guard = syncguard::lock(&t.backend, all, &options).await.unwrap();
    for grant in guard.grants() {
        let found = t.by_id(&grant.lock_id).await.unwrap().labels.owner;
        assert_eq!(found.as_ref(), Some(&process));
    }
    let (due, options) = (Due::new("1").unwrap(), OnceOptions::default());
    let done = syncguard::once(&t.backend, &once, due, &options);
    let OnceOutcome::Granted(_guard) = done.await.unwrap() else {
        panic!("nobody has done it");
    };
    for key in [&alone, &once] {
        assert_eq!(label(&t, key).await.as_deref(), Some(process.as_str()));
    }
}

async fn whoever_wants_none_has_none(stage: Stage) {
    let t = stage.open().await;
    let [asked, waited] = ["a", "w"].map(|name| t.key(name));
    acquire_unnamed(&t, &asked, LONG).await;
    let options = LockOptions {
        owner: None,
        ..LockOptions::default()
    };
    let guard = syncguard::lock(&t.backend, &waited, &options).await;
    for key in [&asked, &waited] {
        assert_eq!(label(&t, key).await, None);
    }
    guard.unwrap().release().await.unwrap();
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
    acquire_unnamed(&t, &key, LONG).await;
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

/// Which claim stood in the way, for how many seconds at most, and whose it is.
fn told(outcome: AcquireOutcome) -> (usize, Option<u64>, Labels) {
    let AcquireOutcome::Locked {
        claim,
        free_in,
        labels,
        is_shared: false,
    } = outcome
    else {
        panic!("{outcome:?}");
    };
    (claim, free_in.map(|free_in| free_in.as_secs() + 1), labels)
}

fn owner(name: &str) -> Labels {
    Owner::new(name).unwrap().into()
}

async fn a_busy_answer_says_who_and_for_how_long(stage: Stage) {
    let t = stage.open().await;
    for (number, (ttl_ms, name)) in [
        (30_000, Some("worker-7")),
        (90_000, None),
        (20_000, Some("é, \"\\% x")),
    ]
    .into_iter()
    .enumerate()
    {
        let key = t.key(&number.to_string());
        let labels = match name {
            Some(name) => {
                acquire_as(&t, &key, ttl(ttl_ms), name).await;
                owner(name)
            }
            None => {
                acquire_unnamed(&t, &key, ttl(ttl_ms)).await;
                Labels::default()
            }
        };
        for _ in 0..2 {
            let (claim, seconds, found) = told(acquire_as(&t, &key, LONG, "another").await);
            assert_eq!((claim, &found), (0, &labels));
            // With the tolerance, and less what it took to ask.
            let all = u64::try_from(ttl_ms).unwrap() / 1000 + 2;
            assert!((all - 15..=all).contains(&seconds.unwrap()), "{seconds:?}");
        }
    }
}

async fn of_several_it_is_about_what_stands_in_the_way(stage: Stage) {
    let t = stage.open().await;
    let [free, held, pool] = ["a", "b", "p"].map(|name| t.key(name));
    acquire_as(&t, &held, ttl(30_000), "holder").await;
    let plain = |key: &Key| Claim::new(key.clone()).unwrap();
    let slot = || Claim::slot(pool.clone(), Slots::new(2).unwrap()).unwrap();
    let request = |claims: Vec<Claim>, ttl, name: &str| {
        let mut request = AcquireRequest::of(claims, ttl).unwrap();
        request.labels = owner(name);
        t.backend.prepare(&mut request);
        request
    };
    let both = request(vec![plain(&free), plain(&held)], LONG, "x");
    let (claim, seconds, found) = told(t.backend.acquire(&both).await.unwrap());
    assert_eq!((claim, found), (1, owner("holder")));
    assert!((17..=32).contains(&seconds.unwrap()), "{seconds:?}");
    for (ttl_ms, name) in [(90_000, "last"), (30_000, "first")] {
        let request = request(vec![slot()], ttl(ttl_ms), name);
        assert!(!t.backend.acquire(&request).await.unwrap().is_locked());
    }
    let both = request(vec![plain(&free), slot()], LONG, "x");
    let (claim, seconds, found) = told(t.backend.acquire(&both).await.unwrap());
    assert_eq!((claim, found), (1, owner("first")));
    assert!((17..=32).contains(&seconds.unwrap()), "{seconds:?}");
}

async fn whoever_has_waited_is_told_too(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    acquire_as(&t, &key, ttl(30_000), "holder").await;
    let options = LockOptions {
        retry: RetryPolicy {
            timeout_ms: 400.0,
            retry_delay_ms: 100.0,
            ..RetryPolicy::default()
        },
        ..LockOptions::default()
    };
    let wait = || syncguard::lock(&t.backend, &key, &options);
    // Of those who wait beside each other, one asks.
    let (one, other) = tokio::join!(wait(), wait());
    for error in [one.unwrap_err(), other.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::AcquisitionTimeout, "{error:?}");
        let busy = error.busy().unwrap();
        assert_eq!(busy.labels, [("owner", "holder".to_owned())]);
        let seconds = busy.free_in.unwrap().as_secs() + 1;
        assert!((17..=31).contains(&seconds), "{seconds}");
    }
}
