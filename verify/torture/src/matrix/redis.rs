//! One Redis server.

use std::io;
use std::time::{Duration, Instant};

use syncguard::ErrorKind;

use super::row::Row;
use super::stage::{Act, ClockOf, DOWN, Stage, Store};
use super::{network, processes};
use crate::clock::Clock;
use crate::disk::Disk;
use crate::record::now;
use crate::servers::redis_server::RedisServer;
use crate::servers::resp::{Answer, Resp};
use crate::workers::Workers;

pub(super) const NAME: &str = "redis";

/// What is on disk before it is answered survives.
const DURABLE: &[&str] = &["appendonly yes", "appendfsync always"];

pub(crate) struct Redis {
    server: RedisServer,
    /// The one behind its address next.
    other: Option<RedisServer>,
    disk: Option<Disk>,
}

impl Redis {
    fn plain(clock: Option<&Clock>) -> io::Result<Self> {
        Self::with(&[], clock)
    }

    fn durable(clock: Option<&Clock>) -> io::Result<Self> {
        Self::with(DURABLE, clock)
    }

    fn with(settings: &[&str], clock: Option<&Clock>) -> io::Result<Self> {
        let environment = clock.map(Clock::environment).unwrap_or_default();
        let server = RedisServer::start_at(tempfile::tempdir()?, settings, &environment);
        Ok(Self {
            server,
            other: None,
            disk: None,
        })
    }

    fn and_another(clock: Option<&Clock>) -> io::Result<Self> {
        Ok(Self {
            other: Some(RedisServer::start()),
            ..Self::plain(clock)?
        })
    }

    fn on_small_disk(settings: &[&str]) -> io::Result<Self> {
        let disk = Disk::mount(64)?;
        let folder = tempfile::tempdir_in(disk.path())?;
        let server = RedisServer::start_at(folder, settings, &[]);
        Ok(Self {
            server,
            other: None,
            disk: Some(disk),
        })
    }

    fn disk(&self) -> io::Result<&Disk> {
        let disk = self.disk.as_ref();
        disk.ok_or_else(|| io::Error::other("a row without a disk"))
    }
}

impl Store for Redis {
    /// Envoy's words.
    const PROXY_ERROR: &'static [u8] = b"-upstream failure\r\n";

    fn port(&self) -> Option<u16> {
        Some(self.server.port())
    }

    fn url(&self, proxy: Option<u16>) -> String {
        let port = proxy.unwrap_or_else(|| self.server.port());
        format!("redis://127.0.0.1:{port}")
    }

    fn left(&mut self) -> io::Result<Vec<String>> {
        Ok(left(&mut self.server.connect()))
    }
}

/// Fence counters stay for ever (docs/format.md, "Redis"). Everything else ends with the locks, and with those who wait.
pub(super) fn left(raw: &mut Resp) -> Vec<String> {
    let texts = |answer: Answer| -> Vec<String> {
        let texts = answer.list().iter().map(|one| one.text().to_owned());
        texts.collect()
    };
    let mut left = texts(raw.call(&["KEYS", "*"]));
    left.extend(texts(raw.call(&["PUBSUB", "CHANNELS"])));
    left.retain(|name| !name.contains("fence:") && name != "__sentinel__:hello");
    left
}

pub(crate) fn rows() -> Vec<Row> {
    let act = |name, strike| Act::new(NAME, name, Redis::plain, strike);
    let mut rows = network::rows(NAME, Redis::plain, DOWN);
    rows.extend(processes::rows(NAME, Redis::plain, &[]));
    rows.push(processes::files(NAME, Redis::plain));
    rows.push(processes::suspended(NAME, Redis::plain));
    rows.extend([
        act("proxy-error", network::own_errors)
            .behind_proxy()
            .seen(DOWN)
            .into(),
        Act::new(NAME, "address-moved", Redis::and_another, move_address)
            .behind_proxy()
            .seen(DOWN)
            .into(),
        Act::new(NAME, "kill-server", Redis::durable, kill)
            .seen(DOWN)
            .into(),
        act("kill-server-without-aof", kill_and_lose)
            .seen(DOWN)
            .into(),
        act("stop-server", stop).seen(DOWN).into(),
        act("script-flush", flush_scripts).into(),
        act("client-kill", kill_clients).seen(DOWN).into(),
        act("maxclients", too_many_clients).seen(CROWDED).into(),
        act("maxmemory", no_memory).seen(DOWN).into(),
        act("clock-of-server", step).clock(ClockOf::Store).into(),
        act("clocks-of-clients", step)
            .clock(ClockOf::Workers)
            .into(),
        Act::new(NAME, "disk-full", Redis::every_second, fill_disk)
            .seen(DOWN)
            .into(),
        Act::new(NAME, "disk-full-fsync-always", Redis::always, fill_disk)
            .seen(DOWN)
            .into(),
    ]);
    rows
}

/// A server that has all its clients says so.
const CROWDED: &[ErrorKind] = &[
    ErrorKind::ServiceUnavailable,
    ErrorKind::NetworkTimeout,
    ErrorKind::RateLimited,
];

impl Redis {
    fn every_second(_: Option<&Clock>) -> io::Result<Self> {
        Self::on_small_disk(&["appendonly yes", "appendfsync everysec"])
    }

    fn always(_: Option<&Clock>) -> io::Result<Self> {
        Self::on_small_disk(DURABLE)
    }
}

fn kill(stage: &mut Stage<Redis>, _: &mut Workers<'_>) -> io::Result<()> {
    stage.store.server.kill();
    stage.pause(0..1_500);
    stage.store.server.restart();
    Ok(())
}

/// It comes back empty, as the documentation warns.
fn kill_and_lose(stage: &mut Stage<Redis>, workers: &mut Workers<'_>) -> io::Result<()> {
    let from = now();
    kill(stage, workers)?;
    stage.has_lost(from);
    Ok(())
}

/// Another server is behind its address, which knows nothing.
fn move_address(stage: &mut Stage<Redis>, _: &mut Workers<'_>) -> io::Result<()> {
    let from = now();
    let store = &mut stage.store;
    if let Some(other) = &mut store.other {
        other.connect().call(&["FLUSHALL"]);
        std::mem::swap(&mut store.server, other);
    }
    stage.has_moved(from)
}

fn stop(stage: &mut Stage<Redis>, _: &mut Workers<'_>) -> io::Result<()> {
    stage.store.server.signal("STOP");
    stage.pause(300..3_000);
    stage.store.server.signal("CONT");
    Ok(())
}

fn flush_scripts(stage: &mut Stage<Redis>, _: &mut Workers<'_>) -> io::Result<()> {
    let mut raw = stage.store.server.connect();
    for _ in 0..stage.random.u8(1..20) {
        raw.call(&["SCRIPT", "FLUSH"]);
        stage.pause(0..50);
    }
    Ok(())
}

fn kill_clients(stage: &mut Stage<Redis>, _: &mut Workers<'_>) -> io::Result<()> {
    let mut raw = stage.store.server.connect();
    for _ in 0..stage.random.u8(1..10) {
        raw.call(&["CLIENT", "KILL", "TYPE", "normal"]);
        stage.pause(0..50);
    }
    Ok(())
}

/// Nobody who connects anew is served.
fn too_many_clients(stage: &mut Stage<Redis>, _: &mut Workers<'_>) -> io::Result<()> {
    let mut raw = stage.store.server.connect();
    raw.call(&["CONFIG", "SET", "maxclients", "1"]);
    raw.call(&["CLIENT", "KILL", "TYPE", "normal"]);
    stage.pause(200..1_500);
    raw.call(&["CONFIG", "SET", "maxclients", "10000"]);
    Ok(())
}

/// Nothing can be written, and as nothing may be evicted, nothing is.
fn no_memory(stage: &mut Stage<Redis>, _: &mut Workers<'_>) -> io::Result<()> {
    let mut raw = stage.store.server.connect();
    raw.call(&["CONFIG", "SET", "maxmemory", "1"]);
    stage.pause(200..1_500);
    raw.call(&["CONFIG", "SET", "maxmemory", "0"]);
    Ok(())
}

/// A clock jumps, and later jumps back.
pub(super) fn step<S>(stage: &mut Stage<S>, _: &mut Workers<'_>) -> io::Result<()> {
    let distance = stage.random.i64(500..20_000);
    let ahead_ms = if stage.random.bool() {
        distance
    } else {
        -distance
    };
    stage.clock()?.set(ahead_ms)?;
    stage.pause(200..2_000);
    stage.clock()?.set(0)
}

fn fill_disk(stage: &mut Stage<Redis>, _: &mut Workers<'_>) -> io::Result<()> {
    stage.store.disk()?.fill()?;
    stage.pause(500..2_000);
    stage.store.disk()?.empty()?;
    // With `appendfsync always` it ends itself.
    let has_ended = stage.store.server.has_ended();
    if has_ended {
        stage.store.server.kill();
        stage.store.server.restart();
    }
    Ok(())
}

/// Waits for something that takes long.
pub(super) fn until(what: &str, mut holds: impl FnMut() -> bool) -> io::Result<()> {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > Duration::from_secs(150) {
            return Err(io::Error::other(format!("never: {what}")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
