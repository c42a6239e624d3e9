//! Under which names locks are kept.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use super::slots;
use crate::error::Error;
use crate::key::{Key, KeySpace, nfc};
use crate::lock_id::LockId;

/// The longest name of a Redis key, and how much of it is left free (docs/format.md, "Storage keys").
/// Each backend has its own prefix.
pub const KEYS: KeySpace<'static> = KeySpace {
    prefix: "",
    limit_bytes: 1000,
    reserve_bytes: 26,
};

/// A prefix that belongs to the client and not to the locks, such as ioredis' option `keyPrefix`:
/// it stands before every key that is sent, and before no argument.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ClientPrefix {
    /// There is none.
    #[default]
    None,
    /// This one; it is put before the keys here.
    Ours(String),
    /// The client that sends the keys puts it there; it is not known here, and may be empty.
    Theirs,
}

/// Under which names locks are kept (docs/format.md, "Redis Cluster").
#[derive(Debug, Clone)]
pub struct Names {
    key_prefix: String,
    client_prefix: ClientPrefix,
    layout: Layout,
}

/// How the names of a lock get into one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// There are no slots: one server has them all.
    Standalone,
    /// All locks are in the slot of the prefix, which has a hash tag.
    OneSlot,
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

    /// Names in a Redis Cluster: those of one lock share a slot.
    ///
    /// # Errors
    /// As [`new`](Self::new), and for prefixes with braces that put the names of a lock in different slots.
    pub fn in_cluster(key_prefix: &str, client_prefix: ClientPrefix) -> Result<Self, Error> {
        let mut names = Self::new(key_prefix, client_prefix)?;
        names.layout = match slots::hash_tag(&names.before(key_prefix)) {
            Some(_) => Layout::OneSlot,
            None => Layout::Sharded,
        };
        let start = names.start(0);
        let full = names.before(&start);
        if slots::hash_tag(&full)
            .is_none_or(|tag| names.is_sharded() && !full.ends_with(&format!("{tag}}}")))
        {
            return Err(Error::invalid(
                "keyPrefix or clientKeyPrefix has a } that is not part of a hash tag: in a redis cluster, the \
                 parts of a lock would be in different slots",
            ));
        }
        // Scripts build this name, and do not know how to shorten it.
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

    /// The shard of a lock: the first byte of SHA-256 over the name that it has on a standalone server. `None`
    /// where there are no shards.
    pub(super) fn shard(&self, key: &Key) -> Result<Option<u8>, Error> {
        if !self.is_sharded() {
            return Ok(None);
        }
        let name = space(&self.key_prefix).lock_key(key)?;
        Ok(Some(Sha256::digest(name.as_bytes())[0]))
    }

    /// Whether a lock with that name can have that lock id.
    pub(super) fn fits(&self, lock_key: &str, lock_id: &LockId) -> bool {
        !self.is_sharded() || lock_key.starts_with(&*self.start(lock_id.first_byte()))
    }

    /// What the names of a shard begin with, without the colon that follows.
    pub(super) fn start(&self, shard: u8) -> Cow<'_, str> {
        if !self.is_sharded() {
            return Cow::Borrowed(&self.key_prefix);
        }
        Cow::Owned(match self.key_prefix.trim_end_matches(':') {
            "" => format!("{{{shard:02x}}}"),
            prefix => format!("{{{prefix}:{shard:02x}}}"),
        })
    }

    /// What all names of the lock with that name begin with.
    pub(super) fn start_of<'a>(&'a self, lock_key: &'a str) -> &'a str {
        if !self.is_sharded() {
            return &self.key_prefix;
        }
        let length = self.start(0).len();
        lock_key.get(..length).unwrap_or_default()
    }

    /// `name` as the server knows it, unless only the client knows its prefix.
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

    /// The name of a lock as the server knows it, unless only the client knows its prefix.
    pub(super) fn stored_lock_key(&self, key: &Key) -> Result<String, Error> {
        Ok(self.before(&self.lock_key(key)?))
    }

    /// The name of the fence counter of the lock with that name, without the client's prefix.
    pub(super) fn fence_key(&self, lock_key: &str) -> Result<String, Error> {
        space(self.start_of(lock_key)).fence_key(lock_key)
    }

    /// The name of the entry that leads to a lock, without the client's prefix.
    pub(super) fn index_key(&self, lock_id: &LockId) -> Result<String, Error> {
        space(&self.start(lock_id.first_byte())).index_key(lock_id.as_str())
    }

    /// The name of the entry that leads to the lock with that name, whose lock id may be of any form.
    pub(super) fn index_key_beside(
        &self,
        lock_key: &str,
        lock_id: Option<&str>,
    ) -> Result<Option<String>, Error> {
        let index_key = |lock_id| space(self.start_of(lock_key)).index_key(lock_id);
        lock_id.map(index_key).transpose()
    }
}

/// A text that is as long as a lock id.
const SOME_ID: &str = "0123456789012345678901";

/// Whether `name`, which begins with `start`, is or may become the name of a fence counter or of an index entry. A lock
/// there would be in the way of another one for ever.
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

/// What stands after `start` and its colon.
fn after<'a>(start: &str, name: &'a str) -> Option<&'a str> {
    match start {
        "" => Some(name),
        start => name.strip_prefix(start)?.strip_prefix(':'),
    }
}

fn space(prefix: &str) -> KeySpace<'_> {
    KeySpace { prefix, ..KEYS }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn prefixes_that_meet_fence_counters_are_refused() {
        for bad in [
            "fence:",
            "a:fence",
            "a:fence::",
            "fence",
            "fence:a",
            "offence",
        ] {
            let error = Names::new(bad, ClientPrefix::None).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().starts_with("keyPrefix"), "{error}");
        }
        for good in ["syncguard", "", "fences", "a:b:", "défense"] {
            assert!(Names::new(good, ClientPrefix::None).is_ok(), "{good}");
        }
        assert!(Names::new(&"p".repeat(980), ClientPrefix::None).is_err());
    }

    /// Lock, index and fence of `key` in a cluster, with the client's prefix.
    fn in_cluster(key_prefix: &str, client_prefix: &str, key: &str) -> Result<[String; 3], Error> {
        let client_prefix = match client_prefix {
            "" => ClientPrefix::None,
            prefix => ClientPrefix::Ours(prefix.to_owned()),
        };
        let names = Names::in_cluster(key_prefix, client_prefix)?;
        let key = Key::new(key)?;
        let id = LockId::parse("AAAAAAAAAAAAAAAAAAAAAA")?;
        let id = id.with_first_byte(names.shard(&key)?.unwrap_or(0xff));
        let lock = names.lock_key(&key)?;
        assert!(names.fits(&lock, &id));
        let (index, fence) = (names.index_key(&id)?, names.fence_key(&lock)?);
        let beside = names.index_key_beside(&lock, Some(id.as_str()))?;
        assert_eq!(beside.as_ref(), Some(&index));
        Ok([lock, index, fence].map(|name| names.before(&name)))
    }

    #[test]
    fn keys_with_the_names_of_counters_and_index_entries_are_refused() {
        let id = "AAAAAAAAAAAAAAAAAAAAAA";
        let index = format!("id:{id}");
        let lock_key = |names: &Names, key: &str| names.lock_key(&Key::new(key).unwrap());
        for (prefix, bad) in [
            ("syncguard", "fence:syncguard:a"),
            ("syncguard::", "fence:syncguard:fence:syncguard:a"),
            ("syncguard", &index),
            ("", "fence:a"),
            ("", &index),
            // Of the name inside a counter's name, the prefix is in NFC too.
            ("cafe\u{301}", "fence:caf\u{e9}:a"),
        ] {
            let names = Names::new(prefix, ClientPrefix::None).unwrap();
            let error = lock_key(&names, bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{prefix} {bad}");
            assert!(!error.to_string().contains(bad), "{error}");
        }
        for (prefix, good) in [
            ("syncguard", "fence:a"),
            ("syncguard", "fence:syncguardian:a"),
            ("syncguard", "fence:syncguard:"),
            ("syncguard", "id:a"),
            ("syncguard", id),
            ("", "id:a"),
            ("", "fence:"),
            ("", "fences:a"),
        ] {
            let names = Names::new(prefix, ClientPrefix::None).unwrap();
            assert!(lock_key(&names, good).is_ok(), "{prefix} {good}");
        }
    }

    #[test]
    fn in_a_cluster_only_what_is_in_the_same_shard_is_refused() {
        let names = Names::in_cluster("s", ClientPrefix::None).unwrap();
        let refused = (0..=255_u8).filter(|shard| {
            let key = Key::new(&format!("fence:{{s:{shard:02x}}}:job")).unwrap();
            let own = names.shard(&key).unwrap().unwrap();
            let is_refused = names.lock_key(&key).is_err();
            assert_eq!(is_refused, own == *shard, "{shard:02x}");
            is_refused
        });
        let refused = refused.count();
        let id = LockId::parse("AAAAAAAAAAAAAAAAAAAAAA").unwrap();
        let key = Key::new(&format!("id:{}", id.as_str())).unwrap();
        assert!(names.lock_key(&key).is_err());
        let one_slot = Names::in_cluster("{t}", ClientPrefix::None).unwrap();
        let key = Key::new("fence:{t}:a").unwrap();
        assert!(one_slot.lock_key(&key).is_err() && refused < 8);
    }

    #[test]
    fn all_names_of_a_lock_share_a_slot() {
        let long = "k".repeat(512);
        for key_prefix in [
            "syncguard",
            "a:b::",
            "",
            "{t}",
            "a{t}b",
            "a{b",
            "{",
            "x{{t}}",
        ] {
            for client_prefix in ["", "c:", "{c}", "c{", "c{x}{"] {
                for key in ["job", "}", "{x}", &long] {
                    let names = in_cluster(key_prefix, client_prefix, key).unwrap();
                    let slots = names.each_ref().map(|name| slots::key_slot(name));
                    assert!(slots.iter().all(|slot| *slot == slots[0]), "{names:?}");
                }
            }
        }
    }

    #[test]
    fn a_lock_is_in_a_shard_unless_a_prefix_has_a_hash_tag() {
        for (key_prefix, client_prefix, lock) in [
            ("syncguard", "", "{syncguard:26}:job"),
            ("syncguard::", "c:", "c:{syncguard:26}:job"),
            ("{locks}", "", "{locks}:job"),
            ("a{locks}", "c:", "c:a{locks}:job"),
            ("syncguard", "{c}", "{c}syncguard:job"),
            // The first { counts, also where it is not ours.
            ("syncguard", "c{", "c{{syncguard:26}:job"),
        ] {
            assert_eq!(
                in_cluster(key_prefix, client_prefix, "job").unwrap()[0],
                lock
            );
        }
        let spread: std::collections::HashSet<_> = (0..2000)
            .map(|number| in_cluster("s", "", &number.to_string()).unwrap()[0][..6].to_owned())
            .collect();
        assert!(spread.len() > 250, "{}", spread.len());
    }

    #[test]
    fn braces_that_tear_a_lock_apart_are_refused() {
        for (key_prefix, client_prefix) in [
            ("a}b", ""),
            ("}", ""),
            ("{}", ""),
            ("{}{t}", ""),
            ("s", "{}"),
            ("s", "c{}{x}"),
        ] {
            let error = in_cluster(key_prefix, client_prefix, "k").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().starts_with("keyPrefix"), "{error}");
        }
        assert!(in_cluster("s", "}", "k").is_ok(), "before the first {{");
        assert!(in_cluster(&"p".repeat(945), "", "k").is_err());
        assert!(in_cluster(&"p".repeat(940), "", "k").is_ok());
    }

    #[test]
    fn a_lock_id_of_another_shard_does_not_fit() {
        let names = Names::in_cluster("s", ClientPrefix::None).unwrap();
        let id = LockId::parse("f4-_AAAAAAAAAAAAAAAAAA").unwrap();
        assert!(names.fits("{s:7f}:k", &id));
        assert!(!names.fits("{s:80}:k", &id));
        let standalone = Names::new("s", ClientPrefix::None).unwrap();
        assert!(standalone.fits("s:k", &id));
    }
}
