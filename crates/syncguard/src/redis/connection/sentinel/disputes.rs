//! Remembers for the whole process since when the Sentinels of a set disagree, so that no backend waits for them as long as an
//! earlier one has.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::super::term::{Address, Named};
use crate::mutex::lock;
use crate::redis::config::RedisSentinel;

/// A disagreement that nobody has met for so long begins anew.
const FORGOTTEN: Duration = Duration::from_secs(3_600);

/// Which Sentinels they are: their addresses in order, and the name of the primary.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct SetId {
    nodes: Vec<Address>,
    name: String,
}

impl SetId {
    pub(super) fn of(set: &RedisSentinel) -> Self {
        let mut nodes = set.nodes.clone();
        nodes.sort_unstable();
        let name = set.name.clone();
        Self { nodes, name }
    }
}

/// The last disagreement of a set.
struct Noted {
    /// The server that some Sentinels name and nobody can reach.
    latest: Named,
    since: Instant,
    /// When it was met the last time.
    met: Instant,
}

/// Since when some Sentinels of the set name `latest`, which nobody can reach, while most name another server. Notes that it is so now.
pub(super) fn since(set: &SetId, latest: &Named) -> Instant {
    static NOTED: LazyLock<Mutex<HashMap<SetId, Noted>>> = LazyLock::new(Mutex::default);
    let now = Instant::now();
    let mut noted = lock(&NOTED);
    noted.retain(|_, noted| now.saturating_duration_since(noted.met) < FORGOTTEN);
    match noted.get_mut(set) {
        Some(noted) if noted.latest == *latest => {
            noted.met = now;
            noted.since
        }
        _ => {
            let new = Noted {
                latest: latest.clone(),
                since: now,
                met: now,
            };
            noted.insert(set.clone(), new);
            now
        }
    }
}
