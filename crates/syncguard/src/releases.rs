//! Releases that are under way, for acquisitions that go behind one.

use std::collections::HashMap;
use std::sync::Mutex;

use tokio::sync::watch;

use crate::backend::Lane;
use crate::lock_id::LockId;
use crate::mutex::lock;

/// The releases under way of one backend, by what they free.
#[derive(Default)]
pub(crate) struct Releases(Mutex<HashMap<LockId, Release>>);

struct Release {
    lane: Option<Lane>,
    /// Made for the first who waits. Nothing is ever sent: those who wait see it end.
    ended: Option<watch::Sender<()>>,
}

/// Counts as a release under way until it is dropped.
struct UnderWay<'a> {
    releases: &'a Releases,
    lock_id: &'a LockId,
}

impl Releases {
    /// Notes the release of that lock, which is made in that lane, until the value is dropped.
    pub(crate) fn start<'a>(
        &'a self,
        lock_id: &'a LockId,
        lane: Option<Lane>,
    ) -> impl Drop + use<'a> {
        let release = Release { lane, ended: None };
        lock(&self.0).insert(lock_id.clone(), release);
        UnderWay {
            releases: self,
            lock_id,
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// Waits until the release of that lock has ended, however it ends. `None` if none is under way, or if whoever goes
    /// behind it does so in the same lane.
    pub(crate) fn ended(
        &self,
        lock_id: &LockId,
        lane: Option<Lane>,
    ) -> Option<impl Future<Output = ()> + use<>> {
        let mut releases = lock(&self.0);
        let release = releases.get_mut(lock_id)?;
        if lane.is_some() && release.lane == lane {
            return None;
        }
        let ended = release.ended.get_or_insert_with(|| watch::channel(()).0);
        let mut ended = ended.subscribe();
        Some(async move {
            let _ = ended.changed().await;
        })
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
        let release = releases.start(&lock_id, None);
        let mut behind = Box::pin(releases.ended(&lock_id, None).unwrap());
        assert!(behind.as_mut().now_or_never().is_none());
        assert!(releases.ended(&other, None).is_none());
        drop(release);
        behind.await;
        assert!(releases.ended(&lock_id, None).is_none());
        assert!(lock(&releases.0).is_empty());
    }

    #[test]
    fn nobody_waits_in_the_same_lane() {
        let releases = Releases::default();
        let lock_id = LockId::generate().unwrap();
        for (ahead, behind, waits) in [
            (None, None, true),
            (Some(Lane::EventLoop), None, true),
            (None, Some(Lane::EventLoop), true),
            (Some(Lane::EventLoop), Some(Lane::Runtime), true),
            (Some(Lane::Runtime), Some(Lane::EventLoop), true),
            (Some(Lane::Runtime), Some(Lane::Runtime), false),
            (Some(Lane::EventLoop), Some(Lane::EventLoop), false),
        ] {
            let _release = releases.start(&lock_id, ahead);
            assert_eq!(
                releases.ended(&lock_id, behind).is_some(),
                waits,
                "{ahead:?} {behind:?}"
            );
        }
    }
}
