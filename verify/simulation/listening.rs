//! The connections on which the store tells of locks that were freed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rand::RngExt as _;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until};

use super::connection::Connection;
use super::world::{How, Sim, World};
use crate::text::error::{Error, ErrorKind};
use crate::waiting::listener::{Listen, Listener, StoreMessage};

/// Opens connections of one process.
pub(super) struct Dialer {
    pub(super) sim: Sim,
    pub(super) process: usize,
}

struct ClientEnd {
    sim: Sim,
    process: usize,
    id: u64,
    heard: UnboundedReceiver<Result<StoreMessage, Error>>,
}

#[async_trait]
impl Listen for Dialer {
    async fn open(&self) -> Result<Box<dyn Listener>, Error> {
        let way = self.sim.with(World::way);
        sleep(way + Duration::from_millis(1)).await;
        let is_refused = self.sim.with(|world| {
            let link = &world.links[self.process];
            let is_cut = link.is_dead || world.is_cut(self.process).is_some();
            is_cut || (world.has_faults() && world.rng.random_ratio(world.plan.faults, 1000))
        });
        if is_refused {
            return Err(Error::new(ErrorKind::ServiceUnavailable, "no connection"));
        }
        let (sender, heard) = unbounded_channel();
        let process = self.process;
        let id = self.sim.with(|world| {
            world.opened += 1;
            let now = Instant::now();
            let connection = Connection {
                process,
                sender,
                names: BTreeSet::new(),
                is_silent: false,
                last_up: now,
                last_down: now,
            };
            world.connections.insert(world.opened, connection);
            world.note("listens", &[process as u64, world.opened]);
            world.opened
        });
        Ok(Box::new(ClientEnd {
            sim: self.sim.clone(),
            process,
            id,
            heard,
        }))
    }
}

#[async_trait]
impl Listener for ClientEnd {
    async fn change(&mut self, names: &[(Arc<str>, bool)]) -> Result<(), Error> {
        let Some(at) = self.sim.with(|world| world.upwards(self.id)) else {
            return Ok(());
        };
        let (sim, id, names) = (self.sim.clone(), self.id, names.to_vec());
        tokio::spawn(async move {
            sleep_until(at).await;
            for (name, is_wanted) in names {
                sim.with(|world| world.subscribe(id, &name, is_wanted));
                if is_wanted {
                    sim.say(id, StoreMessage::Listening(name.to_string()));
                }
            }
        });
        Ok(())
    }

    async fn test(&mut self) -> Result<(), Error> {
        if self.sim.with(|world| world.upwards(self.id)).is_some() {
            self.sim.say(self.id, StoreMessage::Alive);
        }
        Ok(())
    }

    async fn next(&mut self) -> Result<StoreMessage, Error> {
        let lost = || Error::new(ErrorKind::ServiceUnavailable, "the connection was lost");
        let heard = self.heard.recv().await.ok_or_else(lost)??;
        if let StoreMessage::Freed(name) = &heard {
            self.sim
                .with(|world| world.witness.waiters.hinted(self.process, name));
        }
        Ok(heard)
    }
}

impl Drop for ClientEnd {
    fn drop(&mut self) {
        self.sim
            .with(|world| world.connections.remove(&self.id).is_some());
    }
}

impl Sim {
    /// Sends a message to the client, which arrives after those before it.
    fn say(&self, id: u64, heard: StoreMessage) {
        let at = self.with(|world| {
            let way = world.way();
            let connection = world.connections.get_mut(&id)?;
            Some(next_after(&mut connection.last_down, way))
        });
        let (Some(at), sim) = (at, self.clone()) else {
            return;
        };
        tokio::spawn(async move {
            sleep_until(at).await;
            sim.with(|world| world.deliver(id, Ok(heard)));
        });
    }

    /// Carries out what the store has decided to tell.
    pub(super) fn tell_all(&self) {
        for (id, name) in self.with(|world| std::mem::take(&mut world.told)) {
            self.say(id, StoreMessage::Freed(name));
        }
    }
}

impl World {
    /// Tells all who listen that the lock was freed.
    pub(super) fn tell(&mut self, name: &str) {
        let has_faults = self.has_faults();
        for (id, connection) in &self.connections {
            if !connection.names.contains(name) {
                continue;
            }
            let is_faulty = has_faults
                && self.rng.random_range(0..1000) < self.plan.faults
                && !self.plan.is_calm;
            let times = match is_faulty {
                true => self.rng.random_range(0..3),
                false => 1,
            };
            for _ in 0..times {
                self.told.push((*id, name.to_owned()));
            }
        }
    }

    fn subscribe(&mut self, id: u64, name: &str, is_wanted: bool) {
        if let Some(connection) = self.connections.get_mut(&id) {
            match is_wanted {
                true => connection.names.insert(name.to_owned()),
                false => connection.names.remove(name),
            };
        }
    }

    /// When a message arrives at the store; `None` if it never does.
    fn upwards(&mut self, id: u64) -> Option<Instant> {
        let way = self.way();
        let connection = self.connections.get_mut(&id)?;
        let process = connection.process;
        let at = next_after(&mut connection.last_up, way);
        let is_silent = connection.is_silent || self.is_deaf(process);
        (!is_silent).then_some(at)
    }

    fn deliver(&mut self, id: u64, heard: Result<StoreMessage, Error>) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        if !connection.is_silent && !self.is_deaf(connection.process) {
            // The client may be gone.
            let _ = connection.sender.send(heard);
        }
    }

    /// Whether messages of the store get lost on their way to that process.
    fn is_deaf(&self, process: usize) -> bool {
        let is_lost = |cut| matches!(cut, How::Lost);
        self.links[process].is_dead || self.is_cut(process).is_some_and(|cut| is_lost(cut.how))
    }

    /// Ends a connection, so that the client knows it.
    pub(super) fn hang_up(&mut self, id: u64) {
        let lost = Error::new(ErrorKind::ServiceUnavailable, "the connection was lost");
        self.deliver(id, Err(lost));
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.names.clear();
        }
    }
}

fn next_after(last: &mut Instant, way: Duration) -> Instant {
    *last = (*last + Duration::from_millis(1)).max(Instant::now() + way);
    *last
}
