//! What is known of several hosts, of which one is the primary.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::era::Era;
use super::session::Session;
use crate::mutex::lock;
use crate::postgres::config::Host;

/// When they are asked again without anybody waiting for it, so that a busy pool never waits.
const RENEW: Duration = Duration::from_millis(500);

/// What is known of several hosts.
pub(super) struct Primaries {
    pub(super) hosts: Vec<Seen>,
    /// When the hosts were asked last.
    pub(super) asked: Mutex<Option<Instant>>,
    /// When the last look began that has ended.
    pub(super) known: watch::Sender<Option<Instant>>,
    /// Whether all hosts answered last time. Nobody waits for one that does not.
    pub(super) is_answered: AtomicBool,
}

/// What is known of one host.
#[derive(Default)]
pub(super) struct Seen {
    /// Of a host that accepted writes when it was heard last. It stays while the host cannot be reached.
    pub(super) era: Mutex<Option<Era>>,
    /// The session to ask over.
    pub(super) session: tokio::sync::Mutex<Option<Session>>,
    /// It is not asked before.
    pub(super) pause: Mutex<Option<Instant>>,
}

impl Primaries {
    /// For the hosts of which one is to accept writes.
    pub(super) fn of(hosts: &[Host]) -> Self {
        Self {
            hosts: hosts.iter().map(|_| Seen::default()).collect(),
            asked: Mutex::new(None),
            known: watch::Sender::new(None),
            is_answered: AtomicBool::new(true),
        }
    }

    /// Whether a host is known that was promoted after that.
    pub(super) fn has_later(&self, era: &Era) -> bool {
        let mut hosts = self.hosts.iter();
        hosts.any(|host| {
            let other = lock(&host.era);
            other.as_ref().is_some_and(|other| era.is_before(other))
        })
    }

    /// Notes what was found at a host. Gives whether that shows that it has been promoted since another one was the primary.
    pub(super) fn note(&self, host: usize, found: Option<&Era>) -> bool {
        let Some(seen) = self.hosts.get(host) else {
            return false;
        };
        let is_new = {
            let mut known = lock(&seen.era);
            let is_new = known.as_ref() != found;
            *known = found.cloned();
            is_new
        };
        let is_later = |other: &Seen| {
            let other = lock(&other.era);
            found
                .zip(other.as_ref())
                .is_some_and(|(found, other)| other.is_before(found))
        };
        is_new && self.hosts.iter().any(is_later)
    }

    /// Whether it is time to ask. If so, the caller does.
    pub(super) fn is_due(&self) -> bool {
        let mut asked = lock(&self.asked);
        let is_due = asked.is_none_or(|asked| asked.elapsed() >= RENEW);
        if is_due {
            *asked = Some(Instant::now());
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promotion_is_seen_once() {
        let host = |name: &str| Host {
            name: name.to_owned(),
            port: 5432,
        };
        let primaries = Primaries::of(&[host("a"), host("b"), host("c")]);
        let [first, second, third] = [1, 2, 3].map(|timeline| Era::at("one", timeline));
        assert!(!primaries.note(0, Some(&first)));
        assert!(!primaries.note(1, None), "a standby");
        assert!(primaries.note(1, Some(&second)));
        assert!(!primaries.note(1, Some(&second)));
        assert!(!primaries.note(0, Some(&first)), "the former one");
        assert!(!primaries.note(2, Some(&Era::at("another", 9))));
        assert!(primaries.note(2, Some(&third)));
        assert!(!primaries.note(0, None), "it follows again");
    }
}
