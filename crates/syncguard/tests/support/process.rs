//! Servers as processes: they end with the process that started them, however that ends.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to start.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Has `shell`, a command that runs `sh`, run `program`, and end it with `signal` when the standard
/// input of the command closes.
pub(crate) fn supervised(mut shell: Command, program: &Path, signal: &str) -> Command {
    let script = format!("\"$@\" & child=$!; read line; kill -{signal} $child; wait $child");
    shell.arg("-c").arg(script).arg("sh").arg(program);
    shell.stdin(Stdio::piped());
    shell
}

/// A port that nobody listens on.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// A port that nobody listens on, also not on the one that a node of a Redis Cluster has for the other nodes.
pub(crate) fn free_cluster_port() -> u16 {
    for _ in 0..1000 {
        let port = free_port();
        let bus = port.checked_add(10_000);
        if bus.is_some_and(|bus| TcpListener::bind((Ipv4Addr::LOCALHOST, bus)).is_ok()) {
            return port;
        }
    }
    panic!("no two free ports that are 10 000 apart");
}

/// Waits until a server is there; fails with its log.
pub(crate) fn wait_for(what: &str, log: &Path, mut is_there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_there() {
        assert!(
            start.elapsed() < START_LIMIT,
            "{what} did not start: {}",
            std::fs::read_to_string(log).unwrap_or_default()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}
