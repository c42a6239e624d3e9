//! Private Redis servers: started for one test, on a free port, in a temporary folder, and ended with
//! it, or with the process that started it.

use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use tempfile::TempDir;

use super::certificates::Certificates;
use super::process::{free_cluster_port, free_port, supervised, wait_for};
use super::resp::Resp;

/// A line of configuration for a user who may do everything.
pub(crate) const ADMIN: &str = "user admin on >admin ~* &* +@all";

/// Lines for a user who may do what locks need, and nothing else.
pub(crate) const LOCKS_ONLY: &[&str] = &[
    ADMIN,
    "user default off",
    "user locks on >secret ~syncguard:* resetchannels &syncguard:* -@all +eval +evalsha +get +set +del +zadd +zrem +zrevrange +zremrangebyscore +pexpire +time +ping +publish +subscribe +unsubscribe",
];

/// Lines for a server with TLS, on a port of its own, that asks for client certificates.
pub(crate) const TLS: &[&str] = &[
    "tls-cert-file {dir}/cert.pem",
    "tls-key-file {dir}/key.pem",
    "tls-ca-cert-file {dir}/ca.pem",
    "tls-auth-clients yes",
];

/// Which `redis-server` to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// The one on the PATH.
    Installed,
    /// The oldest that is supported.
    Oldest,
}

impl Version {
    fn program(self) -> PathBuf {
        match self {
            Self::Installed => "redis-server".into(),
            Self::Oldest => oldest(),
        }
    }
}

/// Where `scripts/lib/wheels.mjs` puts the oldest one.
fn oldest() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = match (set("XDG_CACHE_HOME"), set("HOME")) {
        (Some(cache), _) => PathBuf::from(cache),
        (None, Some(home)) => PathBuf::from(home).join(".cache"),
        (None, None) => panic!("HOME is not set"),
    };
    let program = cache.join("syncguard/tools/redis-6.2.14/redis-server");
    assert!(program.exists(), "Redis 6.2 is missing: `npm test` gets it");
    program
}

/// A running `redis-server`, or a Sentinel.
pub(crate) struct RedisServer {
    program: PathBuf,
    child: Child,
    folder: TempDir,
    port: u16,
    settings: Vec<String>,
    environment: Vec<(String, String)>,
}

impl RedisServer {
    /// Starts one without persistence.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts one with more lines of configuration. `{dir}` stands for its folder.
    pub(crate) fn start_with(settings: &[&str]) -> Self {
        Self::start_version(Version::Installed, settings)
    }

    /// As [`start_with`](Self::start_with), of that version.
    pub(crate) fn start_version(version: Version, settings: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::start_in(version, folder, "port", free_port(), settings)
    }

    /// Starts one that can become a node of a cluster; with `certificates`, one that speaks TLS only.
    pub(crate) fn start_node(
        version: Version,
        certificates: Option<&Certificates>,
        settings: &[&str],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (port_setting, tls) = match certificates {
            Some(certificates) => {
                certificates.write(folder.path());
                ("tls-port", TLS)
            }
            None => ("port", &[][..]),
        };
        let settings: Vec<&str> = tls.iter().chain(settings).copied().collect();
        Self::start_in(
            version,
            folder,
            port_setting,
            free_cluster_port(),
            &settings,
        )
    }

    /// Starts one that speaks TLS only.
    pub(crate) fn start_with_tls(certificates: &Certificates, settings: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        certificates.write(folder.path());
        let settings: Vec<&str> = TLS.iter().chain(settings).copied().collect();
        Self::start_in(
            Version::Installed,
            folder,
            "tls-port",
            free_port(),
            &settings,
        )
    }

    /// Starts one in that folder, with more variables in its environment.
    pub(crate) fn start_at(
        folder: TempDir,
        settings: &[&str],
        environment: &[(String, String)],
    ) -> Self {
        let (version, port) = (Version::Installed, free_port());
        Self::start_under(version, folder, "port", port, settings, environment)
    }

    fn start_in(
        version: Version,
        folder: TempDir,
        port_setting: &str,
        port: u16,
        settings: &[&str],
    ) -> Self {
        Self::start_under(version, folder, port_setting, port, settings, &[])
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "each is a part of how the server is started"
    )]
    fn start_under(
        version: Version,
        folder: TempDir,
        port_setting: &str,
        port: u16,
        settings: &[&str],
        environment: &[(String, String)],
    ) -> Self {
        let dir = folder.path().to_str().unwrap();
        let mut lines = vec![
            // The last one counts.
            "port 0".to_owned(),
            format!("{port_setting} {port}"),
            "bind 127.0.0.1".to_owned(),
            "save \"\"".to_owned(),
            "appendonly no".to_owned(),
            format!("dir {dir}"),
            format!("unixsocket {dir}/redis.sock"),
            format!("pidfile {dir}/pid"),
        ];
        lines.extend(settings.iter().map(|line| line.replace("{dir}", dir)));
        let program = version.program();
        let child = spawn(&program, folder.path(), &lines, &[], environment);
        let server = Self {
            program,
            child,
            folder,
            port,
            settings: lines,
            environment: environment.to_vec(),
        };
        server.wait();
        server
    }

    /// Starts a Sentinel that watches `primary` under the name `main`, alone.
    pub(crate) fn start_sentinel(primary: &RedisServer, settings: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::start_sentinel_in(folder, "port", primary, settings)
    }

    /// Starts a Sentinel that speaks TLS only, also to `primary`.
    pub(crate) fn start_sentinel_with_tls(
        certificates: &Certificates,
        primary: &RedisServer,
        settings: &[&str],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        certificates.write(folder.path());
        let tls = TLS.iter().chain(&["port 0", "tls-replication yes"]);
        let settings: Vec<&str> = tls.chain(settings).copied().collect();
        Self::start_sentinel_in(folder, "tls-port", primary, &settings)
    }

    fn start_sentinel_in(
        folder: TempDir,
        port_setting: &str,
        primary: &RedisServer,
        settings: &[&str],
    ) -> Self {
        let dir = folder.path().to_str().unwrap();
        let port = free_port();
        let mut lines = vec![
            format!("{port_setting} {port}"),
            "bind 127.0.0.1".to_owned(),
            format!("dir {dir}"),
            format!("unixsocket {dir}/redis.sock"),
            format!("pidfile {dir}/pid"),
            format!("sentinel monitor main 127.0.0.1 {} 1", primary.port),
            "sentinel down-after-milliseconds main 500".to_owned(),
            "sentinel failover-timeout main 3000".to_owned(),
        ];
        lines.extend(settings.iter().map(|line| line.replace("{dir}", dir)));
        let program = Version::Installed.program();
        let child = spawn(&program, folder.path(), &lines, &["--sentinel"], &[]);
        let server = Self {
            program,
            child,
            folder,
            port,
            settings: lines,
            environment: Vec::new(),
        };
        server.wait();
        server
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.read_pid().unwrap()
    }

    fn read_pid(&self) -> Option<u32> {
        let text = std::fs::read_to_string(self.folder.path().join("pid"));
        text.ok()?.trim().parse().ok()
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its socket in the file system.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// A connection for tests, apart from the library's. It needs neither TLS nor, where there are
    /// users, other credentials than those of [`ADMIN`].
    pub(crate) fn connect(&self) -> Resp {
        let mut raw = Resp::connect_unix(&self.socket());
        if self.settings.iter().any(|line| line == ADMIN) {
            raw.call(&["AUTH", "admin", "admin"]);
        }
        raw
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
        // What it leaves would look like a running one.
        for file in ["redis.sock", "pid"] {
            let _ = std::fs::remove_file(self.folder.path().join(file));
        }
    }

    /// Whether it was not killed.
    pub(crate) fn is_running(&self) -> bool {
        self.socket().exists()
    }

    /// Whether it has ended by itself, a moment ago or earlier.
    pub(crate) fn has_ended(&self) -> bool {
        // A process that nobody has waited for is still there, and its command line is empty.
        let line = std::fs::read(format!("/proc/{}/cmdline", self.read_pid().unwrap_or(0)));
        line.is_ok_and(|line| line.is_empty()) || UnixStream::connect(self.socket()).is_err()
    }

    /// Sends it a signal, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// Starts it again on the same port; empty, unless its settings let it keep something.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(
            &self.program,
            self.folder.path(),
            &self.settings,
            &[],
            &self.environment,
        );
        self.wait();
    }

    fn wait(&self) {
        wait_for("redis-server", &self.folder.path().join("log"), || {
            // The socket is its own; at the port, a stranger might answer.
            UnixStream::connect(self.socket()).is_ok()
                && TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
                && self.read_pid().is_some()
        });
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn spawn(
    program: &Path,
    folder: &Path,
    lines: &[String],
    arguments: &[&str],
    environment: &[(String, String)],
) -> Child {
    let file = folder.join("redis.conf");
    std::fs::write(&file, lines.join("\n") + "\n").unwrap();
    let log = std::fs::File::create(folder.join("log")).unwrap();
    supervised(Command::new("sh"), program, "KILL")
        .arg(&file)
        .args(arguments)
        .envs(environment.iter().cloned())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}
