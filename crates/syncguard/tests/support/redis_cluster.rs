//! A private Redis Cluster: three primaries with a replica each, which end with the test, or with the process that
//! started them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::certificates::Certificates;
use super::redis_server::{RedisServer, Version};
use super::resp::{Answer, Resp};

/// How many hash slots a cluster has.
const SLOTS: usize = 16384;
/// How many nodes serve hash slots at the start. Each has a replica.
const PRIMARIES: usize = 3;

/// How the nodes run. A node that is silent for so many milliseconds is replaced by its replica.
const NODE: &[&str] = &[
    "cluster-enabled yes",
    "cluster-config-file nodes.conf",
    "cluster-node-timeout 1500",
    "cluster-replica-validity-factor 0",
    "cluster-allow-replica-migration no",
    "repl-diskless-sync-delay 0",
    // A replica that has received nothing is not told of.
    "repl-ping-replica-period 1",
];

/// A running cluster. Its first nodes are the primaries, in the order of their hash slots, then come their replicas, in the
/// same order.
pub(crate) struct RedisCluster {
    pub(crate) nodes: Vec<RedisServer>,
    scheme: &'static str,
}

impl RedisCluster {
    pub(crate) fn start() -> Self {
        Self::start_with(Version::Installed, None, &[])
    }

    /// Starts one of that version, with more lines of configuration for each node, and with TLS if there are
    /// certificates.
    pub(crate) fn start_with(
        version: Version,
        certificates: Option<&Certificates>,
        settings: &[&str],
    ) -> Self {
        let tls: &[&str] = match certificates {
            Some(_) => &["tls-cluster yes", "tls-replication yes"],
            None => &[],
        };
        let lines: Vec<&str> = NODE.iter().chain(tls).chain(settings).copied().collect();
        let start = |_| RedisServer::start_node(version, certificates, &lines);
        let cluster = Self {
            nodes: (0..2 * PRIMARIES).map(start).collect(),
            scheme: if certificates.is_some() {
                "rediss"
            } else {
                "redis"
            },
        };
        cluster.form();
        cluster
    }

    /// One more node, without hash slots, that the others know.
    pub(crate) fn add_node(&mut self) -> usize {
        let node = RedisServer::start_node(Version::Installed, None, NODE);
        self.nodes.push(node);
        self.meet();
        self.until_ok();
        self.nodes.len() - 1
    }

    /// Where it is, for a backend: all of its nodes.
    pub(crate) fn url(&self) -> String {
        self.url_of(|_| true, "")
    }

    /// The nodes that are `chosen`, for the user in `login`, which ends with an `@`.
    pub(crate) fn url_of(&self, chosen: impl Fn(usize) -> bool, login: &str) -> String {
        let nodes = self.nodes.iter().enumerate();
        let nodes: Vec<_> = nodes
            .filter(|(index, _)| chosen(*index))
            .map(|(_, node)| format!("127.0.0.1:{}", node.port()))
            .collect();
        format!("{}+cluster://{login}{}", self.scheme, nodes.join(","))
    }

    /// The first node that serves a hash slot at the start.
    pub(crate) fn first_owner(slot: u16) -> usize {
        (0..PRIMARIES)
            .find(|index| range(*index).contains(&usize::from(slot)))
            .unwrap()
    }

    /// The replica that a primary has at the start.
    pub(crate) fn replica_of(primary: usize) -> usize {
        primary + PRIMARIES
    }

    /// The node that the others take for the one that serves a hash slot.
    pub(crate) fn owner(&self, raw: &mut Resp, slot: u16) -> Option<usize> {
        let ranges = raw.call(&["CLUSTER", "SLOTS"]);
        let range = ranges.list().iter().find(|range| {
            let range = range.list();
            (range[0].int()..=range[1].int()).contains(&i64::from(slot))
        })?;
        let port = range.list()[2].list()[1].int();
        self.nodes
            .iter()
            .position(|node| i64::from(node.port()) == port)
    }

    pub(crate) fn id(&self, index: usize) -> String {
        self.nodes[index]
            .connect()
            .call(&["CLUSTER", "MYID"])
            .text()
            .to_owned()
    }

    /// Moves a hash slot with all its keys, as `redis-cli --cluster reshard` does. `pause` runs when the slot is open and
    /// half of its keys have moved.
    pub(crate) fn move_slot(&self, slot: u16, from: usize, to: usize, pause: impl FnOnce()) {
        let (source, target) = (self.id(from), self.id(to));
        let (mut at_source, mut at_target) = (self.nodes[from].connect(), self.nodes[to].connect());
        let number = slot.to_string();
        let ok = |answer: Answer| assert_eq!(answer, Answer::Text("OK".to_owned()));
        ok(at_target.call(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &source]));
        ok(at_source.call(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &target]));
        let port = self.nodes[to].port().to_string();
        let mut pause = Some(pause);
        loop {
            let keys = at_source.call(&["CLUSTER", "GETKEYSINSLOT", &number, "1000"]);
            let Answer::List(keys) = keys else {
                panic!("{keys:?}");
            };
            if keys.is_empty() {
                break;
            }
            let half = if pause.is_some() {
                keys.len() / 2
            } else {
                keys.len()
            };
            for key in &keys[..half] {
                // One that has gone in the meantime is no error.
                let moved =
                    at_source.call(&["MIGRATE", "127.0.0.1", &port, key.text(), "0", "5000"]);
                assert!(
                    matches!(&moved, Answer::Text(text) if text == "OK" || text == "NOKEY"),
                    "{moved:?}"
                );
            }
            if let Some(pause) = pause.take() {
                pause();
            }
        }
        // The target first, so that the slot is never nobody's.
        for raw in [&mut at_target, &mut at_source] {
            ok(raw.call(&["CLUSTER", "SETSLOT", &number, "NODE", &target]));
        }
    }

    /// Lets a replica take the place of its primary, which serves `slot`, without a loss.
    pub(crate) fn fail_over(&self, replica: usize, slot: u16) {
        let id = self.id(replica);
        // Its primary takes the wish only of a replica that it knows.
        self.until("all know that it is a replica", |raw| {
            let nodes = raw.call(&["CLUSTER", "NODES"]);
            let mut lines = nodes.text().lines();
            lines.any(|line| line.starts_with(&id) && line.contains("slave"))
        });
        let mut raw = self.nodes[replica].connect();
        let follows = |raw: &mut Resp| {
            let role = raw.call(&["ROLE"]);
            role.list()[3].text() == "connected"
        };
        while !follows(&mut raw) {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(raw.call(&["CLUSTER", "FAILOVER"]).text(), "OK");
        self.until("it has taken over", |raw| {
            self.owner(raw, slot) == Some(replica)
        });
    }

    /// Waits until each node that runs agrees.
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&mut Resp) -> bool) {
        let start = Instant::now();
        for node in self.nodes.iter().filter(|node| node.is_running()) {
            let mut raw = node.connect();
            while !holds(&mut raw) {
                assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    pub(crate) fn until_ok(&self) {
        self.until("the cluster works", |raw| {
            raw.call(&["CLUSTER", "INFO"])
                .text()
                .contains("cluster_state:ok")
        });
    }

    fn form(&self) {
        for (index, node) in self.nodes.iter().enumerate() {
            let mut raw = node.connect();
            raw.call(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            if index < PRIMARIES {
                let slots: Vec<_> = range(index).map(|slot| slot.to_string()).collect();
                let words = ["CLUSTER", "ADDSLOTS"].into_iter();
                let words: Vec<&str> = words.chain(slots.iter().map(String::as_str)).collect();
                assert_eq!(raw.call(&words), Answer::Text("OK".to_owned()));
            }
        }
        self.meet();
        for primary in 0..PRIMARIES {
            let mut raw = self.nodes[Self::replica_of(primary)].connect();
            let made = raw.call(&["CLUSTER", "REPLICATE", &self.id(primary)]);
            assert_eq!(made, Answer::Text("OK".to_owned()));
        }
        self.until("all replicas are known", |raw| {
            let ranges = raw.call(&["CLUSTER", "SLOTS"]);
            let ranges = ranges.list();
            ranges.len() == PRIMARIES && ranges.iter().all(|range| range.list().len() == 4)
        });
        self.until("all replicas follow", |raw| {
            let role = raw.call(&["ROLE"]);
            role.list()[0].text() == "master" || role.list()[3].text() == "connected"
        });
        self.until_ok();
    }

    /// Makes all nodes known to each other. A handshake that takes longer than a second, as on a busy machine, is given up by
    /// Redis, so those that are missing meet again.
    fn meet(&self) {
        let start = Instant::now();
        let mut asked = None::<Instant>;
        loop {
            let known: Vec<_> = self.nodes.iter().map(known_ports).collect();
            if known.iter().all(|ports| ports.len() == self.nodes.len()) {
                return;
            }
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "never: all nodes know each other"
            );
            if asked.is_none_or(|at| at.elapsed() > Duration::from_secs(2)) {
                asked = Some(Instant::now());
                self.introduce(&known);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts the handshake of each two nodes of which one does not know the other.
    fn introduce(&self, known: &[BTreeSet<u16>]) {
        let nodes: Vec<_> = self.nodes.iter().zip(known).collect();
        for (index, (node, its)) in nodes.iter().enumerate() {
            for (other, theirs) in &nodes[..index] {
                if its.contains(&other.port()) && theirs.contains(&node.port()) {
                    continue;
                }
                let port = node.port().to_string();
                let met = other
                    .connect()
                    .call(&["CLUSTER", "MEET", "127.0.0.1", &port]);
                assert_eq!(met, Answer::Text("OK".to_owned()));
            }
        }
    }
}

/// The ports of the nodes, itself among them, with which a node has finished its handshake.
fn known_ports(node: &RedisServer) -> BTreeSet<u16> {
    let nodes = node.connect().call(&["CLUSTER", "NODES"]);
    // The node's id, then host:port@bus, then its flags.
    let lines = nodes
        .text()
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    let finished = lines.filter(|words| !words[2].contains("handshake"));
    finished
        .map(|words| {
            let (address, _) = words[1].split_once('@').unwrap();
            address.rsplit_once(':').unwrap().1.parse().unwrap()
        })
        .collect()
}

/// The slots of a primary at the start.
fn range(index: usize) -> std::ops::Range<usize> {
    index * SLOTS / PRIMARIES..(index + 1) * SLOTS / PRIMARIES
}
