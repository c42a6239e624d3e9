//! How the nodes of a cluster tell what was freed: each of the locks in its hash slots, on a connection of its own that is
//! made for the first of them.
//!
//! When a hash slot moves, or a node is lost, its names wait for a moment and then move to the node that has them by then.
//! Until it tells of them, whoever waits for them polls.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until};

use super::feed::{Feed, read};
use crate::random;
use crate::redis::connection::cluster::redirect::Redirect;
use crate::redis::connection::cluster::routes::{Node, Routes};
use crate::redis::error::error_text;
use crate::redis::hash_slots::key_slot;
use crate::text::error::Error;
use crate::waiting::listener::{Listen, Listener, StoreMessage};

/// The pause before names move to another node after the first disturbance. It doubles while others follow soon.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Opens what tells.
pub(in crate::redis) struct ClusterSubscriptions(pub(in crate::redis) Arc<Routes>);

/// What a node tells of.
struct NodeFeed {
    node: Arc<Node>,
    feed: Feed,
    /// What it was asked not to tell of any more, and has not confirmed yet.
    leaving: Vec<Arc<str>>,
}

/// Which feed tells, and what.
type Event = (u64, Result<Value, Error>);

/// All nodes that tell of something.
struct ClusterSubscriber {
    routes: Arc<Routes>,
    feeds: HashMap<u64, NodeFeed>,
    /// How many feeds there have been.
    count: u64,
    /// Which feed is to tell of which name.
    places: HashMap<Arc<str>, u64>,
    /// Names that no node is to tell of at the moment.
    unassigned: HashSet<Arc<str>>,
    /// When to look for a node for those.
    settle_at: Option<Instant>,
    pause: Duration,
    changed_at: Instant,
    events: UnboundedReceiver<Event>,
    sender: UnboundedSender<Event>,
    /// What is to be told next.
    heard: VecDeque<StoreMessage>,
}

#[async_trait]
impl Listen for ClusterSubscriptions {
    async fn open(&self) -> Result<Box<dyn Listener>, Error> {
        // Waits until the hash slots are known.
        self.0.owner(0).await?;
        let (sender, events) = unbounded_channel();
        Ok(Box::new(ClusterSubscriber {
            routes: Arc::clone(&self.0),
            feeds: HashMap::new(),
            count: 0,
            places: HashMap::new(),
            unassigned: HashSet::new(),
            settle_at: None,
            pause: FIRST_PAUSE,
            changed_at: Instant::now(),
            events,
            sender,
            heard: VecDeque::new(),
        }))
    }
}

#[async_trait]
impl Listener for ClusterSubscriber {
    async fn change(&mut self, names: &[(Arc<str>, bool)]) -> Result<(), Error> {
        for (name, is_wanted) in names {
            if *is_wanted {
                self.place(name);
                continue;
            }
            self.unassigned.remove(name);
            let place = self.places.remove(name);
            if let Some(feed) = place.and_then(|number| self.feeds.get_mut(&number)) {
                feed.feed.change(name, false);
                feed.leaving.push(Arc::clone(name));
            }
        }
        Ok(())
    }

    async fn test(&mut self) -> Result<(), Error> {
        // Each feed tests its own connection.
        self.heard.push_back(StoreMessage::Alive);
        Ok(())
    }

    async fn next(&mut self) -> Result<StoreMessage, Error> {
        loop {
            if let Some(heard) = self.heard.pop_front() {
                return Ok(heard);
            }
            let settle_at = self.settle_at;
            tokio::select! {
                event = self.events.recv() => {
                    if let Some((number, message)) = event {
                        self.receive(number, message)?;
                    }
                }
                () = sleep_until(settle_at.unwrap_or_else(Instant::now)), if settle_at.is_some() => {
                    self.settle();
                }
            }
        }
    }
}

impl ClusterSubscriber {
    /// Asks the node that has the name to tell of it.
    fn place(&mut self, name: &Arc<str>) {
        let Some(node) = self.routes.known_owner(key_slot(name)) else {
            self.unassigned.insert(Arc::clone(name));
            return self.reassign_soon();
        };
        let known = self
            .feeds
            .iter()
            .find(|(_, feed)| Arc::ptr_eq(&feed.node, &node));
        let number = match known {
            Some((number, _)) => *number,
            None => {
                self.count += 1;
                let (number, sender) = (self.count, self.sender.clone());
                let target = Arc::clone(&node.target);
                let tell = move |message| sender.send((number, message)).is_ok();
                let feed = NodeFeed {
                    node,
                    feed: Feed::start(async move { target.open().await }, true, tell),
                    leaving: Vec::new(),
                };
                self.feeds.insert(number, feed);
                number
            }
        };
        self.places.insert(Arc::clone(name), number);
        if let Some(feed) = self.feeds.get_mut(&number) {
            feed.feed.change(name, true);
        }
    }

    fn receive(&mut self, number: u64, message: Result<Value, Error>) -> Result<(), Error> {
        let Some(feed) = self.feeds.get_mut(&number) else {
            return Ok(());
        };
        // The hash slot of a channel that was asked for is elsewhere.
        if let Ok(Value::ServerError(error)) = &message {
            let text = error_text(error);
            let slot = text.split(' ').nth(1).and_then(|slot| slot.parse().ok());
            if let (Some(Redirect::Moved(host, port)), Some(slot)) = (Redirect::read(&text), slot) {
                // Where it is now is known at once; what else has changed is asked for.
                let host = match host.is_empty() {
                    true => &feed.node.address.0,
                    false => host,
                };
                // A node that is to be known by a name and has none is `?`.
                if host != "?"
                    && let Ok(node) = self.routes.node((host, port))
                {
                    self.routes.moved(slot, &node);
                }
                self.unassign(number, |name| key_slot(name) == slot);
                return Ok(());
            }
        }
        match message.and_then(read) {
            Ok(StoreMessage::Unsubscribed(name)) => {
                let left = feed.leaving.iter().position(|left| **left == *name);
                match left {
                    // As it was asked to.
                    Some(place) => drop(feed.leaving.swap_remove(place)),
                    None => self.unassign(number, |moved| **moved == *name),
                }
            }
            Ok(heard) => self.heard.push_back(heard),
            Err(error) if error.kind().is_transient() => {
                self.unassign(number, |_| true);
                self.feeds.remove(&number);
            }
            // Such as a missing right, which each node will tell.
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Lets the chosen names of a feed look for another one.
    fn unassign(&mut self, number: u64, is_chosen: impl Fn(&Arc<str>) -> bool) {
        let chosen = self
            .places
            .extract_if(|name, place| *place == number && is_chosen(name));
        for (name, _) in chosen {
            self.heard
                .push_back(StoreMessage::Unsubscribed(name.to_string()));
            self.unassigned.insert(name);
        }
        self.reassign_soon();
    }

    /// Something is not where it was thought to be.
    fn reassign_soon(&mut self) {
        self.routes.find_soon();
        let now = Instant::now();
        if self.settle_at.is_none() {
            if now - self.changed_at > 2 * LONGEST_PAUSE {
                self.pause = FIRST_PAUSE;
            }
            self.settle_at = Some(now + random::scattered(self.pause));
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
        self.changed_at = now;
    }

    fn settle(&mut self) {
        self.settle_at = None;
        for name in std::mem::take(&mut self.unassigned) {
            self.place(&name);
        }
    }
}
