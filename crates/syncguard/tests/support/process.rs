//! Servers as processes: they end with the process that started them, however that ends.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

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

/// The ports of servers. Systems take those of outgoing connections from higher ones, so none of these is taken between the
/// choice and the start of the server.
const PORTS: std::ops::Range<u16> = 10_000..30_000;

/// Those that this process has given out: a server that is being started does not listen yet.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port that nobody listens on.
pub(crate) fn free_port() -> u16 {
    std::iter::repeat_with(|| fastrand::u16(PORTS))
        .take(1000)
        .find(|port| is_free(*port))
        .expect("a free port")
}

/// A port that nobody listens on, also not on the one that a node of a Redis Cluster has for the other nodes.
pub(crate) fn free_cluster_port() -> u16 {
    for _ in 0..1000 {
        let port = free_port();
        let bus = port + 10_000;
        if PORTS.contains(&bus) && is_free(bus) {
            return port;
        }
    }
    panic!("no two free ports that are 10 000 apart");
}

/// Whether nobody has that port. Then it is the caller's.
fn is_free(port: u16) -> bool {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    !given.contains(&port)
        && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
        && given.insert(port)
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

/// A named pipe. Whoever opens it waits for the other side, at most until this is dropped.
pub(crate) struct Pipe(pub(crate) PathBuf);

impl Pipe {
    pub(crate) fn new_in(folder: &Path) -> Self {
        let pipe = folder.join("pipe");
        let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        Self(pipe)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // A test that fails must not wait for its reader, which waits for a writer. Fails if nobody waits.
        drop(rustix::fs::open(
            &self.0,
            OFlags::WRONLY | OFlags::NONBLOCK,
            Mode::empty(),
        ));
    }
}
