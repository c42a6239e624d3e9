//! A store of one row, and what can be done to it.

use std::io;
use std::time::Duration;

use syncguard::ErrorKind;

use crate::clock::Clock;
use crate::history::Moment;
use crate::proxy::Proxy;
use crate::record::now;
use crate::store_faults::Gap;
use crate::task::Work;
use crate::workers::Workers;

/// A store that a row works on.
pub(crate) trait Store {
    /// What a proxy says that has lost the server, in rows about that.
    const PROXY_ERROR: &'static [u8] = b"";

    /// Where it listens, if a proxy can stand before it.
    fn port(&self) -> Option<u16> {
        None
    }

    /// Where workers find it; through a proxy, if there is one at that port.
    fn url(&self, proxy: Option<u16>) -> String;

    /// What is there that must not be, once nobody works any more and all locks have ended.
    fn left(&mut self) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }
}

/// A store while a row is played.
pub(crate) struct Stage<S> {
    pub(crate) store: S,
    /// Before the store, in rows about networks.
    pub(crate) proxy: Option<Proxy>,
    /// That of the store or of the workers, in rows about clocks.
    pub(crate) clock: Option<Clock>,
    pub(crate) random: fastrand::Rng,
    /// When the store has forgotten something, as it may.
    pub(crate) gaps: Vec<Gap>,
}

impl<S> Stage<S> {
    pub(crate) fn proxy(&self) -> io::Result<&Proxy> {
        let proxy = self.proxy.as_ref();
        proxy.ok_or_else(|| io::Error::other("a row without a proxy"))
    }

    pub(crate) fn clock(&mut self) -> io::Result<&mut Clock> {
        let clock = self.clock.as_mut();
        clock.ok_or_else(|| io::Error::other("a row without a clock"))
    }

    /// A random time.
    pub(crate) fn time(&mut self, ms: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.random.u64(ms))
    }

    /// Lets things be for a random time.
    pub(crate) fn pause(&mut self, ms: std::ops::Range<u64>) {
        std::thread::sleep(self.time(ms));
    }

    /// The store may have forgotten locks since then, and counters of fences.
    pub(crate) fn has_lost(&mut self, from: Moment) {
        self.gaps.push(Gap { from, to: now() });
    }
}

impl<S: Store> Stage<S> {
    /// Another server is the store's from now on, behind the address where the one before was since then. It knows nothing.
    pub(crate) fn has_moved(&mut self, from: Moment) -> io::Result<()> {
        let port = self.store.port();
        let port = port.ok_or_else(|| io::Error::other("a store without an address"))?;
        self.proxy()?.move_to(port);
        self.has_lost(from);
        Ok(())
    }
}

/// Harms something, and mends it.
pub(crate) type Strike<S> = fn(&mut Stage<S>, &mut Workers<'_>) -> io::Result<()>;

/// One thing that goes wrong with a store, and what must hold.
pub(crate) struct Act<S: Store> {
    pub(crate) store: &'static str,
    pub(crate) name: &'static str,
    pub(crate) start: fn(Option<&Clock>) -> io::Result<S>,
    pub(crate) strike: Strike<S>,
    pub(crate) has_proxy: bool,
    pub(crate) clock: ClockOf,
    /// What users may see.
    pub(crate) errors: &'static [ErrorKind],
    /// How long after it is mended all processes work again.
    pub(crate) back_within: Duration,
    /// How long it takes at most, with the mending.
    pub(crate) lasts: Duration,
    pub(crate) work: Work,
    pub(crate) keys: usize,
}

/// Whose clock can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClockOf {
    Nobody,
    /// The store reads it.
    Store,
    /// The workers read it, and the store does not.
    Workers,
    /// The workers read it, and the store has no other.
    Machine,
    /// Each worker has its own, which is not set.
    EachWorker,
    /// Every second worker is on a machine that is suspended: its monotonic clock stands still meanwhile.
    SuspendedWorkers,
}

/// What users see while a store or the way to it is down: operations fail, or their time is over.
pub(crate) const DOWN: &[ErrorKind] = &[ErrorKind::ServiceUnavailable, ErrorKind::NetworkTimeout];

impl<S: Store> Act<S> {
    pub(crate) fn new(
        store: &'static str,
        name: &'static str,
        start: fn(Option<&Clock>) -> io::Result<S>,
        strike: Strike<S>,
    ) -> Self {
        Self {
            store,
            name,
            start,
            strike,
            has_proxy: false,
            clock: ClockOf::Nobody,
            errors: &[],
            back_within: Duration::from_secs(3),
            lasts: Duration::from_secs(3),
            work: Work::Anything,
            keys: 60,
        }
    }

    /// Behind a proxy.
    pub(crate) fn behind_proxy(self) -> Self {
        Self {
            has_proxy: true,
            ..self
        }
    }

    pub(crate) fn clock(self, clock: ClockOf) -> Self {
        Self { clock, ..self }
    }

    pub(crate) fn seen(self, errors: &'static [ErrorKind]) -> Self {
        Self { errors, ..self }
    }

    pub(crate) fn back_within_ms(self, ms: u64) -> Self {
        Self {
            back_within: Duration::from_millis(ms),
            ..self
        }
    }

    pub(crate) fn lasts_ms(self, ms: u64) -> Self {
        Self {
            lasts: Duration::from_millis(ms),
            ..self
        }
    }

    /// With more keys: where many operations have an unknown outcome, few of them should be on one.
    pub(crate) fn spread(self) -> Self {
        Self { keys: 600, ..self }
    }

    pub(crate) fn turns(self) -> Self {
        Self {
            work: Work::Turns,
            ..self
        }
    }
}
