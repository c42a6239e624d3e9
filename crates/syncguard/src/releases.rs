//! Releases that are under way, for acquisitions that go behind one.

use std::collections::HashMap;
use std::sync::Mutex;

use tokio::sync::watch;

use crate::lock_id::LockId;
use crate::mutex::lock;

/// The releases under way of one backend, by what they free.
#[derive(Default)]
pub(crate) struct Releases(Mutex<HashMap<LockId, watch::Receiver<()>>>);

/// Counts as a release under way until it is dropped.
struct UnderWay<'a> {
    releases: &'a Releases,
    lock_id: &'a LockId,
    /// Nothing is ever sent: those who wait see it end.
    _ended: watch::Sender<()>,
}

impl Releases {
    /// Notes the release of that lock, until the value is dropped.
    pub(crate) fn start<'a>(&'a self, lock_id: &'a LockId) -> impl Drop + 'a {
        let (ended, release) = watch::channel(());
        lock(&self.0).insert(lock_id.clone(), release);
        UnderWay {
            releases: self,
            lock_id,
            _ended: ended,
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// Waits until the release of that lock has ended, however it ends; not at all if none is under way.
    pub(crate) async fn ended(&self, lock_id: &LockId) {
        let release = lock(&self.0).get(lock_id).cloned();
        if let Some(mut release) = release {
            let _ = release.changed().await;
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        lock(&self.releases.0).remove(self.lock_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn it_waits_for_that_release_and_for_no_other() {
        let releases = Releases::default();
        let [lock_id, other] = [(); 2].map(|()| LockId::generate().unwrap());
        let release = releases.start(&lock_id);
        let mut behind = Box::pin(releases.ended(&lock_id));
        assert!(behind.as_mut().now_or_never().is_none());
        assert!(releases.ended(&other).now_or_never().is_some());
        drop(release);
        behind.await;
        assert!(releases.ended(&lock_id).now_or_never().is_some());
        assert!(lock(&releases.0).is_empty());
    }
}
