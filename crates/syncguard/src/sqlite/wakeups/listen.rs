//! Hears which locks were freed: the file is looked at, because SQLite tells at almost no cost whether another connection has
//! written. What this backend has freed is found by the next look, too, so that all processes hear of it equally late. Only
//! what is in memory has no others, and is told of at once.

use std::collections::{BTreeSet, VecDeque};
use std::future::pending;
use std::ops::Bound;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::pace::Pace;
use crate::sqlite::connection::queue::{OperationQueue, answer};
use crate::sqlite::connection::store::{Store, Version};
use crate::sqlite::connection::worker::Effect;
use crate::sqlite::operations::is_locked::free_among;
use crate::text::error::Error;
use crate::values::key::{GATE, readers_name, slot_range, split_slot};
use crate::waiting::listener::{Listen, Listener, StoreMessage};

/// How a backend's releases, and those of others, are heard.
pub(in crate::sqlite) struct Polling {
    /// Without keeping the thread alive: a waiter may live longer than its backend.
    queue: Weak<OperationQueue>,
}

impl Polling {
    pub(in crate::sqlite) fn new(queue: &Arc<OperationQueue>) -> Self {
        Self {
            queue: Arc::downgrade(queue),
        }
    }
}

#[async_trait]
impl Listen for Polling {
    async fn open(&self) -> Result<Box<dyn Listener>, Error> {
        Ok(Box::new(Poller::new(&alive(&self.queue)?)))
    }
}

/// Looks at the file for as long as somebody waits.
struct Poller {
    queue: Weak<OperationQueue>,
    is_on_file: bool,
    /// The storage keys for which somebody waits. That of a slot stands for it and all before it, and the name of all readers for any.
    names: Arc<BTreeSet<Arc<str>>>,
    /// What this backend has freed.
    freed_here: UnboundedReceiver<String>,
    /// What the last look has seen.
    seen: Option<Version>,
    /// Whether this backend has freed something of which the next look is to tell.
    is_owed: bool,
    pace: Pace,
    /// The answer to a look that is under way.
    asked: Option<oneshot::Receiver<Result<PollResult, Error>>>,
    /// Names of which nothing can be told before the first look.
    unheard: Vec<Arc<str>>,
    heard: VecDeque<StoreMessage>,
}

/// What a look has shown.
struct PollResult {
    began: Instant,
    version: Version,
    free: Vec<Arc<str>>,
}

#[async_trait]
impl Listener for Poller {
    async fn change(&mut self, names: &[(Arc<str>, bool)]) -> Result<(), Error> {
        let wanted = Arc::make_mut(&mut self.names);
        for (name, is_wanted) in names {
            if !is_wanted {
                wanted.remove(name);
            } else {
                // Also a name that is known: it may have gone and come again since the last change.
                wanted.insert(Arc::clone(name));
                self.unheard.push(Arc::clone(name));
                self.pace.poll_soon(Instant::now());
            }
        }
        if self.seen.is_some() || !self.is_on_file {
            self.is_listening();
        }
        Ok(())
    }

    async fn test(&mut self) -> Result<(), Error> {
        // There is no other side that could be silent: if looks fail, `next` says so.
        self.heard.push_back(StoreMessage::Alive);
        Ok(())
    }

    async fn next(&mut self) -> Result<StoreMessage, Error> {
        loop {
            if let Some(heard) = self.heard.pop_front() {
                return Ok(heard);
            }
            let looks = self.is_on_file && !self.names.is_empty() && self.asked.is_none();
            tokio::select! {
                Some(name) = self.freed_here.recv() => self.was_freed_here(&name),
                () = sleep_until(self.pace.next()), if looks => self.ask()?,
                look = asked(&mut self.asked) => {
                    self.asked = None;
                    self.has_looked(look?);
                }
            }
        }
    }
}

impl Poller {
    fn new(queue: &Arc<OperationQueue>) -> Self {
        Self {
            queue: Arc::downgrade(queue),
            is_on_file: queue.is_on_file(),
            names: Arc::default(),
            freed_here: queue.releases().listen(),
            seen: None,
            is_owed: false,
            pace: Pace::new(Instant::now()),
            asked: None,
            unheard: Vec::new(),
            heard: VecDeque::new(),
        }
    }

    /// Has the thread look. Names that are free are sought only if there is news.
    fn ask(&mut self) -> Result<(), Error> {
        let (names, seen) = (Arc::clone(&self.names), self.seen);
        let is_owed = std::mem::take(&mut self.is_owed);
        let look = move |store: &Store| {
            let began = Instant::now();
            // Before the locks are read: what is written in between is found by the next look again.
            let version = store.version()?;
            let is_news = seen.is_some_and(|seen| seen != version);
            let free = match is_news || is_owed {
                true => free_among(store, &names)?,
                false => Vec::new(),
            };
            Ok(PollResult {
                began,
                version,
                free,
            })
        };
        self.asked = Some(alive(&self.queue)?.submit(Effect::Read, look)?);
        Ok(())
    }

    fn was_freed_here(&mut self, name: &str) {
        let mut wanted = wanted(&self.names, name).peekable();
        if wanted.peek().is_none() {
            return;
        }
        if self.is_on_file {
            self.is_owed = true;
            self.pace.poll_soon(Instant::now());
        } else {
            self.heard
                .extend(wanted.map(|name| StoreMessage::Freed(name.as_ref().to_owned())));
        }
    }

    fn has_looked(&mut self, look: PollResult) {
        let others_wrote = self.seen.is_some_and(|seen| seen != look.version);
        self.pace
            .has_looked(look.began, Instant::now(), others_wrote);
        self.seen = Some(look.version);
        self.is_listening();
        let free = look.free.into_iter();
        self.heard
            .extend(free.map(|name| StoreMessage::Freed(name.as_ref().to_owned())));
    }

    fn is_listening(&mut self) {
        let names = self.unheard.drain(..);
        self.heard
            .extend(names.map(|name| StoreMessage::Listening(name.as_ref().to_owned())));
    }
}

/// Those of `names` for which it matters that the lock of that name was freed.
fn wanted<'a>(
    names: &'a BTreeSet<Arc<str>>,
    name: &'a str,
) -> impl Iterator<Item = &'a Arc<str>> + 'a {
    let slot = split_slot(name);
    let of_slot = slot.into_iter().flat_map(move |(slots_key, number)| {
        let [from, before] = slot_range(slots_key);
        names
            .range::<str, _>((Bound::Included(&*from), Bound::Excluded(&*before)))
            .filter(move |name| split_slot(name).is_some_and(|(_, count)| number <= count))
    });
    let same = names.get(name).filter(|_| slot.is_none());
    // Readers wait for the key, and for the gate before it.
    let gated = slot.filter(|(_, number)| *number == GATE);
    let lock_key = gated.map_or(name, |(lock_key, _)| lock_key);
    let readers = names.get(readers_name(lock_key).as_str());
    let readers = readers.filter(|_| slot.is_none() || gated.is_some());
    of_slot.chain(same).chain(readers)
}

async fn asked(
    asked: &mut Option<oneshot::Receiver<Result<PollResult, Error>>>,
) -> Result<PollResult, Error> {
    match asked {
        Some(asked) => answer(asked).await,
        None => pending().await,
    }
}

fn alive(queue: &Weak<OperationQueue>) -> Result<Arc<OperationQueue>, Error> {
    queue.upgrade().ok_or_else(Error::closed)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;
    use crate::sqlite::config::SqliteConfig;
    use crate::values::time::SystemClock;

    struct Place {
        queue: Arc<OperationQueue>,
        _folder: tempfile::TempDir,
    }

    /// A file with no lock in it.
    fn place() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let config = SqliteConfig::file(folder.path().join("locks.db"));
        let queue = Arc::new(OperationQueue::new(config, Arc::new(SystemClock)));
        Place {
            queue,
            _folder: folder,
        }
    }

    async fn on_a(queue: &Arc<OperationQueue>) -> Poller {
        let mut poller = Poller::new(queue);
        poller.change(&[("a".into(), true)]).await.unwrap();
        let heard = poller.next().await.unwrap();
        assert_eq!(heard, StoreMessage::Listening("a".to_owned()));
        poller
    }

    fn freed(name: &str) -> StoreMessage {
        StoreMessage::Freed(name.to_owned())
    }

    #[tokio::test]
    async fn in_memory_a_release_is_told_at_once() {
        let queue = Arc::new(OperationQueue::new(
            SqliteConfig::in_memory(),
            Arc::new(SystemClock),
        ));
        let mut poller = on_a(&queue).await;
        poller.was_freed_here("of no interest");
        poller.was_freed_here("a");
        assert_eq!(poller.heard, [freed("a")]);
    }

    #[tokio::test]
    async fn on_a_file_it_is_left_to_the_next_look_which_comes_soon() {
        let place = place();
        let mut poller = on_a(&place.queue).await;
        poller.was_freed_here("of no interest");
        assert!(!poller.is_owed);
        poller.was_freed_here("a");
        assert!(poller.heard.is_empty());
        assert!(poller.pace.next() <= Instant::now() + Duration::from_millis(1));
        assert_eq!(poller.next().await.unwrap(), freed("a"));
        assert!(!poller.is_owed);
    }

    #[tokio::test]
    async fn a_release_during_a_look_is_left_to_the_one_after_it() {
        let place = place();
        let mut poller = on_a(&place.queue).await;
        poller.ask().unwrap();
        poller.was_freed_here("a");
        let look = asked(&mut poller.asked).await.unwrap();
        poller.asked = None;
        poller.has_looked(look);
        assert!(poller.is_owed && poller.heard.is_empty());
        assert_eq!(poller.next().await.unwrap(), freed("a"));
    }

    #[test]
    fn a_slot_matters_to_those_who_would_take_it() {
        let names = [
            "a",
            "a\u{37e}2",
            "a\u{37e}10",
            "a\u{37e}3",
            "b\u{37e}9",
            "a;1",
            "a\u{37e}r",
        ];
        let names: BTreeSet<Arc<str>> = names.into_iter().map(Arc::from).collect();
        for (freed, wakes) in [
            ("a", vec!["a", "a\u{37e}r"]),
            (
                "a\u{37e}0",
                vec!["a\u{37e}10", "a\u{37e}2", "a\u{37e}3", "a\u{37e}r"],
            ),
            ("a\u{37e}1", vec!["a\u{37e}10", "a\u{37e}2", "a\u{37e}3"]),
            ("a\u{37e}3", vec!["a\u{37e}10", "a\u{37e}3"]),
            ("a\u{37e}10", vec!["a\u{37e}10"]),
            ("a\u{37e}11", vec![]),
            ("c\u{37e}1", vec![]),
        ] {
            let woken: Vec<_> = wanted(&names, freed).map(|name| name.as_ref()).collect();
            assert_eq!(woken, wakes, "{freed}");
        }
    }

    #[tokio::test]
    async fn nobody_looks_for_nobody() {
        let place = place();
        let mut poller = on_a(&place.queue).await;
        poller.change(&[("a".into(), false)]).await.unwrap();
        assert!(poller.next().now_or_never().is_none());
        assert!(poller.asked.is_none());
    }
}
