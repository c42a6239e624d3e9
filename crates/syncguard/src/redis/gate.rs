//! Lets calls in until it is shut, and tells when the last one is out.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tokio::sync::Notify;

/// Set when the gate is shut; the rest counts the calls inside.
const SHUT: usize = 1 << (usize::BITS - 1);

#[derive(Default)]
pub(super) struct Gate {
    inside: AtomicUsize,
    empty: Notify,
}

/// A call inside. It is out when this is dropped.
pub(super) struct Pass<'a>(&'a Gate);

impl Gate {
    /// `None` once it is shut.
    pub(super) fn enter(&self) -> Option<Pass<'_>> {
        let pass = Pass(self);
        // A pass that is not given out is dropped, and so takes itself off again.
        (self.inside.fetch_add(1, SeqCst) & SHUT == 0).then_some(pass)
    }

    /// Shuts it and waits until nobody is inside.
    pub(super) async fn shut(&self) {
        self.inside.fetch_or(SHUT, SeqCst);
        loop {
            let left = self.empty.notified();
            tokio::pin!(left);
            // Before the look, so that no departure between the two is missed.
            left.as_mut().enable();
            if self.inside.load(SeqCst) == SHUT {
                return;
            }
            left.await;
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.0.inside.fetch_sub(1, SeqCst) == SHUT + 1 {
            self.0.empty.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn it_waits_for_those_inside_and_lets_nobody_in() {
        let gate = Gate::default();
        let first = gate.enter().unwrap();
        let second = gate.enter().unwrap();
        let blink = Duration::from_millis(20);
        assert!(timeout(blink, gate.shut()).await.is_err());
        assert!(gate.enter().is_none());
        drop(first);
        assert!(timeout(blink, gate.shut()).await.is_err());
        tokio::join!(gate.shut(), gate.shut(), async { drop(second) });
        assert!(gate.enter().is_none());
        gate.shut().await;
    }
}
