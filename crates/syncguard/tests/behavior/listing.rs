use std::collections::BTreeMap;

use syncguard::{ErrorKind, LockRecord, MAX_PAGE, Owner, PageRequest};

use crate::fixture::{Context, LONG, Stage, prepared, tests};
use crate::support::attempts::Attempts as _;

tests![Listing:
    a_listed_lock_is_what_a_look_up_gives,
    only_live_locks_are_listed,
    pages_have_all_locks,
    limits_out_of_range_are_refused,
];

/// The locks of this test, by their keys, from pages of up to `limit`. Other tests work on the same store.
async fn listed(t: &Context, limit: usize) -> BTreeMap<String, LockRecord> {
    let mut found = BTreeMap::new();
    let mut after = None;
    loop {
        let page = PageRequest { after, limit };
        let page = t.backend.list(&page).await.unwrap();
        for lock in page.locks {
            let key = lock.key.as_str().to_owned();
            if key.starts_with(&t.namespace) {
                found.insert(key, lock);
            }
        }
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

async fn a_listed_lock_is_what_a_look_up_gives(stage: Stage) {
    let t = stage.open().await;
    let key = t.key("a");
    let mut request = prepared(t.backend.as_ref(), &key, LONG);
    request.labels.owner = Some(Owner::new("worker-7").unwrap());
    t.backend.acquire(&request).await.unwrap();
    let found = t.by_key(&key).await.unwrap();
    let mut all = listed(&t, MAX_PAGE).await;
    let listed = all.remove(key.as_str()).unwrap();
    assert!(listed.is_live());
    // Only when it was read differs.
    let read_at_ms = found.read_at_ms;
    assert_eq!(
        format!(
            "{:?}",
            LockRecord {
                read_at_ms,
                ..listed
            }
        ),
        format!("{found:?}")
    );
    assert!(all.is_empty(), "{all:?}");
}

async fn only_live_locks_are_listed(stage: Stage) {
    let t = stage.open().await;
    let [ended, released, held] = ["ended", "released", "held"].map(|name| t.key(name));
    t.acquire_and_expire(&ended).await;
    let grant = t.acquire(&released, LONG).await;
    t.acquire(&held, LONG).await;
    t.backend.release(&grant.lock_id).await.unwrap();
    let all = listed(&t, MAX_PAGE).await;
    assert_eq!(all.keys().collect::<Vec<_>>(), [held.as_str()]);
}

async fn pages_have_all_locks(stage: Stage) {
    let t = stage.open().await;
    let keys: Vec<_> = (10..35).map(|number| t.key(&number.to_string())).collect();
    for key in &keys {
        t.acquire(key, LONG).await;
    }
    let all = listed(&t, 10).await;
    let names: Vec<_> = keys.iter().map(|key| key.as_str()).collect();
    assert_eq!(all.keys().collect::<Vec<_>>(), names);
}

async fn limits_out_of_range_are_refused(stage: Stage) {
    let t = stage.open().await;
    for limit in [0, MAX_PAGE + 1] {
        let page = PageRequest { after: None, limit };
        let error = t.backend.list(&page).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("limit"), "{error}");
    }
}
