//! Operations on several locks. Outside of a cluster they take one script.
//!
//! In a cluster, each shard takes a script of its own. All who acquire take the shards one after the other in the same order. If a
//! lock in one of them is held, the locks that were granted before are freed before the answer is given.

use std::collections::BTreeMap;

use super::acquire_all::{self, StepOutcome};
use crate::asking::outcome::{Absence, AcquireOutcome, ExtendOutcome, Grant, ReleaseOutcome};
use crate::asking::request::{AcquireRequest, Extension};
use crate::race::Race;
use crate::redis::backend::Runner;
use crate::text::error::Error;
use crate::values::batch::Batch;
use crate::values::labels::Labels;
use crate::values::lock_id::LockId;

impl Runner {
    pub(super) async fn acquire_several(
        &self,
        request: &AcquireRequest,
    ) -> Result<AcquireOutcome, Error> {
        let is_strict = self.is_strict();
        match self
            .acquire_in_steps(request, self.declaring.is_strict())
            .await
        {
            Err(error) if self.declaring.learns_from(is_strict, &error) => {
                self.acquire_in_steps(request, true).await
            }
            outcome => outcome,
        }
    }

    async fn acquire_in_steps(
        &self,
        request: &AcquireRequest,
        declares_slots: bool,
    ) -> Result<AcquireOutcome, Error> {
        let claims: Vec<_> = request.claims.iter().collect();
        let mut steps = Vec::new();
        // All plans are made first, so that wrong names are refused before anything is acquired.
        for places in self.places(claims.iter().map(|claim| &claim.lock_id)) {
            let claims = chosen(&claims, &places);
            let fence_ttl_ms = self.fence_ttl_ms();
            let plan =
                acquire_all::plan(&self.names, request, &claims, fence_ttl_ms, declares_slots)?;
            steps.push((places, claims, plan.replicated(self.replication)));
        }
        let (mut new, mut held) = (Vec::new(), Vec::new());
        for (places, claims, plan) in steps {
            let is_first = new.is_empty() && held.is_empty();
            // Only the first step counts as the sending: while a later one waits for a connection, locks of the first may be
            // granted already, and their TTL runs.
            let plan = match is_first {
                true => plan.noted_in(&request.sending),
                false => plan,
            };
            let reply = self.run(plan).await;
            match reply.and_then(|reply| acquire_all::outcome(&claims, &reply)) {
                Ok(StepOutcome::Granted {
                    grants,
                    is_repeated,
                }) => {
                    let taken = if is_repeated { &mut held } else { &mut new };
                    taken.extend(places.into_iter().zip(grants));
                }
                Ok(StepOutcome::Locked(index, free_in, labels, is_shared)) => {
                    let claim = places.get(index).copied().unwrap_or_default();
                    let free_in = Some(free_in);
                    let locked = AcquireOutcome::Locked {
                        claim,
                        free_in,
                        labels,
                        is_shared,
                    };
                    return self.given_back(&new, Ok(locked)).await;
                }
                Err(error) => return self.given_back(&new, Err(error)).await,
            }
        }
        if let Some((claim, _)) = held.first().filter(|_| !new.is_empty()) {
            // Some claims have locks from an earlier call of this acquisition, and others had none. The earlier ones may have
            // ended and been taken by others meanwhile, so they stand in the way, and the new ones are given back.
            let (claim, free_in) = (*claim, None);
            let locked = AcquireOutcome::Locked {
                claim,
                free_in,
                labels: Labels::default(),
                is_shared: false,
            };
            return self.given_back(&new, Ok(locked)).await;
        }
        let mut taken = if held.is_empty() { new } else { held };
        taken.sort_by_key(|(place, _)| *place);
        let grants: Batch<_> = taken.into_iter().map(|(_, grant)| grant).collect();
        for (claim, grant) in claims.iter().zip(&grants) {
            let lock_key = self.names.granted_lock_key(claim, grant)?;
            self.known.learn(&grant.lock_id, &lock_key);
        }
        Ok(AcquireOutcome::Acquired(grants))
    }

    /// Frees the locks that were granted before the acquisition failed, and gives the answer. If they cannot be freed now, the outcome
    /// is unknown, and whoever has made the attempt undoes it.
    async fn given_back(
        &self,
        taken: &[(usize, Grant)],
        answer: Result<AcquireOutcome, Error>,
    ) -> Result<AcquireOutcome, Error> {
        if taken.is_empty() {
            return answer;
        }
        let lock_ids: Vec<_> = taken
            .iter()
            .map(|(_, grant)| grant.lock_id.clone())
            .collect();
        match Box::pin(self.release(&lock_ids)).await {
            Ok(_) => answer,
            Err(failure) => Err(answer.err().unwrap_or(failure).with_unknown_outcome()),
        }
    }

    pub(super) async fn release_several(
        &self,
        lock_ids: &[LockId],
    ) -> Result<Batch<ReleaseOutcome>, Error> {
        let all: Vec<_> = lock_ids.iter().collect();
        let mut race = Race::new();
        for places in self.places(lock_ids) {
            let lock_ids = chosen(&all, &places);
            race.start(async move { (places, self.release_all(&lock_ids).await) });
        }
        let absent = ReleaseOutcome::Absent(Absence::NotFound);
        let mut outcomes = Batch::from_elem(absent, lock_ids.len());
        let (mut failure, mut is_any_done) = (None, false);
        while let Some((places, answer)) = race.next().await {
            match answer {
                Ok(answers) => {
                    is_any_done = true;
                    for (place, outcome) in places.into_iter().zip(answers) {
                        if let Some(at) = outcomes.get_mut(place) {
                            *at = outcome;
                        }
                    }
                }
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            None => Ok(outcomes),
            // Some may have been freed, and are not there any more when all are released again.
            Some(error) if is_any_done => Err(error.with_unknown_outcome()),
            Some(error) => Err(error),
        }
    }

    /// Makes what these lock ids own end later.
    pub(in crate::redis) async fn extend(
        &self,
        extension: &Extension,
    ) -> Result<ExtendOutcome, Error> {
        if let [lock_id] = extension.lock_ids.as_slice() {
            return self.extend_all(&[lock_id], extension).await;
        }
        let all: Vec<_> = extension.lock_ids.iter().collect();
        let mut race = Race::new();
        for places in self.places(&extension.lock_ids) {
            let lock_ids = chosen(&all, &places);
            race.start(async move { (places, self.extend_all(&lock_ids, extension).await) });
        }
        let (mut first_end, mut first_absent) = (i64::MAX, None);
        let mut failure = None;
        while let Some((places, answer)) = race.next().await {
            match answer {
                Ok(ExtendOutcome::Extended { expires_at_ms }) => {
                    first_end = first_end.min(expires_at_ms);
                }
                Ok(ExtendOutcome::Absent { lock, absence }) => {
                    let lock = places.get(lock).copied().unwrap_or_default();
                    if first_absent.is_none_or(|(first, _)| lock < first) {
                        first_absent = Some((lock, absence));
                    }
                }
                Err(error) => failure = Some(error),
            }
        }
        match (first_absent, failure) {
            // Whatever became of the others: they do not hold all of them any more.
            (Some((lock, absence)), _) => Ok(ExtendOutcome::Absent { lock, absence }),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(ExtendOutcome::Extended {
                expires_at_ms: first_end,
            }),
        }
    }

    /// The places in a batch of those whose locks are together: in a cluster by shards, in their order; else all.
    fn places<'a>(&self, lock_ids: impl IntoIterator<Item = &'a LockId>) -> Vec<Vec<usize>> {
        let mut places: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (place, lock_id) in lock_ids.into_iter().enumerate() {
            let shard = self.names.is_sharded().then(|| lock_id.first_byte());
            places.entry(shard).or_default().push(place);
        }
        places.into_values().collect()
    }
}

/// Those of `all` at these places.
fn chosen<'a, T>(all: &[&'a T], places: &[usize]) -> Vec<&'a T> {
    let at = |place: &usize| all.get(*place).copied();
    places.iter().filter_map(at).collect()
}

#[cfg(test)]
mod tests;
