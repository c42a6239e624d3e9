//! Connections that were lost, and who is told once there is another one.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::switches::{SwitchListener, Switches};
use crate::mutex::lock;

/// All are told at most so often: a server that ends each connection is not to be asked after everything each time.
const PAUSE: Duration = Duration::from_secs(1);

/// Connections to one server that were lost: ended by the server or by something on the way, or silent. Once there is another one,
/// another server may be behind the address, or the same one without what it had. Then all that is held is asked after, once for
/// all that were lost together.
#[derive(Default)]
pub(crate) struct Losses {
    switches: Arc<Switches>,
    known: Mutex<Known>,
}

#[derive(Default, Clone, Copy)]
struct Known {
    /// When the last one was lost, at the earliest.
    lost: Option<Instant>,
    /// When the last one was made.
    made: Option<Instant>,
    /// When all were told last.
    told: Option<Instant>,
}

impl Known {
    /// Whether one was lost of which nobody was told, and another one is there.
    fn is_untold(&self) -> bool {
        self.told < self.lost && self.lost < self.made
    }
}

impl Losses {
    /// Those of another server, of which the same are told.
    #[cfg(feature = "redis")]
    pub(crate) fn of_another(&self) -> Self {
        Self {
            switches: Arc::clone(&self.switches),
            known: Mutex::default(),
        }
    }

    /// Tells `listener` for as long as it lives.
    pub(crate) fn add(&self, listener: Weak<SwitchListener>) {
        self.switches.add(listener);
    }

    /// Notes that one was lost, nobody knows when after that time.
    pub(crate) fn lost(self: &Arc<Self>, since: Instant) {
        {
            let mut known = lock(&self.known);
            known.lost = known.lost.max(Some(since));
        }
        self.tell_of_losses();
    }

    /// Notes that there is a new one.
    pub(crate) fn made(self: &Arc<Self>) {
        self.made_after(Instant::now());
    }

    /// Notes that there is one that was there at that time or was made since.
    pub(crate) fn made_after(self: &Arc<Self>, since: Instant) {
        {
            let mut known = lock(&self.known);
            known.made = known.made.max(Some(since));
        }
        self.tell_of_losses();
    }

    fn tell_of_losses(self: &Arc<Self>) {
        let known = *lock(&self.known);
        match known.told.map(|told| told + PAUSE) {
            _ if !known.is_untold() => {}
            Some(at) if Instant::now() < at => {
                let losses = Arc::clone(self);
                tokio::spawn(async move {
                    sleep_until(at).await;
                    losses.tell_of_losses();
                });
            }
            _ => self.tell(),
        }
    }

    /// Tells all that another server may keep the locks from now on.
    pub(crate) fn tell(&self) {
        lock(&self.known).told = Some(Instant::now());
        self.switches.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use tokio::time::sleep;

    const MOMENT: Duration = Duration::from_millis(1);

    struct Scene {
        losses: Arc<Losses>,
        told: Arc<AtomicUsize>,
        _listener: Arc<SwitchListener>,
    }

    impl Scene {
        fn new() -> Self {
            let (losses, told) = (Arc::<Losses>::default(), Arc::<AtomicUsize>::default());
            let count = Arc::clone(&told);
            let listener: Arc<SwitchListener> = Arc::new(move || {
                count.fetch_add(1, SeqCst);
            });
            losses.add(Arc::downgrade(&listener));
            losses.made();
            Self {
                losses,
                told,
                _listener: listener,
            }
        }

        /// How often all have been told, a moment later.
        async fn told(&self) -> usize {
            sleep(MOMENT).await;
            self.told.load(SeqCst)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_are_lost_together_are_told_of_once() {
        let t = Scene::new();
        let begun = Instant::now();
        for _ in 0..10 {
            t.losses.lost(Instant::now());
        }
        assert_eq!(t.told().await, 0, "there is none yet");
        for _ in 0..10 {
            t.losses.made();
        }
        assert_eq!(t.told().await, 1);
        sleep(PAUSE).await;
        // Found out later: its last sign of life is older.
        t.losses.lost(begun);
        t.losses.made();
        assert_eq!(t.told().await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_replaced_before_it_is_found_lost_is_told_of_at_once() {
        let t = Scene::new();
        let silent_since = Instant::now();
        sleep(PAUSE).await;
        t.losses.made();
        assert_eq!(t.told().await, 0);
        t.losses.lost(silent_since + MOMENT);
        assert_eq!(t.told().await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_ends_every_connection_is_not_asked_again_and_again() {
        let t = Scene::new();
        for _ in 0..100 {
            t.losses.lost(Instant::now());
            sleep(MOMENT).await;
            t.losses.made();
        }
        assert_eq!(t.told().await, 1);
        sleep(PAUSE).await;
        assert_eq!(t.told().await, 2, "the last ones are not forgotten");
        sleep(PAUSE * 2).await;
        assert_eq!(t.told().await, 2);
    }
}
