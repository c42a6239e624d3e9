//! Asks the store after locks that do not extend themselves when another server may have taken over: no heartbeat would notice that
//! they are gone.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use futures_core::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::mutex::lock;
use crate::values::lock_id::LockId;

/// How many locks are asked after at a time, because stores send together what comes together.
const AT_ONCE: usize = 64;

/// Holds locks that do not extend themselves.
pub(crate) trait LookedAt: Send + Sync {
    /// When the locks end; `None` if they are not held any more.
    fn end(&self) -> Option<Instant>;

    /// Asks the store whether it still has the locks. If not, notes that they are lost.
    fn look(self: Arc<Self>) -> BoxFuture<'static, ()>;
}

/// The locks of one backend that do not extend themselves.
#[derive(Default)]
pub(crate) struct Looks {
    /// The holders, by the first lock id of each.
    held: Mutex<HashMap<LockId, Weak<dyn LookedAt>>>,
    /// Asks after locks that are held outside of this crate.
    others: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Looks {
    pub(crate) fn add(&self, lock_id: &LockId, holder: &Arc<impl LookedAt + 'static>) {
        let holder: Weak<dyn LookedAt> = Arc::downgrade(holder) as _;
        lock(&self.held).insert(lock_id.clone(), holder);
    }

    pub(crate) fn remove(&self, lock_id: &LockId) {
        lock(&self.held).remove(lock_id);
    }

    /// Adds a function that asks after locks that are held outside of this crate. Only the first one counts.
    pub(crate) fn ask_others(&self, ask: Box<dyn Fn() + Send + Sync>) {
        // The first function asks after all of them, so a second one is not needed.
        let _ = self.others.set(ask);
    }

    /// Asks after all locks in the background, the nearest end first. Outside a tokio runtime, only the function for others is called.
    pub(crate) fn ask(&self) {
        if let Some(ask) = self.others.get() {
            ask();
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let held: Vec<_> = lock(&self.held)
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        let ends = held
            .into_iter()
            .filter_map(|held| Some((held.end()?, held)));
        let mut held: Vec<_> = ends.collect();
        // Tasks take from the end of the list, so the nearest end comes last.
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
        lock(&self.held).is_empty()
    }
}
