//! Remembers for which locks a waiter has stood in line, and what the store has said of them, so that the error of its wait can name the
//! obstacle.

use std::time::Duration;

use tokio::time::Instant;

use crate::text::error::Busy;
use crate::values::batch::Batch;
use crate::values::claim::Claim;

/// When the store last spoke of a lock that is held, and what it said.
pub(super) type Said = (Instant, Busy);

#[derive(Debug, Default)]
pub(super) struct Obstacles {
    /// The obstacles, each key once.
    met: Batch<Obstacle>,
}

#[derive(Debug)]
struct Obstacle {
    /// The wanted key. For slots, the key that all of them share.
    key: String,
    /// How long the waiter has stood in line for it.
    stood: Duration,
    said: Option<Said>,
}

impl Obstacles {
    /// Notes that the waiter has stood in line for the lock of this claim since `since`.
    pub(super) fn stood(&mut self, claim: Option<&Claim>, since: Instant) {
        if let Some(claim) = claim {
            self.of(claim).stood += since.elapsed();
        }
    }

    /// Notes what the store has said of the lock of this claim.
    pub(super) fn said(&mut self, claim: Option<&Claim>, (told, mut busy): Said) {
        let Some(claim) = claim else { return };
        busy.key = Some(claim.key.base().to_owned());
        self.of(claim).said = Some((told, busy));
    }

    /// What the store has said last.
    pub(super) fn last_said(&self) -> Option<Said> {
        let said = self.met.iter().filter_map(|met| met.said.as_ref());
        said.max_by_key(|(told, _)| *told).cloned()
    }

    /// The lock for which the waiter has stood in line longest. If it has stood nowhere, the one of which the store has spoken last.
    pub(super) fn longest(&self) -> Option<Busy> {
        let stood = self.met.iter().filter(|met| !met.stood.is_zero());
        let Some(longest) = stood.max_by_key(|met| met.stood) else {
            return self.last_said().map(as_of_now);
        };
        let unknown = || Busy {
            key: Some(longest.key.clone()),
            free_in: None,
            labels: Vec::new(),
        };
        Some(longest.said.clone().map_or_else(unknown, as_of_now))
    }

    fn of(&mut self, claim: &Claim) -> &mut Obstacle {
        let key = claim.key.base();
        let place = self.met.iter().position(|met| met.key == key);
        let place = place.unwrap_or_else(|| {
            self.met.push(Obstacle {
                key: key.to_owned(),
                stood: Duration::ZERO,
                said: None,
            });
            self.met.len() - 1
        });
        &mut self.met[place]
    }
}

/// What the store has said, less the time that has passed since.
fn as_of_now((told, mut busy): Said) -> Busy {
    let gone = told.elapsed();
    busy.free_in = busy.free_in.map(|free_in| free_in.saturating_sub(gone));
    busy
}
