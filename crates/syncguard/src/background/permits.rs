//! Decides who goes first where only a limited number may go at a time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use crate::mutex::lock;

/// A limited number of permits. An operation that keeps or frees a held lock is urgent and gets the next permit. All others get
/// theirs in the order in which they came. Otherwise a crowd of look-ups could delay heartbeats until their locks are lost.
#[derive(Debug)]
pub struct Permits(Mutex<PermitQueue>);

#[derive(Debug)]
struct PermitQueue {
    free: usize,
    urgent: VecDeque<oneshot::Sender<Permit>>,
    others: VecDeque<oneshot::Sender<Permit>>,
}

/// Permission to go, until it is dropped.
#[derive(Debug)]
pub struct Permit(Option<Arc<Permits>>);

impl Permits {
    /// Makes `count` permits.
    pub fn new(count: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(PermitQueue {
            free: count,
            urgent: VecDeque::new(),
            others: VecDeque::new(),
        })))
    }

    /// Waits for a permit. The future may be dropped at any point.
    pub async fn acquire(self: &Arc<Self>, is_urgent: bool) -> Permit {
        let own = || Permit(Some(Arc::clone(self)));
        let permit = {
            let mut state = lock(&self.0);
            if state.free > 0 {
                state.free -= 1;
                return own();
            }
            let (sender, permit) = oneshot::channel();
            match is_urgent {
                true => state.urgent.push_back(sender),
                false => state.others.push_back(sender),
            }
            permit
        };
        // `self` keeps the queue alive while somebody waits in it, so this cannot fail.
        permit.await.unwrap_or_else(|_| own())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(mut permits) = self.0.take() else {
            return;
        };
        loop {
            let next = {
                let mut state = lock(&permits.0);
                let next = state.urgent.pop_front();
                let next = next.or_else(|| state.others.pop_front());
                if next.is_none() {
                    state.free += 1;
                }
                next
            };
            let Some(next) = next else {
                return;
            };
            // If that one has stopped waiting, the permit comes back at once.
            match next.send(Permit(Some(permits))) {
                Ok(()) => return,
                Err(mut unused) => match unused.0.take() {
                    Some(back) => permits = back,
                    None => return,
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn what_is_urgent_goes_before_all_that_came_earlier() {
        let permits = Permits::new(1);
        let first = permits.acquire(false).await;
        let mut others = [(); 2].map(|()| Box::pin(permits.acquire(false)));
        for other in &mut others {
            assert!(other.as_mut().now_or_never().is_none());
        }
        let mut urgent = Box::pin(permits.acquire(true));
        assert!(urgent.as_mut().now_or_never().is_none());
        drop(first);
        let [mut second, mut third] = others;
        assert!(second.as_mut().now_or_never().is_none());
        let permit = urgent.now_or_never().unwrap();
        drop(permit);
        assert!(third.as_mut().now_or_never().is_none());
        let permit = second.now_or_never().unwrap();
        drop(permit);
        drop(third.now_or_never().unwrap());
        assert_eq!(lock(&permits.0).free, 1);
    }

    #[tokio::test]
    async fn nothing_is_kept_by_those_who_go_away() {
        let permits = Permits::new(1);
        let first = permits.acquire(false).await;
        let mut gone = [(); 3].map(|()| Box::pin(permits.acquire(true)));
        for waiter in &mut gone {
            assert!(waiter.as_mut().now_or_never().is_none());
        }
        let [before, mut at_its_turn, stays_away] = gone;
        drop(before);
        drop(first);
        // It has been given the permit, and does not come for it.
        assert!(at_its_turn.as_mut().now_or_never().is_some());
        let mut last = Box::pin(permits.acquire(false));
        assert!(last.as_mut().now_or_never().is_none());
        drop(stays_away);
        assert!(last.now_or_never().is_some());
        assert_eq!(lock(&permits.0).free, 1);
    }
}
