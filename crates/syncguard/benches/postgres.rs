//! Pairs of acquire and release a second, against `pgbench` that runs the same statements, prepared,
//! over as many connections to the same server: `cargo bench --features postgres --bench postgres`.
//!
//! The server waits for the disk (`fsync = on`). Each figure is the best of several turns, and the two
//! take turns, so that what else the machine does falls on both.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and ends when it cannot go on"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::cell::Cell;
use std::fs;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use support::postgres_server::{PostgresServer, USER, program};
use syncguard::postgres::operations::{Acquire, PrimaryKeys, Release};
use syncguard::postgres::{PostgresBackend, PostgresOptions, Tables};
use syncguard::{AcquireOutcome, AcquireRequest, Backend, Key, Operation, Outcome, Ttl};
use tokio::task::LocalSet;

const TURNS: usize = 3;
const CONNECTIONS: usize = 10;
/// What our own sessions are set to.
const SESSION: &str = "-c default_transaction_isolation=read\\ committed -c enable_seqscan=off \
                       -c jit=off -c plan_cache_mode=force_generic_plan";

fn main() {
    let seconds = std::env::var("SECONDS_A_TURN").map_or(3, |seconds| seconds.parse().unwrap());
    let server = PostgresServer::start_with(&["fsync=on"]);
    println!("pairs/s              in flight     ours  pgbench  ours/pgbench  our CPU µs/pair");
    for durable in [true, false] {
        for in_flight in [1, 16, 64] {
            let (mut ours, mut theirs) = (0.0_f64, 0.0_f64);
            let mut cpu = f64::INFINITY;
            for _ in 0..TURNS {
                let before = cpu_seconds();
                let rate = measure(&server, in_flight, durable, seconds);
                cpu = cpu.min((cpu_seconds() - before) * 1e6 / (rate * seconds as f64));
                ours = ours.max(rate);
                theirs = theirs.max(pgbench(
                    &server,
                    in_flight.min(CONNECTIONS),
                    durable,
                    seconds,
                ));
            }
            let name = if durable {
                "all durable"
            } else {
                "relaxed releases"
            };
            println!(
                "{name:<20} {in_flight:>9} {ours:>8.0} {theirs:>8.0} {:>13.2} {cpu:>16.0}",
                ours / theirs
            );
        }
    }
}

/// What this process has used of the processors, without its children. Linux only.
fn cpu_seconds() -> f64 {
    const TICKS_A_SECOND: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, after_name) = stat.rsplit_once(')').unwrap();
    let fields = after_name.split_whitespace().skip(11).take(2);
    fields
        .map(|ticks| ticks.parse::<f64>().unwrap())
        .sum::<f64>()
        / TICKS_A_SECOND
}

/// One thread, as the binding has it.
fn measure(server: &PostgresServer, in_flight: usize, durable_releases: bool, seconds: u64) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let options = PostgresOptions {
        durable_releases,
        ..PostgresOptions::default()
    };
    let backend = Arc::new(PostgresBackend::new(server.unix(), options).unwrap());
    let pairs = Rc::new(Cell::new(0_u32));
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        backend.setup_schema().await.unwrap();
        let until = Instant::now() + Duration::from_secs(seconds);
        let tasks: Vec<_> = (0..in_flight)
            .map(|number| {
                let (backend, pairs) = (Arc::clone(&backend), Rc::clone(&pairs));
                let key = Key::new(&format!("bench:{number}")).unwrap();
                tokio::task::spawn_local(async move {
                    while Instant::now() < until {
                        let request = AcquireRequest::new(key.clone(), Ttl::DEFAULT).unwrap();
                        let outcome = backend.run(&Operation::Acquire(request)).await.unwrap();
                        let Outcome::Acquire(AcquireOutcome::Acquired(grant)) = outcome else {
                            panic!("locked");
                        };
                        backend
                            .run(&Operation::Release([grant[0].lock_id.clone()].into()))
                            .await
                            .unwrap();
                        pairs.set(pairs.get() + 1);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        backend.close().await;
    });
    f64::from(pairs.get()) / f64::from(u32::try_from(seconds).unwrap())
}

/// The same two statements, with the parameters as variables.
fn pgbench(server: &PostgresServer, clients: usize, durable: bool, seconds: u64) -> f64 {
    let (acquires, releases) = (
        Acquire::new(&Tables::default()),
        Release::new(&Tables::default()),
    );
    let request = AcquireRequest::new(Key::new("key").unwrap(), Ttl::DEFAULT).unwrap();
    let names = PrimaryKeys::new(&request.claims[0].key).unwrap();
    let acquire = ["key", "fence_key", "key", "id", "ttl", "tolerance"];
    let release = ["id", "tolerance", "durable"];
    let script = format!(
        "\\set key :client_id + 5000000\n\\set fence_key :client_id + 6000000\n\
         \\set id random(1000000000000000, 9000000000000000)\n\
         \\set ttl 30000\n\\set tolerance 1000\n{};\n{};\n",
        with_variables(
            acquires
                .plan(&request.claims[0], request.ttl, &names, None, None)
                .statement
                .sql(),
            &acquire
        ),
        with_variables(
            releases
                .plan(&request.claims[0].lock_id, durable)
                .statement
                .sql(),
            &release
        ),
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pairs.sql");
    fs::write(&path, script).unwrap();
    let durable = if durable { "durable=on" } else { "durable=off" };
    let output = Command::new(program("pgbench"))
        .args(["-n", "-M", "prepared", "-j", "1", "-D", durable])
        .args(["-c", &clients.to_string(), "-T", &seconds.to_string()])
        .args([
            "-h",
            &server.socket_folder(),
            "-p",
            &server.port().to_string(),
        ])
        .args(["-U", USER, "-f"])
        .arg(&path)
        .arg("postgres")
        .env("PGOPTIONS", SESSION)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let tps = text.lines().find_map(|line| line.strip_prefix("tps = "));
    let tps = tps.and_then(|rest| rest.split(' ').next());
    tps.unwrap_or_else(|| panic!("pgbench: {}", String::from_utf8_lossy(&output.stderr)))
        .parse()
        .unwrap()
}

fn with_variables(sql: &str, names: &[&str]) -> String {
    let lines = sql
        .lines()
        .filter(|line| !line.trim_start().starts_with("--"));
    let mut sql = lines.collect::<Vec<_>>().join("\n");
    for (number, name) in names.iter().enumerate() {
        sql = sql.replace(&format!("${}", number + 1), &format!(":{name}"));
    }
    sql
}
