//! Locks that do not extend themselves: once another server may keep them, each is asked after.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use futures_core::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::mutex::lock;
use crate::values::lock_id::LockId;

/// How many are asked after at a time: stores send together what comes together.
const AT_ONCE: usize = 64;

/// Whoever holds locks that do not extend themselves.
pub(crate) trait LookedAt: Send + Sync {
    /// When the locks end; `None` if they are not held any more.
    fn end(&self) -> Option<Instant>;

    /// Asks the store whether it has them, and notes that they are lost if it has not.
    fn look(self: Arc<Self>) -> BoxFuture<'static, ()>;
}

/// The locks of one backend that do not extend themselves, by their first lock ids.
#[derive(Default)]
pub(crate) struct Looks(Mutex<HashMap<LockId, Weak<dyn LookedAt>>>);

impl Looks {
    pub(crate) fn add(&self, lock_id: &LockId, holder: &Arc<impl LookedAt + 'static>) {
        let holder: Weak<dyn LookedAt> = Arc::downgrade(holder) as _;
        lock(&self.0).insert(lock_id.clone(), holder);
    }

    pub(crate) fn remove(&self, lock_id: &LockId) {
        lock(&self.0).remove(lock_id);
    }

    /// Asks after all in the background, the nearest end first. Does nothing outside a tokio runtime.
    pub(crate) fn ask(&self) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let held: Vec<_> = lock(&self.0).values().filter_map(Weak::upgrade).collect();
        let ends = held
            .into_iter()
            .filter_map(|held| Some((held.end()?, held)));
        let mut held: Vec<_> = ends.collect();
        // The last one is taken first.
        held.sort_by_key(|(end, _)| Reverse(*end));
        let tasks = held.len().min(AT_ONCE);
        let held = Arc::new(Mutex::new(held));
        for _ in 0..tasks {
            let held = Arc::clone(&held);
            runtime.spawn(async move {
                let take = || lock(&held).pop();
                while let Some((_, held)) = take() {
                    held.look().await;
                }
            });
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }
}
