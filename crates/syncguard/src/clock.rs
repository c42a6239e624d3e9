//! The time by which locks are held.
//!
//! On Linux and macOS the monotonic clock stands still while the machine is suspended, and the store's goes on. So the time of locks is
//! that of the monotonic clock, and how long the machine was suspended besides. Nobody can set either.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant as Awake};

use tokio::time::{Instant, sleep};

/// So long a sleep lasts at most before it is looked whether the machine was suspended meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The time of locks: that of tokio, and how long the machine was suspended since this process began to look.
pub fn now() -> Instant {
    Instant::now() + suspended()
}

/// Which time of tokio that is, if the machine is not suspended any more.
pub(crate) fn of_tokio(at: Instant) -> Instant {
    at.checked_sub(suspended()).unwrap_or(at)
}

/// Sleeps until that time of locks.
pub(crate) async fn sleep_until(at: Instant) {
    loop {
        let left = at.saturating_duration_since(now());
        if left.is_zero() {
            return;
        }
        sleep(left.min(LONGEST_SLEEP)).await;
    }
}

/// It never becomes less.
fn suspended() -> Duration {
    /// When this process looked first, by both clocks.
    static START: LazyLock<Option<(Awake, Duration)>> = LazyLock::new(|| {
        let awake = Awake::now();
        Some((awake, continuous()?))
    });
    static LONGEST_MS: AtomicU64 = AtomicU64::new(0);
    let Some((awake, start)) = *START else {
        return Duration::ZERO;
    };
    let past = continuous().unwrap_or(start).saturating_sub(start);
    // Read last: whatever goes by between the two is no suspension.
    let suspended = past.saturating_sub(awake.elapsed());
    let ms = u64::try_from(suspended.as_millis()).unwrap_or_default();
    Duration::from_millis(LONGEST_MS.fetch_max(ms, SeqCst).max(ms))
}

/// A clock that goes on while the machine is suspended. `None` where the monotonic one does: on Windows that is
/// `QueryPerformanceCounter`, which counts the time in a sleep state (Microsoft, "Acquiring high-resolution time stamps").
fn continuous() -> Option<Duration> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let id = rustix::time::ClockId::Boottime;
    // The monotonic one of Rust is CLOCK_UPTIME_RAW there (clock_gettime(3) of macOS has both).
    #[cfg(target_vendor = "apple")]
    let id = rustix::time::ClockId::Monotonic;
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    {
        let time = rustix::time::clock_gettime(id);
        let seconds = u64::try_from(time.tv_sec).ok()?;
        Some(Duration::new(seconds, u32::try_from(time.tv_nsec).ok()?))
    }
    #[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
    None
}
