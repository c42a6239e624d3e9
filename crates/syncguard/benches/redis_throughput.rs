//! Pairs of acquire and release on one Redis server, from one thread, as others reach it too:
//! `cargo bench --features redis --bench redis_throughput`.
//!
//! Printed are, by number of pairs in flight: the backend's pairs a second and CPU time a pair, and the
//! rate in relation to the server's own limit. That limit is what a client reaches that sends 16 calls
//! at a time over a bare socket and does nothing else, in rounds between the backend's.
//! `redis-benchmark -P 16` running the script of acquire stands beside it, to compare with other tools.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark reports to its user, and fails by panicking"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::cell::Cell;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use support::redis_server::RedisServer;
use syncguard::redis::{ClientPrefix, Names, Plan, RedisBackend, RedisConfig, acquire, release};
use syncguard::{
    AcquireOutcome, AcquireRequest, Backend, Key, Operation, Outcome, ReleaseOutcome, Ttl,
};

const ROUND: Duration = Duration::from_millis(1200);
const ROUNDS: usize = 3;

struct Result {
    pairs_per_second: f64,
    cpu_us_per_pair: f64,
    p50_us: f64,
}

fn main() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let config = RedisConfig::from_url(&server.url()).unwrap();
    let backend: Arc<dyn Backend> = Arc::new(RedisBackend::new(config).unwrap());
    println!("in flight   pairs/s   CPU µs/pair   p50 µs   of the server's limit");
    for in_flight in [1, 4, 16, 64, 256] {
        let mut ours = Vec::new();
        let mut limit = Vec::new();
        for _ in 0..ROUNDS {
            ours.push(runtime.block_on(run(&backend, in_flight)));
            limit.push(bare(server.port()));
        }
        let median = |of: fn(&Result) -> f64| median(ours.iter().map(of).collect());
        let rate = median(|result| result.pairs_per_second);
        println!(
            "{in_flight:9}  {rate:8.0}   {:11.1}   {:6.0}   {:.2}",
            median(|result| result.cpu_us_per_pair),
            median(|result| result.p50_us),
            rate / self::median(limit),
        );
    }
    println!(
        "redis-benchmark -P 16, acquire of free keys: {:.0} calls/s",
        redis_benchmark(&server)
    );
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn request(name: &str) -> AcquireRequest {
    let ttl = Ttl::from_millis(30_000).unwrap();
    AcquireRequest::new(Key::new(name).unwrap(), ttl).unwrap()
}

async fn run(backend: &Arc<dyn Backend>, in_flight: usize) -> Result {
    let end = Instant::now() + ROUND;
    let (cpu, start) = (cpu_time(), Instant::now());
    let pairs = Rc::new(Cell::new(0u64));
    let tasks = tokio::task::LocalSet::new();
    let mut times = Vec::new();
    for number in 0..in_flight {
        let (backend, pairs) = (Arc::clone(backend), Rc::clone(&pairs));
        times.push(tasks.spawn_local(async move {
            let name = format!("resource:{number}");
            let mut times = Vec::new();
            while Instant::now() < end {
                let start = Instant::now();
                let request = request(&name);
                let Outcome::Acquire(AcquireOutcome::Acquired(grant)) =
                    backend.run(&Operation::Acquire(request)).await.unwrap()
                else {
                    panic!("locked");
                };
                let release = Operation::Release([grant[0].lock_id.clone()].into());
                let released = backend.run(&release).await.unwrap();
                assert_eq!(
                    released,
                    Outcome::Release([ReleaseOutcome::Released].into())
                );
                pairs.set(pairs.get() + 1);
                times.push(start.elapsed().as_secs_f64() * 1e6);
            }
            times
        }));
    }
    tasks.await;
    let pairs = pairs.get() as f64;
    let mut all = Vec::new();
    for task in times {
        all.extend(task.await.unwrap());
    }
    Result {
        pairs_per_second: pairs / start.elapsed().as_secs_f64(),
        cpu_us_per_pair: (cpu_time() - cpu).as_secs_f64() * 1e6 / pairs,
        p50_us: median(all),
    }
}

/// Pairs a second over a bare socket, 16 calls at a time.
fn bare(port: u16) -> f64 {
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    socket.set_nodelay(true).unwrap();
    let mut replies = BufReader::new(socket.try_clone().unwrap());
    let names = Names::new("syncguard", ClientPrefix::None).unwrap();
    let requests: Vec<_> = (0..16).map(|n| request(&format!("bare:{n}"))).collect();
    let encode_all = |plan: &dyn Fn(&AcquireRequest) -> Plan| -> Vec<u8> {
        requests.iter().flat_map(|r| encode(&plan(r))).collect()
    };
    let acquires = encode_all(&|request| acquire::plan(&names, request).unwrap());
    let releases =
        encode_all(&|request| release::plan(&names, &request.claims[0].lock_id, None).unwrap());
    let mut pairs = 0u64;
    let start = Instant::now();
    while start.elapsed() < ROUND {
        for (batch, lines) in [(&acquires, 4), (&releases, 1)] {
            socket.write_all(batch).unwrap();
            let mut line = String::new();
            for _ in 0..16 * lines {
                line.clear();
                replies.read_line(&mut line).unwrap();
                assert!(line.starts_with([':', '*']), "{line}");
            }
        }
        pairs += 16;
    }
    pairs as f64 / start.elapsed().as_secs_f64()
}

fn encode(plan: &Plan) -> Vec<u8> {
    let count = plan.keys().len().to_string();
    let head = ["EVALSHA", plan.script().sha(), &count];
    let words: Vec<&str> = head
        .into_iter()
        .chain(plan.keys().chain(plan.args()))
        .collect();
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    request.into_bytes()
}

fn redis_benchmark(server: &RedisServer) -> f64 {
    let names = Names::new("syncguard", ClientPrefix::None).unwrap();
    let plan = acquire::plan(&names, &request("__rand_int__")).unwrap();
    let output = Command::new("redis-benchmark")
        .args(["-p", &server.port().to_string(), "-P", "16", "-n", "200000"])
        .args(["-r", "1000000000", "--csv", "EVALSHA", plan.script().sha()])
        .arg(plan.keys().len().to_string())
        .args(plan.keys().chain(plan.args()))
        .output()
        .expect("redis-benchmark must be installed");
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().last().unwrap_or_default();
    let mut fields = line.split("\",\"").skip(1);
    fields
        .next()
        .and_then(|rate| rate.parse().ok())
        .expect(&text)
}

/// How long this thread has been running: all of the client is on it.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}
