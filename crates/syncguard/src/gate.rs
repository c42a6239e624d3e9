//! Lets calls in until it is shut, and tells when the last one is out.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tokio::sync::Notify;

/// Set when the gate is shut; the rest counts the calls inside.
const SHUT: usize = 1 << (usize::BITS - 1);

#[derive(Debug, Default)]
pub(crate) struct Gate {
    inside: AtomicUsize,
    empty: Notify,
}

/// A call inside. It is out when this is dropped.
pub(crate) struct Pass<G: Deref<Target = Gate>>(G);

impl Gate {
    /// `None` once it is shut.
    pub(crate) fn enter(&self) -> Option<Pass<&Self>> {
        Pass::new(self)
    }

    /// The same for a task of its own.
    pub(crate) fn enter_for_long(self: &Arc<Self>) -> Option<Pass<Arc<Self>>> {
        Pass::new(Arc::clone(self))
    }

    /// Shuts it and waits until nobody is inside.
    pub(crate) async fn shut(&self) {
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

impl<G: Deref<Target = Gate>> Pass<G> {
    fn new(gate: G) -> Option<Self> {
        let before = gate.inside.fetch_add(1, SeqCst);
        // A pass that is not given out is dropped, and so takes itself off again.
        let pass = Self(gate);
        (before & SHUT == 0).then_some(pass)
    }
}

impl<G: Deref<Target = Gate>> Drop for Pass<G> {
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
        let gate = Arc::new(Gate::default());
        let first = gate.enter().unwrap();
        let second = gate.enter_for_long().unwrap();
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
