//! Redis servers, and Sentinels that name the primary among them.

use std::io;

use super::redis::{NAME, left, until};
use super::row::Row;
use super::stage::{Act, DOWN, Stage, Store};
use crate::clock::Clock;
use crate::proxy::Proxy;
use crate::record::now;
use crate::servers::redis_server::RedisServer;
use crate::servers::resp::Answer;
use crate::workers::Workers;

pub(super) fn rows() -> Vec<Row> {
    vec![
        Act::new(
            NAME,
            "sentinel-failover",
            Watched::start,
            Watched::fail_over,
        )
        .seen(DOWN)
        .back_within_ms(9_000)
        .lasts_ms(20_000)
        .into(),
        Act::new(NAME, "sentinel-lies", Misled::start, Misled::lie)
            .seen(DOWN)
            .into(),
    ]
}

/// Two servers, one of which is the primary, and a Sentinel.
struct Watched {
    servers: Vec<RedisServer>,
    sentinel: RedisServer,
    /// Sentinel's number of the last failover that was wanted.
    epoch: String,
}

/// Under full load a primary may not answer for a second. A failover that nobody wanted would lose something at any time.
const PATIENT: &str = "sentinel down-after-milliseconds main 3000";

impl Watched {
    fn start(_: Option<&Clock>) -> io::Result<Self> {
        let primary = RedisServer::start_with(&["repl-diskless-sync-delay 0"]);
        let follows = format!("replicaof 127.0.0.1 {}", primary.port());
        let replica = RedisServer::start_with(&[&follows, "repl-diskless-sync-delay 0"]);
        let sentinel = RedisServer::start_sentinel(&primary, &[PATIENT]);
        let mut watched = Self {
            servers: vec![primary, replica],
            sentinel,
            epoch: String::new(),
        };
        watched.until_replicated()?;
        watched.epoch = watched.current_epoch();
        Ok(watched)
    }

    fn current_epoch(&self) -> String {
        let state = self
            .sentinel
            .connect()
            .call(&["SENTINEL", "MASTER", "main"]);
        let fields = state.list();
        let name = fields
            .iter()
            .position(|field| field.text() == "config-epoch");
        name.and_then(|name| fields.get(name + 1))
            .map_or_else(String::new, |epoch| epoch.text().to_owned())
    }

    fn check_epoch(&self) -> io::Result<()> {
        if self.current_epoch() == self.epoch {
            return Ok(());
        }
        Err(io::Error::other(
            "Sentinel has failed over by itself: the machine is too busy for this row",
        ))
    }

    fn primary_port(&self) -> u16 {
        let mut raw = self.sentinel.connect();
        let at = raw.call(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]);
        at.list()
            .get(1)
            .and_then(|port| port.text().parse().ok())
            .unwrap_or(0)
    }

    fn until_replicated(&self) -> io::Result<()> {
        let mut raw = self.sentinel.connect();
        until("a replica follows", || {
            let replicas = format!("{:?}", raw.call(&["SENTINEL", "REPLICAS", "main"]));
            replicas.contains("\"master-link-status\"), Text(\"ok\")")
                && replicas.contains("\"flags\"), Text(\"slave\")")
        })
    }

    /// The primary is killed, or told to step down. What its replica has not received is lost, counters of fences included.
    fn fail_over(stage: &mut Stage<Self>, _: &mut Workers<'_>) -> io::Result<()> {
        let watched = &mut stage.store;
        watched.check_epoch()?;
        watched.until_replicated()?;
        let before = watched.primary_port();
        let primary = watched.servers.iter().position(|one| one.port() == before);
        let primary = primary.ok_or_else(|| io::Error::other("no primary"))?;
        let from = now();
        let is_killed = stage.random.bool();
        if is_killed {
            watched.servers[primary].kill();
        } else {
            let mut raw = watched.sentinel.connect();
            let started = raw.call(&["SENTINEL", "FAILOVER", "main"]);
            if started != Answer::Text("OK".to_owned()) {
                return Err(io::Error::other(format!("{started:?}")));
            }
        }
        until("another one is the primary", || {
            watched.primary_port() != before
        })?;
        if is_killed {
            watched.servers[primary].restart();
        }
        let port = watched.primary_port();
        let is_now = watched.servers.iter().find(|one| one.port() == port);
        let is_now = is_now.ok_or_else(|| io::Error::other("no primary"))?;
        until("it is one", || role(is_now) == "master")?;
        // Sentinel makes it follow, after ten seconds, or a minute on a machine that is busy.
        let was = &watched.servers[primary];
        until("the former one is none", || role(was) == "slave")?;
        watched.epoch = watched.current_epoch();
        stage.has_lost(from);
        Ok(())
    }
}

impl Store for Watched {
    fn url(&self, _: Option<u16>) -> String {
        format!("redis+sentinel://127.0.0.1:{}/main", self.sentinel.port())
    }

    fn left(&mut self) -> io::Result<Vec<String>> {
        self.check_epoch()?;
        Ok(self
            .servers
            .iter()
            .flat_map(|one| left(&mut one.connect()))
            .collect())
    }
}

/// A primary that three Sentinels name, and another server that one of them names at times.
struct Misled {
    primary: RedisServer,
    another: RedisServer,
    sentinels: [RedisServer; 3],
    liar: RedisServer,
    /// Before one of the Sentinels, or the liar.
    voice: Proxy,
}

impl Misled {
    fn start(_: Option<&Clock>) -> io::Result<Self> {
        let (primary, another) = (RedisServer::start(), RedisServer::start());
        let sentinels = [(); 3].map(|()| RedisServer::start_sentinel(&primary, &[PATIENT]));
        let liar = RedisServer::start_sentinel(&another, &[PATIENT]);
        Ok(Self {
            voice: Proxy::start(sentinels[2].port())?,
            primary,
            another,
            sentinels,
            liar,
        })
    }

    /// All search for the primary anew while one of the three names another server, which is one.
    fn lie(stage: &mut Stage<Self>, workers: &mut Workers<'_>) -> io::Result<()> {
        let store = &stage.store;
        store.voice.move_to(store.liar.port());
        workers.kill_one(&mut stage.random)?;
        let mut raw = store.primary.connect();
        raw.call(&["CLIENT", "KILL", "TYPE", "normal"]);
        stage.pause(300..1_500);
        let store = &stage.store;
        store.voice.move_to(store.sentinels[2].port());
        Ok(())
    }
}

impl Store for Misled {
    fn url(&self, _: Option<u16>) -> String {
        let [first, second, _] = &self.sentinels;
        let ports = [first.port(), second.port(), self.voice.port()];
        let nodes = ports.map(|port| format!("127.0.0.1:{port}"));
        format!("redis+sentinel://{}/main", nodes.join(","))
    }

    fn left(&mut self) -> io::Result<Vec<String>> {
        let servers = [&self.primary, &self.another];
        let servers = servers.into_iter();
        Ok(servers.flat_map(|one| left(&mut one.connect())).collect())
    }
}

/// What a server is. It ends its connections when that changes.
fn role(server: &RedisServer) -> String {
    let role = server.connect().try_call(&["ROLE"]);
    let role = role
        .ok()
        .and_then(|role| Some(role.list().first()?.text().to_owned()));
    role.unwrap_or_default()
}
