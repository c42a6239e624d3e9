//! Tells listeners when another server may have taken over.

use std::sync::{Mutex, Weak};

use crate::mutex::lock;

/// Called each time that another server has become the primary, or that a lost connection has been made again.
pub type SwitchListener = dyn Fn() + Send + Sync;

/// The listeners.
#[derive(Default)]
pub(crate) struct Switches(Mutex<Vec<Weak<SwitchListener>>>);

impl Switches {
    /// Adds a listener, which is told for as long as it lives.
    pub(crate) fn add(&self, listener: Weak<SwitchListener>) {
        let mut listeners = lock(&self.0);
        listeners.retain(|known| known.strong_count() > 0);
        listeners.push(listener);
    }

    pub(crate) fn tell(&self) {
        let listeners = lock(&self.0).clone();
        for listener in listeners.iter().filter_map(Weak::upgrade) {
            listener();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[test]
    fn listeners_are_told_while_they_live() {
        let (switches, count) = (Switches::default(), Arc::new(AtomicUsize::new(0)));
        let listener = || {
            let count = Arc::clone(&count);
            let listener: Arc<SwitchListener> = Arc::new(move || {
                count.fetch_add(1, SeqCst);
            });
            switches.add(Arc::downgrade(&listener));
            listener
        };
        let (first, second) = (listener(), listener());
        switches.tell();
        assert_eq!(count.load(SeqCst), 2);
        drop(first);
        switches.tell();
        assert_eq!(count.load(SeqCst), 3);
        drop(second);
        let _third = listener();
        assert_eq!(lock(&switches.0).len(), 1, "the others are forgotten");
    }
}
