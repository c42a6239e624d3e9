//! A process that was stopped, as its guards see it before anybody has told them. Here the clock is the real one.

use super::*;
use crate::holding::lock::{LockOptions, lock};

async fn held(auto_extend: Option<AutoExtend>) -> crate::LockGuard {
    let backend = Arc::clone(&scene().store) as Arc<dyn Backend>;
    let options = LockOptions {
        ttl: ttl(300),
        auto_extend,
        ..LockOptions::default()
    };
    lock(&backend, &Key::new("key").unwrap(), &options)
        .await
        .unwrap()
}

/// Nothing runs on this thread meanwhile, heartbeats neither.
fn stop() {
    std::thread::sleep(ms(400));
}

#[tokio::test]
async fn a_guard_says_at_once_that_its_lock_is_lost() {
    for auto_extend in [None, Some(AutoExtend::default())] {
        let mut guard = held(auto_extend).await;
        guard.assert_held().unwrap();
        stop();
        let error = guard.assert_held().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LockLost);
        // It stays so, whatever the store would still do within the tolerance.
        assert!(!guard.extend(ttl(60_000)).await.unwrap());
        assert_eq!(guard.lost().await.kind(), ErrorKind::LockLost);
        assert!(!guard.release().await.unwrap());
    }
}

#[tokio::test]
async fn nothing_extends_a_lock_any_more_that_its_guard_has_called_lost() {
    let guard = held(Some(AutoExtend::default())).await;
    stop();
    guard.assert_held().unwrap_err();
    sleep(ms(700)).await;
    guard.assert_held().unwrap_err();
}
