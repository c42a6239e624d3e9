//! The time by which operations decide, and how far it is from Firestore's.

use std::sync::Arc;

use super::transport::{Documents, ServerTime};
use crate::text::error::{Error, ErrorKind};
use crate::values::time::{Clock, TIME_TOLERANCE_MS};

/// By how many milliseconds this machine's clock may differ from Firestore's: half of the tolerance, so that the clocks of
/// any two clients differ by no more than all of it.
pub const MOST_SKEW_MS: i64 = TIME_TOLERANCE_MS / 2;

impl ServerTime {
    /// How far that clock is from Firestore's at least, if it is too far. It is read once the answer is there, and
    /// Firestore's time may have been any between the request and that moment.
    fn skew(&self, clock: &dyn Clock) -> Option<Skew> {
        let own_ms = self.own_ms.unwrap_or_else(|| clock.now_ms());
        // Measured after the clock was read: a pause in between makes it less certain, not more.
        let waited_ms = i64::try_from(self.asked.elapsed().as_millis()).unwrap_or(i64::MAX);
        let most_ms = own_ms.saturating_sub(self.at_ms);
        let least_ms = most_ms.saturating_sub(waited_ms);
        let ahead_ms = match (least_ms, most_ms) {
            (ahead, _) if ahead > MOST_SKEW_MS => ahead,
            (_, behind) if behind < -MOST_SKEW_MS => behind,
            _ => return None,
        };
        Some(Skew { ahead_ms })
    }
}

/// How far this machine's clock is from Firestore's at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Skew {
    /// Milliseconds; negative if it is behind.
    pub(super) ahead_ms: i64,
}

impl Skew {
    /// The error for what would give or keep a lock by that clock. Once the clock is right, it will work.
    pub(super) fn into_error(self) -> Error {
        let Self { ahead_ms } = self;
        let side = if ahead_ms > 0 { "ahead of" } else { "behind" };
        Error::new(
            ErrorKind::ServiceUnavailable,
            format!(
                "this machine's clock is at least {} ms {side} Firestore's, and locks need one within {MOST_SKEW_MS} ms: synchronise it (chrony, systemd-timesyncd or the provider's own), or set ignoreClockSkew",
                ahead_ms.unsigned_abs()
            ),
        )
    }
}

/// The clock by which operations decide.
#[derive(Clone)]
pub(super) struct DecidingClock {
    pub(super) clock: Arc<dyn Clock>,
    /// Whether it decides however far it is from Firestore's.
    pub(super) ignores_skew: bool,
}

impl DecidingClock {
    pub(super) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// The time at which to give or keep a lock, after these documents were read in a transaction.
    pub(super) fn for_grant(&self, found: &Documents) -> Result<i64, Skew> {
        let now_ms = self.own_ms(found);
        match self.skew(found.server_time) {
            None => Ok(now_ms),
            Some((skew, _)) => Err(skew),
        }
    }

    /// The time at which to end a lock, likewise: Firestore's, if this clock is too far from it.
    pub(super) fn for_others(&self, found: &Documents) -> i64 {
        self.for_read(found.server_time, self.own_ms(found))
    }

    /// The time at which to say something of a lock that was read outside of a transaction; `own_ms` by this clock.
    pub(super) fn for_read(&self, server_time: Option<ServerTime>, own_ms: i64) -> i64 {
        let skew = self.skew(server_time);
        skew.map_or(own_ms, |(_, server_ms)| server_ms)
    }

    fn own_ms(&self, found: &Documents) -> i64 {
        found.read_at_ms.unwrap_or_else(|| self.clock.now_ms())
    }

    /// How far this clock is from the server's, if it is too far and that counts, and what the server's was.
    fn skew(&self, server_time: Option<ServerTime>) -> Option<(Skew, i64)> {
        let server = server_time.filter(|_| !self.ignores_skew)?;
        Some((server.skew(&*self.clock)?, server.at_ms))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use std::time::Instant;

    struct At(i64);

    impl Clock for At {
        fn now_ms(&self) -> i64 {
            self.0
        }
    }

    const NOW: i64 = 1_700_000_000_000;

    fn found(at_ms: i64, waited_ms: u64, own_ms: Option<i64>) -> Documents {
        let asked = Instant::now() - Duration::from_millis(waited_ms);
        Documents {
            server_time: Some(ServerTime {
                at_ms,
                asked,
                own_ms,
            }),
            ..Documents::default()
        }
    }

    fn clock(ignores_skew: bool) -> DecidingClock {
        DecidingClock {
            clock: Arc::new(At(NOW)),
            ignores_skew,
        }
    }

    #[test]
    fn the_servers_time_lies_between_the_request_and_the_answer() {
        let ahead = |at_ms, waited_ms| {
            let refused = clock(false).for_grant(&found(at_ms, waited_ms, None));
            refused.err().map(|skew| skew.ahead_ms)
        };
        for (server_ms, waited_ms) in [(NOW, 0), (NOW + 500, 0), (NOW - 500, 0), (NOW - 3000, 2500)]
        {
            assert_eq!(ahead(server_ms, waited_ms), None, "{server_ms} {waited_ms}");
        }
        assert_eq!(ahead(NOW + 501, 0), Some(-501));
        // However long the answer takes, the server's time cannot be later than it.
        assert_eq!(ahead(NOW + 501, 60_000), Some(-501));
        // The test's own time counts as waited.
        assert!(matches!(ahead(NOW - 30_000, 2000), Some(20_000..=28_000)));
        assert!(matches!(ahead(i64::MIN, 0), Some(1..)));
        assert_eq!(ahead(i64::MAX, 0), Some(NOW - i64::MAX));
    }

    #[test]
    fn a_wrong_clock_gives_nothing_and_ends_locks_by_the_servers() {
        let wrong = found(NOW - 30_000, 0, None);
        assert!(clock(false).for_grant(&wrong).is_err());
        assert_eq!(clock(false).for_others(&wrong), NOW - 30_000);
        assert_eq!(
            clock(false).for_read(wrong.server_time, NOW - 5),
            NOW - 30_000
        );
        let near = found(NOW + 20, 0, None);
        assert_eq!(clock(false).for_grant(&near), Ok(NOW));
        assert_eq!(clock(false).for_others(&near), NOW);
        assert_eq!(clock(false).for_read(near.server_time, NOW - 5), NOW - 5);
    }

    #[test]
    fn a_transports_own_clock_is_compared_and_skew_can_be_ignored() {
        let by_theirs = |own_ms| clock(false).for_grant(&found(NOW, 0, Some(own_ms)));
        assert!(by_theirs(NOW - 501).is_err() && by_theirs(NOW).is_ok());
        assert_eq!(
            clock(true).for_grant(&found(NOW - 30_000, 0, None)),
            Ok(NOW)
        );
        assert_eq!(clock(false).for_grant(&Documents::default()), Ok(NOW));
    }

    #[test]
    fn the_text_says_how_far_and_on_which_side() {
        let text = |ahead_ms| Skew { ahead_ms }.into_error().message().to_owned();
        assert!(text(30_000).contains("30000 ms ahead of Firestore's"));
        assert!(text(-501).contains("501 ms behind Firestore's"));
    }
}
