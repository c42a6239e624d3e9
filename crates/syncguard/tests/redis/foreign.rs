//! Locks that other libraries write are understood in whatever order their members stand.

use crate::support::attempts::Attempts as _;
use syncguard::{Absence, ExtendOutcome, LockId, Lookup, ReleaseOutcome};

use crate::stage::{FOREIGN, Stage, json};
use crate::support::locks::{key, ttl};
use crate::support::suite::tests;

tests![
    what_others_write_is_held_read_extended_and_released,
    extend_keeps_unknown_members_where_text_cannot_be_replaced,
    expired_locks_of_others_are_free_and_removed,
    within_the_tolerance_locks_of_others_are_held,
];

async fn what_others_write_is_held_read_extended_and_released() {
    let mut t = Stage::new();
    let key = key("k");
    for form in FOREIGN {
        let id = LockId::generate().unwrap();
        let written = t.write(form, "k", &id, 30_000);
        assert!(t.try_acquire("k", 1000).await.is_locked());
        assert!(t.backend.is_locked(&key).await.unwrap());
        for lookup in [Lookup::Key(key.clone()), Lookup::LockId(id.clone())] {
            let record = t.backend.lookup(&lookup).await.unwrap().unwrap();
            assert_eq!(record.lock_id, id);
            assert_eq!(record.fence.get(), 7);
            assert_eq!(record.acquired_at_ms, 1_700_000_000_000);
            assert_eq!(record.key, key);
        }

        let before = json(&written)["expiresAtMs"].to_string();
        let extended = t.backend.extend(&id, ttl(90_000)).await.unwrap();
        let ExtendOutcome::Extended { expires_at_ms } = extended else {
            panic!("gone");
        };
        // Nothing but the one number changes.
        let after = written.replace(&before, &expires_at_ms.to_string());
        assert_eq!(t.get("syncguard:k"), after);
        let index = format!("syncguard:id:{}", id.as_str());
        for name in ["syncguard:k", &index] {
            let late = t.raw.call(&["PEXPIRETIME", name]).int() - (expires_at_ms + 1000);
            assert!((0..100).contains(&late), "{late}");
        }

        assert_eq!(
            t.backend.release(&id).await.unwrap(),
            ReleaseOutcome::Released
        );
        assert!(!t.exists("syncguard:k") && !t.exists(&index));
    }
}

async fn extend_keeps_unknown_members_where_text_cannot_be_replaced() {
    let mut t = Stage::new();
    let id = LockId::generate().unwrap();
    // Two members of that name at two depths: which text is which is not told by looking.
    let form = r#"{"x":{"expiresAtMs":5},"expiresAtMs":$EXPIRES,"lockId":"$ID","acquiredAtMs":1,"key":"k","fence":"000000000000007"}"#;
    t.write(form, "k", &id, 30_000);
    let extended = t.backend.extend(&id, ttl(90_000)).await.unwrap();
    let ExtendOutcome::Extended { expires_at_ms } = extended else {
        panic!("gone");
    };
    let stored = json(&t.get("syncguard:k"));
    assert_eq!(stored["x"]["expiresAtMs"], 5);
    assert_eq!(stored["expiresAtMs"], expires_at_ms);
    assert_eq!(stored["fence"], "000000000000007");
}

async fn expired_locks_of_others_are_free_and_removed() {
    let mut t = Stage::new();
    let key = key("k");
    for form in FOREIGN {
        for round in 0..2 {
            let id = LockId::generate().unwrap();
            t.write(form, "k", &id, -1500);
            assert!(!t.backend.is_locked(&key).await.unwrap());
            assert!(t.exists("syncguard:k"), "no cleanup unless asked for");
            let lookup = Lookup::LockId(id.clone());
            assert_eq!(t.backend.lookup(&lookup).await.unwrap(), None);
            if round == 0 {
                assert_eq!(
                    t.backend.release(&id).await.unwrap(),
                    ReleaseOutcome::Absent(Absence::Expired)
                );
            } else {
                assert_eq!(
                    t.backend.extend(&id, ttl(1000)).await.unwrap(),
                    ExtendOutcome::absent(Absence::Expired)
                );
            }
            assert!(!t.exists("syncguard:k"));
            assert!(!t.exists(&format!("syncguard:id:{}", id.as_str())));
        }
        // One in the way of an acquisition is replaced.
        t.write(form, "k", &LockId::generate().unwrap(), -1500);
        let grant = t.acquire("k", 1000).await;
        t.backend.release(&grant.lock_id).await.unwrap();
    }
}

async fn within_the_tolerance_locks_of_others_are_held() {
    let mut t = Stage::new();
    for form in FOREIGN {
        let id = LockId::generate().unwrap();
        t.write(form, "k", &id, -300);
        assert!(t.try_acquire("k", 1000).await.is_locked());
        assert_eq!(
            t.backend.release(&id).await.unwrap(),
            ReleaseOutcome::Released
        );
    }
}
