//! What goes wrong besides single calls: cut connections, clocks that are set, machines that stand still.

use std::time::Duration;

use rand::RngExt as _;
use tokio::time::{Instant, advance, sleep};

use super::plan::FAULTS_END_MS;
use super::world::{Cut, How, Sim, World};

/// Lets things go wrong until [`FAULTS_END_MS`].
pub(super) async fn run(sim: Sim) {
    loop {
        sleep(Duration::from_millis(sim.random(1..2500))).await;
        if sim.with(|world| world.elapsed_ms() >= FAULTS_END_MS) {
            return;
        }
        let stall = sim.with(|world| {
            if world.plan.cuts && world.rng.random_bool(0.5) {
                world.cut();
            }
            if world.plan.cuts && world.rng.random_bool(0.3) {
                world.lose_connection();
            }
            if world.plan.steps && world.rng.random_bool(0.3) {
                world.step();
            }
            let stalls = world.plan.stalls && world.rng.random_bool(0.3);
            stalls.then(|| Duration::from_millis(world.rng.random_range(100..6000)))
        });
        if let Some(stall) = stall {
            sim.with(|world| {
                world.note("stalls", &[stall.as_millis() as u64]);
                world.witness.stalled = Instant::now() + stall;
            });
            advance(stall).await;
        }
    }
}

impl World {
    fn any_process(&mut self) -> usize {
        self.rng.random_range(0..self.plan.processes)
    }

    /// Cuts a process off for a while.
    fn cut(&mut self) {
        let process = self.any_process();
        let left_ms = FAULTS_END_MS.saturating_sub(self.elapsed_ms()).max(1);
        let ms = self.rng.random_range(1..=left_ms.min(5000));
        let how = match self.rng.random_range(0..4) {
            0 => How::Refused,
            1 => How::Waiting,
            2 => How::Lost,
            _ => How::Late,
        };
        self.note("cut", &[process as u64, ms, how as u64]);
        let until = Instant::now() + Duration::from_millis(ms);
        self.links[process].cut = Some(Cut { until, how });
        for id in self.connections_of(process) {
            if how == How::Refused {
                self.hang_up(id);
            }
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.is_silent = true;
            }
        }
    }

    fn connections_of(&self, process: usize) -> Vec<u64> {
        let all = self.connections.iter();
        all.filter(|(_, connection)| connection.process == process)
            .map(|(id, _)| *id)
            .collect()
    }

    /// Ends a connection on which the store tells of locks, with or without telling the client.
    fn lose_connection(&mut self) {
        let process = self.any_process();
        for id in self.connections_of(process) {
            self.note("connection lost", &[id]);
            if self.rng.random_bool(0.5) {
                self.hang_up(id);
            } else if let Some(connection) = self.connections.get_mut(&id) {
                connection.is_silent = true;
            }
        }
    }

    /// Sets the store's clock.
    fn step(&mut self) {
        let ms = self.rng.random_range(-5000..5000);
        self.stepped_ms += ms;
        self.witness.stepped = Some(Instant::now());
        self.note("steps", &[ms.unsigned_abs()]);
    }
}
