//! Makes the names under which Redis keeps locks.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use super::hash_slots;
use crate::asking::outcome::Grant;
use crate::text::error::Error;
use crate::values::claim::{Claim, ClaimKind};
use crate::values::key::{Key, KeySpace, nfc, split_reader};
use crate::values::lock_id::LockId;

/// The bounds of a Redis key's name: the longest one, and how much of that is left free (docs/format.md, "Storage keys"). Each
/// backend adds a prefix of its own.
pub const KEYS: KeySpace<'static> = KeySpace {
    prefix: "",
    limit_bytes: 1000,
    reserve_bytes: 26,
};

/// A prefix that belongs to the client and not to the locks, such as ioredis' option `keyPrefix`. The client puts it before every
/// key that is sent, and before no argument.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ClientPrefix {
    /// There is none.
    #[default]
    None,
    /// This prefix. We put it before the keys.
    Ours(String),
    /// The client puts a prefix before the keys. We do not know it, and it may be empty.
    Theirs,
}

/// The names of locks (docs/format.md, "Redis Cluster").
#[derive(Debug, Clone)]
pub struct Names {
    key_prefix: String,
    client_prefix: ClientPrefix,
    layout: Layout,
}

/// How the names of one lock come into the same hash slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// One server has all names, so there are no hash slots.
    Standalone,
    /// The prefix has a hash tag, so all locks are in its hash slot.
    OneHashSlot,
    /// Each lock is in one of 256 shards, which have a hash tag each.
    Sharded,
}

impl Names {
    /// Names that start with `key_prefix` and a colon.
    ///
    /// # Errors
    /// `InvalidArgument` for a prefix that is too long, or with which the removal of locks could
    /// meet a fence counter.
    pub fn new(key_prefix: &str, client_prefix: ClientPrefix) -> Result<Self, Error> {
        let bare = key_prefix.trim_end_matches(':');
        if key_prefix.contains("fence:") || bare.ends_with("fence") {
            return Err(Error::invalid(
                "keyPrefix must not contain \"fence:\" or end in \"fence\": fence counters are kept there",
            ));
        }
        let names = Self {
            key_prefix: key_prefix.to_owned(),
            client_prefix,
            layout: Layout::Standalone,
        };
        space(&names.key_prefix).index_key(SOME_ID)?;
        Ok(names)
    }

    /// Names in a Redis Cluster, where those of one lock share a hash slot.
    ///
    /// # Errors
    /// As [`new`](Self::new), and for prefixes with braces that put the names of a lock in different hash slots.
    pub fn in_cluster(key_prefix: &str, client_prefix: ClientPrefix) -> Result<Self, Error> {
        let mut names = Self::new(key_prefix, client_prefix)?;
        names.layout = match hash_slots::hash_tag(&names.before(key_prefix)) {
            Some(_) => Layout::OneHashSlot,
            None => Layout::Sharded,
        };
        let start = names.start(0);
        let full = names.before(&start);
        if hash_slots::hash_tag(&full)
            .is_none_or(|tag| names.is_sharded() && !full.ends_with(&format!("{tag}}}")))
        {
            return Err(Error::invalid(
                "keyPrefix or clientKeyPrefix has a } that is not part of a hash tag: in a redis cluster, the \
                 parts of a lock would be in different hash slots",
            ));
        }
        // Scripts build this name, and cannot shorten it.
        if !space(&start).index_key(SOME_ID)?.ends_with(SOME_ID) {
            return Err(Error::invalid("keyPrefix is too long for a redis cluster"));
        }
        Ok(names)
    }

    pub(super) fn client_prefix(&self) -> &ClientPrefix {
        &self.client_prefix
    }

    /// Whether scripts may touch only the keys that they are given.
    pub(super) fn is_in_cluster(&self) -> bool {
        self.layout != Layout::Standalone
    }

    pub(super) fn is_sharded(&self) -> bool {
        self.layout == Layout::Sharded
    }

    /// The shard of a lock: the first byte of SHA-256 over the name that the lock has on a standalone server. A slot's name counts
    /// without its number, and a reader's as that of its key, so that all of them are in one shard. `None` if there are no shards.
    fn shard(&self, key: &Key) -> Result<Option<u8>, Error> {
        if !self.is_sharded() {
            return Ok(None);
        }
        let name = unnumbered(&space(&self.key_prefix), key)?;
        Ok(Some(Sha256::digest(name.as_bytes())[0]))
    }

    /// The shard of the lock that this claim asks for.
    pub(super) fn claimed_shard(&self, claim: &Claim) -> Result<Option<u8>, Error> {
        self.shard(&one_of(claim))
    }

    /// Whether a lock of this name can have this lock id. In shards, the id names the shard, too.
    pub(super) fn fits(&self, lock_key: &str, lock_id: &LockId) -> bool {
        !self.is_sharded() || lock_key.starts_with(&*self.start(lock_id.first_byte()))
    }

    /// The beginning of all names in a shard, without the colon that follows.
    pub(super) fn start(&self, shard: u8) -> Cow<'_, str> {
        if !self.is_sharded() {
            return Cow::Borrowed(&self.key_prefix);
        }
        Cow::Owned(match self.key_prefix.trim_end_matches(':') {
            "" => format!("{{{shard:02x}}}"),
            prefix => format!("{{{prefix}:{shard:02x}}}"),
        })
    }

    /// The beginning that all names of this lock share.
    pub(super) fn start_of<'a>(&'a self, lock_key: &'a str) -> &'a str {
        if !self.is_sharded() {
            return &self.key_prefix;
        }
        let length = self.start(0).len();
        lock_key.get(..length).unwrap_or_default()
    }

    /// Puts the client's prefix before `name`, as far as we know it. The result is the name in the server, unless only the client
    /// knows the prefix.
    pub(super) fn before(&self, name: &str) -> String {
        match &self.client_prefix {
            ClientPrefix::Ours(prefix) => prefix.clone() + name,
            ClientPrefix::None | ClientPrefix::Theirs => name.to_owned(),
        }
    }

    /// The name of a lock, without the client's prefix.
    pub(super) fn lock_key(&self, key: &Key) -> Result<String, Error> {
        let start = self.start(self.shard(key)?.unwrap_or_default());
        let name = space(&start).lock_key(key)?;
        if is_reserved(&start, &name) {
            return Err(Error::invalid(
                "Key is reserved: with this keyPrefix, its name is that of a fence counter or of an index entry",
            ));
        }
        Ok(name)
    }

    /// Three texts for a claim: the name of the lock and that of its fence counter, both without the client's prefix, and the lock's
    /// key. A claim of slots gets all three without the number at their end, which the script appends for each slot that it tries.
    pub(super) fn claimed<'a>(&self, claim: &'a Claim) -> Result<[Cow<'a, str>; 3], Error> {
        let key = one_of(claim);
        let lock_key = self.lock_key(&key)?;
        if !self.fits(&lock_key, &claim.lock_id) {
            return Err(Error::invalid(
                "lockId is of another shard than the key: in a redis cluster, Backend::prepare makes it fit",
            ));
        }
        let fence_key = self.fence_key(&lock_key)?;
        Ok(match key {
            Cow::Borrowed(key) => [lock_key.into(), fence_key.into(), key.as_str().into()],
            Cow::Owned(first) => {
                [lock_key, fence_key, first.as_str().to_owned()].map(|mut text| {
                    text.pop();
                    text.into()
                })
            }
        })
    }

    /// Three names that a shared lock needs beside that of its key, without the client's prefix: the reader's own lock, the sorted set with the
    /// end of each reader, and the gate, which whoever waits until all have left takes.
    pub(super) fn beside_shared(&self, claim: &Claim) -> Result<[String; 3], Error> {
        let readers = readers_key(&self.lock_key(&claim.key)?);
        let reader = self.lock_key(&claim.key.reader(&claim.lock_id))?;
        let gate = self.lock_key(&claim.key.gate())?;
        if !self.fits(&gate, &claim.lock_id) {
            return Err(Error::invalid(
                "keyPrefix is too long for a shared lock on this key: in a redis cluster, the parts of the lock would be in \
                 different shards",
            ));
        }
        Ok([reader, readers, gate])
    }

    /// The lock id of the group of the key. In shards, its first byte names the shard, as in every lock id.
    pub(super) fn group_id(&self, claim: &Claim) -> LockId {
        let group = LockId::group(claim.key.as_str());
        match self.is_sharded() {
            true => group.with_first_byte(claim.lock_id.first_byte()),
            false => group,
        }
    }

    /// The name of the lock that was granted, without the client's prefix.
    pub(super) fn granted_lock_key(&self, claim: &Claim, grant: &Grant) -> Result<String, Error> {
        self.lock_key(&grant.key_of(claim))
    }

    /// The channel on which the server tells that a lock was freed. All slots of a key share one channel.
    pub(super) fn channel(&self, claim: &Claim) -> Result<String, Error> {
        let key = one_of(claim);
        let start = self.start(self.shard(&key)?.unwrap_or_default());
        Ok(self.before(&unnumbered(&space(&start), &key)?))
    }

    /// The name of a lock [as the server knows it](Self::before).
    pub(super) fn stored_lock_key(&self, key: &Key) -> Result<String, Error> {
        Ok(self.before(&self.lock_key(key)?))
    }

    /// The name of the fence counter that belongs to a lock's name, without the client's prefix.
    pub(super) fn fence_key(&self, lock_key: &str) -> Result<String, Error> {
        space(self.start_of(lock_key)).fence_key(lock_key)
    }

    /// The name of a key's mark, without the client's prefix.
    pub(super) fn mark_key_of(&self, key: &Key) -> Result<String, Error> {
        Ok(mark_key(&self.fence_key(&self.lock_key(key)?)?))
    }

    /// The name of the index entry that leads from a lock id to its lock, without the client's prefix.
    pub(super) fn index_key(&self, lock_id: &LockId) -> Result<String, Error> {
        space(&self.start(lock_id.first_byte())).index_key(lock_id.as_str())
    }

    /// The name of the index entry that belongs to a lock's name. The lock id may be of any form, because another program may have
    /// stored it.
    pub(super) fn index_key_beside(
        &self,
        lock_key: &str,
        lock_id: Option<&str>,
    ) -> Result<Option<String>, Error> {
        let index_key = |lock_id| space(self.start_of(lock_key)).index_key(lock_id);
        lock_id.map(index_key).transpose()
    }
}

/// The name of the mark that belongs to a fence counter. No key can give another thing this name, because keys are normalized and
/// U+037E does not survive that. What it appends fits into the bytes that every name leaves free.
pub(super) fn mark_key(fence_key: &str) -> String {
    format!("{fence_key}\u{37e}done")
}

/// A text that is as long as a lock id.
const SOME_ID: &str = "0123456789012345678901";

/// Whether `name`, which begins with `start`, is or may become the name of a fence counter or of an index entry. A lock of that
/// name would be in the way of another one for ever.
fn is_reserved(start: &str, name: &str) -> bool {
    let start = start.trim_end_matches(':');
    let Some(rest) = after(start, name) else {
        return false;
    };
    let is_counter = |lock| after(&nfc(start), lock).is_some_and(|key| !key.is_empty());
    rest.strip_prefix("fence:").is_some_and(is_counter)
        || rest
            .strip_prefix("id:")
            .is_some_and(|id| LockId::parse(id).is_ok())
}

/// The part of `name` after `start` and its colon.
fn after<'a>(start: &str, name: &'a str) -> Option<&'a str> {
    match start {
        "" => Some(name),
        start => name.strip_prefix(start)?.strip_prefix(':'),
    }
}

/// The key of one lock that would meet the claim. For a claim of slots it is that of the first slot.
fn one_of(claim: &Claim) -> Cow<'_, Key> {
    match claim.kind {
        ClaimKind::Exclusive | ClaimKind::Shared => Cow::Borrowed(&claim.key),
        ClaimKind::SlotOf(_) => Cow::Owned(claim.key.slot(1)),
    }
}

/// The name of a lock without what tells a slot or a reader of the key from the others.
fn unnumbered(space: &KeySpace<'_>, key: &Key) -> Result<String, Error> {
    if key.slot_number().is_some() {
        return space.slots_key(key);
    }
    let mut name = space.lock_key(key)?;
    if let Some((base, _)) = split_reader(&name) {
        name.truncate(base.len());
    }
    Ok(name)
}

/// The names that scripts touch beside the lock of a reader: that of the group, which is the lock on the key, and that of the sorted set with
/// the end of each reader. `None` for any other lock.
pub(super) fn group_keys(lock_key: &str) -> Option<[String; 2]> {
    let (group, _) = split_reader(lock_key)?;
    Some([group.to_owned(), readers_key(group)])
}

/// The name of the sorted set that has the end of each reader of this lock.
fn readers_key(lock_key: &str) -> String {
    format!("{lock_key}\u{37e}readers")
}

fn space(prefix: &str) -> KeySpace<'_> {
    KeySpace { prefix, ..KEYS }
}

#[cfg(test)]
mod tests;
