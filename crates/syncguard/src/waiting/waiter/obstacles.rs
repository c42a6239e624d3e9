//! What one who waits has stood in line for, and what the store has said of it: a wait that ends in vain names what it was about.

use std::time::Duration;

use tokio::time::Instant;

use crate::text::error::Busy;
use crate::values::batch::Batch;
use crate::values::claim::Claim;

/// The last word of the store on a lock that is held, and when that was.
pub(super) type Said = (Instant, Busy);

#[derive(Debug, Default)]
pub(super) struct Obstacles {
    /// Each key once.
    met: Batch<Obstacle>,
}

#[derive(Debug)]
struct Obstacle {
    /// The key that is wanted; of slots, that of all.
    key: String,
    stood: Duration,
    said: Option<Said>,
}

impl Obstacles {
    /// It has stood in line for what that claim wants since that time.
    pub(super) fn stood(&mut self, claim: Option<&Claim>, since: Instant) {
        if let Some(claim) = claim {
            self.of(claim).stood += since.elapsed();
        }
    }

    /// The store has said that of the lock which that claim wants.
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

    /// What it has stood in line for longest; without having stood anywhere, what the store has said last.
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

/// The time goes on while it is waited for.
fn as_of_now((told, mut busy): Said) -> Busy {
    let gone = told.elapsed();
    busy.free_in = busy.free_in.map(|free_in| free_in.saturating_sub(gone));
    busy
}
