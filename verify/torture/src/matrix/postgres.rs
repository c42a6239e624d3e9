//! One PostgreSQL server, with PgBouncer before it in some rows.

use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use syncguard::ErrorKind;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::redis::{step, until};
use super::row::Row;
use super::stage::{Act, ClockOf, DOWN, Stage, Store};
use super::{network, processes};
use crate::clock::Clock;
use crate::disk::Disk;
use crate::record::now;
use crate::servers::pgbouncer::PgBouncer;
use crate::servers::postgres_server::PostgresServer;
use crate::store::prepare;
use crate::workers::Workers;

const NAME: &str = "postgres";

/// The server's processes die in these rows, and not the machine, so nothing has to wait for the disk.
/// There is room for sessions whose other side is gone: the server keeps them until its own keepalive finds out.
const QUICK: &[&str] = &["fsync=off", "max_connections=400"];

pub(crate) struct Postgres {
    server: PostgresServer,
    /// The one behind its address next.
    other: Option<PostgresServer>,
    bouncer: Option<PgBouncer>,
    disk: Option<Disk>,
    has_durable_releases: bool,
    runtime: Runtime,
}

impl Postgres {
    fn plain(clock: Option<&Clock>) -> io::Result<Self> {
        Self::with(QUICK, clock)
    }

    fn small(clock: Option<&Clock>) -> io::Result<Self> {
        Self::with(&["fsync=off", "max_connections=60"], clock)
    }

    fn with(settings: &[&str], clock: Option<&Clock>) -> io::Result<Self> {
        let environment = clock.map(Clock::environment).unwrap_or_default();
        let place = std::env::temp_dir();
        Ok(Self {
            server: PostgresServer::start_at(&place, settings, &environment),
            other: None,
            bouncer: None,
            disk: None,
            has_durable_releases: false,
            runtime: Runtime::new()?,
        })
    }

    fn durable(clock: Option<&Clock>) -> io::Result<Self> {
        Ok(Self {
            has_durable_releases: true,
            ..Self::plain(clock)?
        })
    }

    /// The other one has the tables, as in a backup of the schema.
    fn and_another(clock: Option<&Clock>) -> io::Result<Self> {
        let other = Self::plain(None)?;
        let prepared = other.runtime.block_on(prepare(&other.url(None)));
        prepared.map_err(io::Error::other)?;
        Ok(Self {
            other: Some(other.server),
            ..Self::plain(clock)?
        })
    }

    fn pooled(clock: Option<&Clock>) -> io::Result<Self> {
        let plain = Self::plain(clock)?;
        let bouncer = PgBouncer::start_with(&plain.server, true, "query_timeout = 1");
        Ok(Self {
            bouncer: Some(bouncer),
            ..plain
        })
    }

    fn on_small_disk(_: Option<&Clock>) -> io::Result<Self> {
        let disk = Disk::mount(160)?;
        let settings = [QUICK, &["max_wal_size=32MB", "min_wal_size=32MB"]].concat();
        Ok(Self {
            server: PostgresServer::start_at(disk.path(), &settings, &[]),
            other: None,
            bouncer: None,
            disk: Some(disk),
            has_durable_releases: true,
            runtime: Runtime::new()?,
        })
    }

    fn client(&self) -> Client {
        self.runtime.block_on(self.server.client())
    }

    /// The first column of the rows.
    fn ask(&self, client: &Client, sql: &str) -> io::Result<Vec<String>> {
        let answer = self.runtime.block_on(client.simple_query(sql));
        let texts = answer.map_err(io::Error::other)?.into_iter();
        let texts = texts.filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        Ok(texts.collect())
    }
}

impl Store for Postgres {
    /// PgBouncer's words, after the length of all.
    const PROXY_ERROR: &'static [u8] =
        b"E\0\0\0\x30SFATAL\0VFATAL\0C08P01\0Mserver conn crashed?\0\0";

    fn port(&self) -> Option<u16> {
        Some(match &self.bouncer {
            Some(bouncer) => bouncer.port(),
            None => self.server.port(),
        })
    }

    fn url(&self, proxy: Option<u16>) -> String {
        let port = proxy.or(self.port()).unwrap_or(0);
        let user = match self.bouncer {
            Some(_) => "locker",
            None => "locker:a%20pass%3Aword%2Fwith%40signs",
        };
        let durable = if self.has_durable_releases {
            "#durable"
        } else {
            ""
        };
        format!("postgres://{user}@127.0.0.1:{port}/postgres?sslmode=disable{durable}")
    }

    /// No lock is live, nobody waits or has left a transaction open.
    fn left(&mut self) -> io::Result<Vec<String>> {
        let client = self.client();
        let sql = "SELECT 'live: ' || user_key FROM syncguard_locks
                       WHERE expires_at_ms > extract(epoch FROM clock_timestamp()) * 1000 - 1000
                   UNION ALL SELECT 'advisory lock' FROM pg_locks WHERE locktype = 'advisory'
                   UNION ALL SELECT 'prepared transaction' FROM pg_prepared_xacts
                   UNION ALL SELECT 'open transaction' FROM pg_stat_activity
                       WHERE state LIKE 'idle in transaction%'";
        self.ask(&client, sql)
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let act = |name, strike| Act::new(NAME, name, Postgres::plain, strike).seen(DOWN);
    let durable = |name, strike| Act::new(NAME, name, Postgres::durable, strike).seen(DOWN);
    let pooled = |name, strike| Act::new(NAME, name, Postgres::pooled, strike).seen(BUSY);
    let mut rows = network::rows(NAME, Postgres::plain, BUSY);
    rows.extend(processes::rows(NAME, Postgres::plain, &[]));
    rows.push(processes::files(NAME, Postgres::plain));
    rows.push(processes::suspended(NAME, Postgres::plain));
    rows.extend([
        act("terminate-backend", terminate).into(),
        act("proxy-error", network::own_errors)
            .behind_proxy()
            .into(),
        Act::new(NAME, "address-moved", Postgres::and_another, move_address)
            .behind_proxy()
            .seen(DOWN)
            .into(),
        durable("kill-backend", kill_backend).into(),
        durable("immediate-shutdown", shut_down).into(),
        act("immediate-shutdown-undurable", shut_down_and_lose).into(),
        Act::new(NAME, "max-connections", Postgres::small, take_connections)
            .seen(DOWN)
            .into(),
        act("table-locked", lock_table).seen(BUSY).into(),
        pooled("bouncer-restart", restart_bouncer).into(),
        pooled("bouncer-query-timeout", lock_table).into(),
        // A server whose clock jumps has been seen to recover as after a crash, which only durable releases outlive.
        durable("clock-of-server", step)
            .seen(&[])
            .clock(ClockOf::Store)
            .into(),
        act("clocks-of-clients", step)
            .seen(&[])
            .clock(ClockOf::Workers)
            .into(),
        Act::new(NAME, "disk-full", Postgres::on_small_disk, fill_disk)
            .seen(FULL)
            .into(),
    ]);
    rows
}

/// Where nothing moves, all connections of the pool are busy.
const BUSY: &[ErrorKind] = &[
    ErrorKind::ServiceUnavailable,
    ErrorKind::NetworkTimeout,
    ErrorKind::RateLimited,
];

const FULL: &[ErrorKind] = BUSY;

const OTHERS: &str = "pid <> pg_backend_pid() AND backend_type = 'client backend'";

fn terminate(stage: &mut Stage<Postgres>, _: &mut Workers<'_>) -> io::Result<()> {
    let client = stage.store.client();
    for _ in 0..stage.random.u8(1..10) {
        let share = stage.random.f64();
        let sql = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OTHERS} AND random() < {share}"
        );
        stage.store.ask(&client, &sql)?;
        stage.pause(0..100);
    }
    Ok(())
}

/// As when the system has no memory left: the server ends all sessions and recovers.
fn kill_backend(stage: &mut Stage<Postgres>, _: &mut Workers<'_>) -> io::Result<()> {
    let client = stage.store.client();
    let sql = format!("SELECT pid FROM pg_stat_activity WHERE {OTHERS}");
    let sessions = stage.store.ask(&client, &sql)?;
    let chosen = stage.random.choice(sessions).unwrap_or_default();
    let pid = Pid::from_raw(chosen.parse().map_err(io::Error::other)?);
    // It may have ended in the meantime.
    let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
    until_it_serves(stage)
}

fn shut_down(stage: &mut Stage<Postgres>, _: &mut Workers<'_>) -> io::Result<()> {
    stage.store.server.stop();
    stage.pause(0..1_500);
    stage.store.server.run();
    until_it_serves(stage)
}

/// Releases of the last moments may be lost, and no fence.
fn shut_down_and_lose(stage: &mut Stage<Postgres>, workers: &mut Workers<'_>) -> io::Result<()> {
    let from = now();
    shut_down(stage, workers)?;
    stage.has_lost(from);
    Ok(())
}

/// Another server is behind the address, whose tables are empty.
fn move_address(stage: &mut Stage<Postgres>, _: &mut Workers<'_>) -> io::Result<()> {
    let from = now();
    let store = &mut stage.store;
    if let Some(other) = &mut store.other {
        std::mem::swap(&mut store.server, other);
    }
    let client = store.client();
    store.ask(
        &client,
        "TRUNCATE syncguard_locks, syncguard_fence_counters",
    )?;
    stage.has_moved(from)
}

/// Others have taken all connections, those of the workers included.
fn take_connections(stage: &mut Stage<Postgres>, _: &mut Workers<'_>) -> io::Result<()> {
    let first = stage.store.client();
    let sql = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OTHERS}");
    let end = std::time::Instant::now() + stage.time(200..1_500);
    let mut taken = Vec::new();
    while std::time::Instant::now() < end {
        stage.store.ask(&first, &sql)?;
        while let Ok(client) = stage
            .store
            .runtime
            .block_on(stage.store.server.try_client())
        {
            taken.push(client);
        }
        stage.pause(20..50);
    }
    drop(taken);
    Ok(())
}

/// Somebody changes the table.
fn lock_table(stage: &mut Stage<Postgres>, _: &mut Workers<'_>) -> io::Result<()> {
    let client = stage.store.client();
    let sql = "BEGIN; LOCK TABLE syncguard_locks IN ACCESS EXCLUSIVE MODE";
    stage.store.ask(&client, sql)?;
    // PgBouncer gives up after a second, and operations after two.
    stage.pause(1_100..3_000);
    stage.store.ask(&client, "COMMIT")?;
    Ok(())
}

fn restart_bouncer(stage: &mut Stage<Postgres>, _: &mut Workers<'_>) -> io::Result<()> {
    let pause = stage.time(0..1_500);
    if let Some(bouncer) = &stage.store.bouncer {
        bouncer.stop();
        std::thread::sleep(pause);
        bouncer.run();
    }
    Ok(())
}

/// What is written needs room for the log, and there is none.
fn fill_disk(stage: &mut Stage<Postgres>, _: &mut Workers<'_>) -> io::Result<()> {
    let pause = stage.time(500..2_000);
    let store = &stage.store;
    let disk = store.disk.as_ref();
    let disk = disk.ok_or_else(|| io::Error::other("a row without a disk"))?;
    let client = store.client();
    disk.fill()?;
    for _ in 0..5 {
        // The server may end at this.
        let _ = store.ask(
            &client,
            "CREATE TEMPORARY TABLE IF NOT EXISTS x (); SELECT pg_switch_wal()",
        );
    }
    std::thread::sleep(pause);
    disk.empty()?;
    until_it_serves(stage)
}

/// It recovers by itself, unless it has given up: then an administrator starts it.
fn until_it_serves(stage: &Stage<Postgres>) -> io::Result<()> {
    let store = &stage.store;
    until("the server serves again", || {
        if store.server.has_ended() {
            store.server.stop();
            store.server.run();
        }
        let client = store.runtime.block_on(async {
            let limit = Duration::from_secs(5);
            tokio::time::timeout(limit, store.server.try_client()).await
        });
        matches!(client, Ok(Ok(_)))
    })
}
