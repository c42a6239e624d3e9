//! Knows which node of a cluster serves which hash slot.
//!
//! The answer of one node about all hash slots is used until another node says otherwise. The nodes are asked anew when that
//! happens, when a connection is lost or falls silent, and when the cluster is down. There is one question at a time, however
//! many callers need it, and the pauses grow while it does not help.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep};

use super::topology::{Address, Range, fetch};
use crate::mutex::lock;
use crate::network::event_loop::EventLoop;
use crate::network::event_loop::Lane;
use crate::network::losses::Losses;
use crate::network::switches::Switches;
use crate::race::Race;
use crate::random;
use crate::redis::config::{RedisCluster, RedisConfig};
use crate::redis::connection::link::{Connection, Dial, Link};
use crate::redis::connection::script_connection::{Connections, PATIENCE, lane_of};
use crate::redis::connection::target::Target;
use crate::redis::error::{Cause, to_error};
use crate::redis::hash_slots::HASH_SLOTS;
use crate::text::error::Error;

/// How long a node that is no primary any more may still take to answer the calls that it was sent.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// How long one node may take to tell the hash slots before another one is asked as well.
const HEAD_START: Duration = Duration::from_millis(250);

/// A node, with connections that are made when they are needed.
pub(in crate::redis) struct Node {
    /// The address at which we reach it.
    pub(in crate::redis) address: Address,
    pub(in crate::redis) target: Arc<Target>,
    pub(in crate::redis) connections: Connections,
}

pub(in crate::redis) struct Routes {
    set: RedisCluster,
    target: Target,
    event_loop: Option<Arc<dyn EventLoop>>,
    patience: Duration,
    this: Weak<Self>,
    state: Mutex<RoutesState>,
    /// Asks for the hash slots. The answer is its "connection", which is open until it is known to be outdated.
    finder: Link<SlotFinder>,
    is_finding: AtomicBool,
    /// Those who hear that a node has lost all of its hash slots.
    switches: Switches,
}

#[derive(Default)]
struct RoutesState {
    /// The nodes of the cluster, by the address at which we reach each.
    nodes: HashMap<Address, Arc<Node>>,
    /// Nodes that are not in the cluster any more, and since when. They may still answer the calls that they were sent.
    former: Vec<(Instant, Arc<Node>)>,
    /// For each hash slot the node that serves it. Empty until that is known.
    owners: Vec<Option<Arc<Node>>>,
    /// Why a call waits for the cluster, and until when it does.
    trouble: Option<(Instant, Error)>,
    is_closed: bool,
}

/// Asks nodes for the hash slots.
struct SlotFinder(Weak<Routes>);

/// Stands for an answer about the hash slots.
struct SlotsFound {
    is_current: AtomicBool,
}

impl Routes {
    /// Does no I/O.
    pub(in crate::redis) fn new(
        config: &RedisConfig,
        set: &RedisCluster,
        event_loop: Option<&Arc<dyn EventLoop>>,
    ) -> Result<Arc<Self>, Error> {
        let target = Target::new(config)?;
        let patience = PATIENCE.min(config.locks.operation_timeout / 2);
        Ok(Arc::new_cyclic(|this| {
            let routes: Weak<Self> = Weak::clone(this);
            let on_trouble = move || {
                if let Some(routes) = routes.upgrade() {
                    routes.find_soon();
                }
            };
            Self {
                set: set.clone(),
                target: target.with_trouble(on_trouble),
                event_loop: event_loop.cloned(),
                patience,
                this: Weak::clone(this),
                state: Mutex::default(),
                finder: Link::new(SlotFinder(Weak::clone(this)), patience),
                is_finding: AtomicBool::new(false),
                switches: Switches::default(),
            }
        }))
    }

    /// The lane of plans that are called from this thread and wait for no replicas.
    pub(in crate::redis) fn lane(&self) -> Lane {
        lane_of(self.event_loop.as_ref())
    }

    /// The node that serves the hash slot, as far as is known.
    pub(in crate::redis) fn known_owner(&self, slot: u16) -> Option<Arc<Node>> {
        lock(&self.state).owners.get(usize::from(slot))?.clone()
    }

    /// The node that serves the hash slot. Waits for the first answer about all of them. `None` if no node serves it.
    pub(in crate::redis) async fn owner(&self, slot: u16) -> Result<Option<Arc<Node>>, Error> {
        if lock(&self.state).owners.is_empty() {
            self.finder.get().await?;
        }
        Ok(self.known_owner(slot))
    }

    /// The node at an address that another node has told.
    pub(in crate::redis) fn node(&self, (host, port): (&str, u16)) -> Result<Arc<Node>, Error> {
        let address = self.translate((host.to_owned(), port));
        self.at(&mut lock(&self.state), address)
            .ok_or_else(Error::closed)
    }

    /// Notes that `node` serves the hash slot, and asks in the background for all of them anew.
    pub(in crate::redis) fn moved(&self, slot: u16, node: &Arc<Node>) {
        if let Some(owner) = lock(&self.state).owners.get_mut(usize::from(slot)) {
            *owner = Some(Arc::clone(node));
        }
        self.find_soon();
    }

    /// Asks for the hash slots anew, and waits for the answer.
    pub(in crate::redis) async fn find(&self) {
        self.outdate();
        // If it fails, whoever asks next gets the error.
        let _ = self.finder.get().await;
    }

    /// Asks for the hash slots anew in the background.
    pub(in crate::redis) fn find_soon(&self) {
        self.outdate();
        let Some(this) = self.this.upgrade() else {
            return;
        };
        if tokio::runtime::Handle::try_current().is_err() || this.is_finding.swap(true, SeqCst) {
            return;
        }
        let finding = Finding(this);
        tokio::spawn(async move {
            let _ = finding.0.finder.get().await;
        });
    }

    fn outdate(&self) {
        if let Some(found) = self.finder.current() {
            found.close();
        }
    }

    /// All nodes of the cluster.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        lock(&self.state).nodes.values().cloned().collect()
    }

    /// Notes why a call waits for the cluster until that time.
    pub(in crate::redis) fn waits(&self, until: Instant, trouble: &Error) {
        lock(&self.state).trouble = Some((until, trouble.clone()));
    }

    /// Why some node, or the cluster, cannot be sent anything at this moment, if that is known.
    pub(in crate::redis) fn trouble(&self) -> Option<Error> {
        let noted = lock(&self.state).trouble.clone();
        let noted = noted.filter(|(until, _)| Instant::now() < *until);
        let noted = noted.map(|(_, trouble)| trouble);
        let of_a_node = || {
            self.nodes()
                .iter()
                .find_map(|node| node.connections.trouble())
        };
        noted.or_else(of_a_node).or_else(|| self.finder.trouble())
    }

    /// Ends all connections for good.
    pub(in crate::redis) fn close(&self) {
        self.finder.close();
        let state = std::mem::take(&mut *lock(&self.state));
        lock(&self.state).is_closed = true;
        let former = state.former.into_iter().map(|(_, node)| node);
        for node in state.nodes.into_values().chain(former) {
            node.connections.close();
        }
    }

    pub(in crate::redis) fn switches(&self) -> &Switches {
        &self.switches
    }

    /// Those who hear that a connection to a node was made after one was lost.
    pub(in crate::redis) fn losses(&self) -> &Losses {
        self.target.losses()
    }

    fn translate(&self, (host, port): Address) -> Address {
        let map = self.set.nat_map.as_ref();
        map.and_then(|map| map.translate(&host, port))
            .unwrap_or((host, port))
    }

    /// The node that we reach at that address; `None` after the end.
    fn at(&self, state: &mut RoutesState, address: Address) -> Option<Arc<Node>> {
        if state.is_closed {
            return None;
        }
        let node = state.nodes.entry(address).or_insert_with_key(|address| {
            let target = Arc::new(self.target.at(&address.0, address.1));
            Arc::new(Node {
                address: address.clone(),
                connections: Connections::new(&target, self.event_loop.as_ref(), self.patience),
                target,
            })
        });
        Some(Arc::clone(node))
    }

    /// Takes over what a node has said about the hash slots.
    fn adopt(&self, ranges: Vec<Range>) {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        let mut before = std::mem::take(&mut state.nodes);
        let owners = std::mem::replace(&mut state.owners, vec![None; usize::from(HASH_SLOTS)]);
        for range in ranges {
            let mut place = |address| {
                let address = self.translate(address);
                if let Some(known) = before.remove(&address) {
                    state.nodes.insert(address.clone(), known);
                }
                self.at(state, address)
            };
            let primary = place(range.primary);
            range
                .replicas
                .into_iter()
                .for_each(|replica| drop(place(replica)));
            let slots = usize::from(range.first)..=usize::from(range.last);
            if let Some(owners) = state.owners.get_mut(slots) {
                owners.fill(primary);
            }
        }
        let now = Instant::now();
        state
            .former
            .extend(before.into_values().map(|node| (now, node)));
        // After this time, no call that a former node was sent still waits.
        let keep = self.target.config().locks.operation_timeout * 2;
        let is_over = |(since, _): &mut (Instant, Arc<Node>)| now - *since > keep;
        let gone: Vec<_> = state.former.extract_if(.., is_over).collect();
        let replaced = without_slots(&owners, &state.owners);
        drop(guard);
        // Only now that the state is unlocked: this may end connections, whose callers may come back here.
        drop(gone);
        self.replaced(replaced);
    }

    /// Ends the connections to nodes that were primaries and have no hash slots any more, so that nobody believes them. They get a
    /// moment to answer what they were sent.
    fn replaced(&self, nodes: Vec<Arc<Node>>) {
        if nodes.is_empty() {
            return;
        }
        self.switches.tell();
        let this = Weak::clone(&self.this);
        tokio::spawn(async move {
            // A node that answers meanwhile says where its calls belong, and they are sent there.
            sleep(LAST_ANSWERS).await;
            let Some(this) = this.upgrade() else { return };
            let owners = lock(&this.state).owners.clone();
            for node in nodes {
                if !owners
                    .iter()
                    .flatten()
                    .any(|owner| Arc::ptr_eq(owner, &node))
                {
                    node.connections.give_up();
                }
            }
        });
    }

    /// The nodes to ask for the hash slots. The known ones come first, in an order that begins at a random one, so that no single
    /// node always decides.
    fn candidates(&self) -> Vec<Address> {
        let mut known: Vec<_> = lock(&self.state).nodes.keys().cloned().collect();
        if !known.is_empty() {
            let anywhere = random::unit().unwrap_or_default() * known.len() as f64;
            let last = known.len() - 1;
            known.rotate_left((anywhere as usize).min(last));
        }
        for node in &self.set.nodes {
            if !known.contains(node) {
                known.push(node.clone());
            }
        }
        known
    }
}

/// The nodes that had hash slots before and have none now.
fn without_slots(before: &[Option<Arc<Node>>], now: &[Option<Arc<Node>>]) -> Vec<Arc<Node>> {
    let mut seen: HashSet<_> = now.iter().flatten().map(Arc::as_ptr).collect();
    let before = before.iter().flatten();
    let without = before.filter(|node| seen.insert(Arc::as_ptr(node)));
    without.cloned().collect()
}

/// Stands for the task that asks. When it is dropped, with its runtime for example, another task may begin.
struct Finding(Arc<Routes>);

impl Drop for Finding {
    fn drop(&mut self) {
        self.0.is_finding.store(false, SeqCst);
    }
}

#[async_trait]
impl Dial for SlotFinder {
    type Connection = SlotsFound;

    async fn dial(&self) -> Result<SlotsFound, Error> {
        let routes = self.0.upgrade().ok_or_else(Error::closed)?;
        let candidates = routes.candidates();
        let mut candidates = candidates.iter().peekable();
        let mut race = Race::new();
        let (mut refusal, mut last) = (None, None);
        loop {
            if let Some((host, port)) = candidates.next() {
                race.start(fetch(&routes.target, host, *port));
            }
            tokio::select! {
                result = race.next() => match result {
                    Some(Ok(ranges)) => {
                        routes.adopt(ranges);
                        return Ok(SlotsFound { is_current: AtomicBool::new(true) });
                    }
                    // A wrong password, for example, is more useful to report than that a node cannot be reached.
                    Some(Err(error)) if !error.kind().is_transient() => refusal = Some(error),
                    Some(Err(error)) => last = Some(error),
                    None => break,
                },
                () = sleep(HEAD_START), if candidates.peek().is_some() => {}
            }
        }
        Err(refusal
            .or(last)
            .unwrap_or_else(|| to_error(Cause::NoNode, false)))
    }
}

impl Connection for SlotsFound {
    fn is_open(&self) -> bool {
        self.is_current.load(SeqCst)
    }

    fn close(&self) {
        self.is_current.store(false, SeqCst);
    }
}
