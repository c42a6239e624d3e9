//! Which locks a backend's own operations free.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::mutex::lock;

/// The way from the thread that frees locks to whoever waits for them in this process, if anybody does.
#[derive(Default)]
pub(in crate::sqlite) struct ReleaseFeed(Mutex<Option<UnboundedSender<String>>>);

impl ReleaseFeed {
    /// The storage keys that are freed from now on. Whoever listened before hears nothing more.
    pub(in crate::sqlite) fn listen(&self) -> UnboundedReceiver<String> {
        let (freed, receiver) = unbounded_channel();
        *self.lock() = Some(freed);
        receiver
    }

    /// Tells that these storage keys are free.
    pub(super) fn tell(&self, lock_keys: Vec<String>) {
        let mut listener = self.lock();
        for lock_key in lock_keys {
            let Some(freed) = &*listener else { return };
            if freed.send(lock_key).is_err() {
                *listener = None;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<UnboundedSender<String>>> {
        // Each change is one assignment.
        lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_who_listens_hears() {
        let releases = ReleaseFeed::default();
        releases.tell(vec!["nobody listens".to_owned()]);
        let mut first = releases.listen();
        let mut second = releases.listen();
        releases.tell(vec!["a".to_owned(), "b".to_owned()]);
        assert!(first.try_recv().is_err());
        assert_eq!(second.try_recv().unwrap(), "a");
        assert_eq!(second.try_recv().unwrap(), "b");
        drop(second);
        releases.tell(vec!["c".to_owned()]);
        assert!(releases.lock().is_none());
    }
}
