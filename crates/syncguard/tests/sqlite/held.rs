//! When the time of a lock is over: for all operations at the same millisecond.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use syncguard::sqlite::{SqliteBackend, SqliteConfig};
use syncguard::{AcquireOutcome, AcquireRequest, Clock, TIME_TOLERANCE_MS};

use crate::support::attempts::Attempts as _;
use crate::support::held::{Question, plain, slot};
use crate::support::locks::ttl;
use crate::support::suite::tests;

tests![a_lock_is_over_for_all_operations_at_the_same_millisecond];

const START_MS: i64 = 1_900_000_000_000;

/// A clock that stands still until it is set.
struct Still(Arc<AtomicI64>);

impl Clock for Still {
    fn now_ms(&self) -> i64 {
        self.0.load(SeqCst)
    }
}

async fn a_lock_is_over_for_all_operations_at_the_same_millisecond() {
    for (over_for_ms, is_held) in [(TIME_TOLERANCE_MS - 1, true), (TIME_TOLERANCE_MS, false)] {
        for question in Question::ALL {
            let now_ms = Arc::new(AtomicI64::new(START_MS));
            let clock = Still(Arc::clone(&now_ms));
            let backend = SqliteBackend::with_clock(SqliteConfig::in_memory(), clock).unwrap();
            let request = AcquireRequest::of([plain(), slot()], ttl(50)).unwrap();
            let granted = backend.acquire(&request).await.unwrap();
            assert!(matches!(granted, AcquireOutcome::Acquired(_)));
            let [a, b] = &request.lock_ids()[..] else {
                panic!("two locks are asked for");
            };
            now_ms.store(START_MS + 50 + over_for_ms, SeqCst);
            let found = question.ask(&backend, &[a.clone(), b.clone()]).await;
            assert_eq!(found, is_held, "{question:?}, {over_for_ms} ms over");
        }
    }
}
