//! Shared locks: each reader has a lock of its own, and all readers of a key have their group (docs/format.md, "Shared locks").

use super::{Store, Stored, counter_of};
use crate::text::error::Error;
use crate::values::fence::Fence;
use crate::values::key::{Key, readers_range};
use crate::values::labels::Labels;
use crate::values::lock_id::LockId;

impl Stored {
    pub(super) fn is_group(&self) -> bool {
        self.lock_id.is_group_of(self.key.as_str())
    }

    pub(super) fn is_reader(&self) -> bool {
        self.key.reader_id().is_some()
    }
}

impl Store {
    /// The lock of that name, if somebody holds it. The lock of a reader is held while its group is.
    pub(super) fn live(&self, name: &str, now_ms: i64) -> Option<&Stored> {
        let stored = self.locks.get(name)?;
        let has_group = |reader: &Stored| {
            let group = self.group(&reader.key, now_ms);
            group.is_some_and(|group| group.fence == reader.fence)
        };
        let is_held = stored.is_live(now_ms) && (!stored.is_reader() || has_group(stored));
        is_held.then_some(stored)
    }

    fn group(&self, key: &Key, now_ms: i64) -> Option<&Stored> {
        let held = self.live(key.base(), now_ms);
        held.filter(|held| held.is_group())
    }

    /// What keeps a lock from being granted, and whether readers do.
    pub(super) fn obstacle(&self, key: &Key, now_ms: i64) -> Option<(&Stored, bool)> {
        if key.reader_id().is_none() {
            let held = self.live(key.as_str(), now_ms)?;
            return Some((held, held.is_group()));
        }
        let alone = self.live(key.base(), now_ms);
        let alone = alone.filter(|held| !held.is_group());
        let gate = || self.live(key.gate().as_str(), now_ms);
        Some((alone.or_else(gate)?, false))
    }

    /// The fence of what is granted now: a reader that joins a group has the group's.
    pub(super) fn next_fence(&self, key: &Key, now_ms: i64) -> Result<Fence, Error> {
        let group = self.group(key, now_ms);
        if let Some(group) = group.filter(|_| key.reader_id().is_some()) {
            return Ok(group.fence);
        }
        let counter = self.fences.get(counter_of(key));
        Fence::after(counter.copied().unwrap_or_default(), now_ms)
    }

    /// Lets a reader into the group of its key, or makes one with its fence.
    pub(super) fn join(&mut self, reader: &Stored, now_ms: i64) {
        if self.group(&reader.key, now_ms).is_none() {
            self.clear(&reader.key, now_ms);
            let key = reader.key.base_key();
            let group = Stored {
                lock_id: LockId::group(key.as_str()),
                key,
                labels: Labels::default(),
                ..reader.clone()
            };
            self.write(group, now_ms);
        } else if let Some(group) = self.locks.get_mut(reader.key.base()) {
            group.expires_at_ms = group.expires_at_ms.max(reader.expires_at_ms);
        }
    }

    /// Removes the locks of all readers.
    pub(super) fn clear(&mut self, key: &Key, now_ms: i64) {
        for name in self.readers(key) {
            self.remove(&name, now_ms);
        }
    }

    fn readers(&self, key: &Key) -> Vec<String> {
        let [from, before] = readers_range(key.base());
        let readers = self.locks.range(from..before);
        readers.map(|(name, _)| name.clone()).collect()
    }

    /// Lets the group end with the last of its readers, or frees the key, because this one has left or ends at another time.
    pub(super) fn follow(&mut self, reader: &Key, now_ms: i64) {
        let group = self.group(reader, now_ms).map(|group| group.expires_at_ms);
        let Some(was) = group.filter(|_| reader.reader_id().is_some()) else {
            return;
        };
        let readers = self.readers(reader).into_iter();
        let ends = readers.filter_map(|name| Some(self.live(&name, now_ms)?.expires_at_ms));
        let (base, last) = (reader.base(), ends.max());
        match (self.locks.get_mut(base), last) {
            (Some(group), Some(end)) => {
                group.expires_at_ms = end;
                if end < was {
                    // Whoever waits knows a later end.
                    self.freed.insert(base.to_owned());
                }
            }
            _ => self.free(base, now_ms),
        }
    }
}
