//! A private Sentinel group: a primary with replicas, and three Sentinels that agree on it.

use std::time::{Duration, Instant};

use super::redis_server::RedisServer;
use super::resp::{Answer, Resp};

/// How many Sentinels there are.
const SENTINELS: usize = 3;

/// A running group. The first of the servers is the primary at the start.
pub(crate) struct SentinelGroup {
    pub(crate) servers: Vec<RedisServer>,
    pub(crate) sentinels: Vec<RedisServer>,
}

impl SentinelGroup {
    /// Starts a primary with so many replicas, with more lines of configuration for each, and waits until all Sentinels know
    /// all of them.
    pub(crate) fn start(replicas: usize, settings: &[&str]) -> Self {
        let primary = RedisServer::start_with(settings);
        let follow = format!("replicaof 127.0.0.1 {}", primary.port());
        let lines: Vec<&str> = settings.iter().copied().chain([&*follow]).collect();
        let mut servers = vec![primary];
        servers.extend((0..replicas).map(|_| RedisServer::start_with(&lines)));
        let sentinels = (0..SENTINELS).map(|_| RedisServer::start_sentinel(&servers[0], &[]));
        let group = Self {
            sentinels: sentinels.collect(),
            servers,
        };
        let count = replicas.to_string();
        until("the primary counts all replicas", || {
            let mut raw = group.servers[0].connect();
            replicas == 0 || raw.call(&["WAIT", &count, "100"]) == Answer::Int(replicas as i64)
        });
        for sentinel in &group.sentinels {
            let mut raw = sentinel.connect();
            until("each Sentinel knows all others", || {
                let about = state(&mut raw, "MASTER");
                about.contains(&format!("\"num-slaves\"), Text(\"{replicas}\")"))
                    && about.contains(&format!(
                        "\"num-other-sentinels\"), Text(\"{}\")",
                        SENTINELS - 1
                    ))
                    && state(&mut raw, "REPLICAS")
                        .matches("\"master-link-status\"), Text(\"ok\")")
                        .count()
                        == replicas
            });
        }
        group
    }

    /// Where it is, for a backend.
    pub(crate) fn url(&self) -> String {
        let nodes = self.sentinels.iter();
        let nodes: Vec<_> = nodes
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port()))
            .collect();
        format!("redis+sentinel://{}/main", nodes.join(","))
    }

    /// The place of the server that a Sentinel names.
    pub(crate) fn named_by(&self, sentinel: usize) -> Option<usize> {
        let mut raw = self.sentinels[sentinel].connect();
        let address = raw.call(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]);
        let port = address.list()[1].text().to_owned();
        let mut servers = self.servers.iter();
        servers.position(|server| server.port().to_string() == port)
    }

    /// How often its Sentinels have failed over.
    pub(crate) fn failovers(&self) -> u64 {
        let epochs = self.sentinels.iter().map(|sentinel| {
            let about = sentinel.connect().call(&["SENTINEL", "MASTER", "main"]);
            let mut pairs = about.list().chunks(2);
            let epoch = pairs.find(|pair| pair[0].text() == "config-epoch");
            epoch.unwrap()[1].text().parse::<u64>().unwrap()
        });
        epochs.max().unwrap()
    }

    /// Fails over although all is well. Comes back once a Sentinel names another primary.
    pub(crate) fn fail_over(&self) {
        let mut raw = self.sentinels[0].connect();
        until("a failover can begin", || {
            raw.call(&["SENTINEL", "FAILOVER", "main"]) == Answer::Text("OK".to_owned())
        });
        self.until_another_is_named();
    }

    /// Ends the primary. Comes back once a Sentinel names another one; then it runs again, with nothing that it had.
    pub(crate) fn lose_primary(&mut self) {
        self.servers[0].kill();
        self.until_another_is_named();
        self.servers[0].restart();
    }

    fn until_another_is_named(&self) {
        until("another primary is named", || {
            (0..SENTINELS).any(|sentinel| self.named_by(sentinel) != Some(0))
        });
    }
}

/// Says what the Sentinels did in a test that fails.
impl Drop for SentinelGroup {
    #[allow(clippy::print_stdout, reason = "part of the failure's report")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            for sentinel in &self.sentinels {
                println!("Sentinel {}: {}", sentinel.port(), sentinel.log());
            }
        }
    }
}

fn state(raw: &mut Resp, what: &str) -> String {
    format!("{:?}", raw.call(&["SENTINEL", what, "main"]))
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
