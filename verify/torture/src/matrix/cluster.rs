//! A Redis Cluster: three primaries with a replica each.

use std::io;

use super::processes;
use super::redis::{left, until};
use super::row::Row;
use super::stage::{Act, DOWN, Stage, Store};
use crate::clock::Clock;
use crate::record::now;
use crate::servers::redis_cluster::RedisCluster;
use crate::workers::Workers;

const NAME: &str = "redis-cluster";

pub(crate) struct Cluster(RedisCluster);

impl Cluster {
    fn start(_: Option<&Clock>) -> io::Result<Self> {
        Ok(Self(RedisCluster::start()))
    }
}

impl Store for Cluster {
    fn url(&self, _: Option<u16>) -> String {
        self.0.url()
    }

    fn left(&mut self) -> io::Result<Vec<String>> {
        let nodes = self.0.nodes.iter();
        Ok(nodes.flat_map(|node| left(&mut node.connect())).collect())
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let act = |name, strike| Act::new(NAME, name, Cluster::start, strike).seen(DOWN);
    let mut rows = processes::rows(NAME, Cluster::start, &[]);
    rows.extend([
        act("slot-move", move_slot).into(),
        act("planned-failover", hand_over).into(),
        act("primary-killed", kill_primary)
            .back_within_ms(4_000)
            .into(),
        act("primary-emptied", empty_primary).into(),
    ]);
    rows
}

/// A slot with locks moves to another node, key by key.
fn move_slot(stage: &mut Stage<Cluster>, _: &mut Workers<'_>) -> io::Result<()> {
    let pause = stage.time(0..300);
    let from = stage.random.usize(..3);
    let to = (from + stage.random.usize(1..3)) % 3;
    let cluster = &stage.store.0;
    let mut raw = cluster.nodes[from].connect();
    let key = raw.call(&["RANDOMKEY"]);
    let slot = raw.call(&["CLUSTER", "KEYSLOT", key.text()]).int();
    let slot = u16::try_from(slot).map_err(io::Error::other)?;
    cluster.move_slot(slot, from, to, || std::thread::sleep(pause));
    Ok(())
}

/// One of the three, which serves slots now, and the other of its pair.
fn pair(stage: &mut Stage<Cluster>) -> (usize, usize, u16) {
    let first = stage.random.usize(..3);
    let slot = FIRST_SLOTS[first];
    let replica = RedisCluster::replica_of(first);
    let cluster = &stage.store.0;
    let running = cluster.nodes[(first + 1) % 3].connect();
    match cluster.owner(&mut { running }, slot) {
        Some(owner) if owner == replica => (replica, first, slot),
        _ => (first, replica, slot),
    }
}

/// Of the three primaries at the start.
const FIRST_SLOTS: [u16; 3] = [0, 5461, 10922];

/// A replica takes over from a primary that works, without a loss.
fn hand_over(stage: &mut Stage<Cluster>, _: &mut Workers<'_>) -> io::Result<()> {
    let (_, replica, slot) = pair(stage);
    stage.store.0.fail_over(replica, slot);
    Ok(())
}

/// A primary dies, and its replica takes over. What the replica has not received is lost, fences included.
fn kill_primary(stage: &mut Stage<Cluster>, _: &mut Workers<'_>) -> io::Result<()> {
    let from = now();
    let (primary, replica, slot) = pair(stage);
    let cluster = &mut stage.store.0;
    cluster.nodes[primary].kill();
    cluster.until("its replica has taken over", |raw| {
        cluster.owner(raw, slot) == Some(replica)
    });
    cluster.until_ok();
    cluster.nodes[primary].restart();
    until_it_follows(cluster, primary)?;
    stage.has_lost(from);
    Ok(())
}

/// A primary is back before anybody has missed it, and knows nothing. Its replica forgets as well. It answers after two seconds, as
/// Redis has it, when most of the workers' locks have ended anyway.
fn empty_primary(stage: &mut Stage<Cluster>, _: &mut Workers<'_>) -> io::Result<()> {
    let from = now();
    let (primary, replica, slot) = pair(stage);
    let cluster = &mut stage.store.0;
    cluster.nodes[primary].kill();
    cluster.nodes[primary].restart();
    cluster.until_ok();
    // On a busy machine, it may have been missed all the same.
    let is_replaced = {
        let mut raw = cluster.nodes[primary].connect();
        cluster.owner(&mut raw, slot) == Some(replica)
    };
    until_it_follows(cluster, if is_replaced { primary } else { replica })?;
    stage.has_lost(from);
    Ok(())
}

/// Waits until that node is a replica that has what its primary has.
fn until_it_follows(cluster: &RedisCluster, node: usize) -> io::Result<()> {
    let mut raw = cluster.nodes[node].connect();
    until("it follows", || {
        let role = raw.call(&["ROLE"]);
        role.list()[0].text() == "slave" && role.list()[3].text() == "connected"
    })?;
    cluster.until_ok();
    Ok(())
}
