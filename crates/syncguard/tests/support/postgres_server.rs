//! Private PostgreSQL servers for tests.
//!
//! A server lives in a temporary folder, on free ports of 127.0.0.1, and ends with the process that
//! started it.

use std::ffi::OsStr;
use std::fs;
use std::future::poll_fn;
use std::io::Write as _;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Mutex;

use syncguard::postgres::{Host, Password, Pem, PostgresConfig, SslMode, Tls};
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::AsyncMessage;

use super::certificates::Certificates;
use super::process::{free_port, supervised, wait_for};

/// The superuser. Over TCP it must know the password.
pub(crate) const USER: &str = "locker";
pub(crate) const PASSWORD: &str = "a pass:word/with@signs";
pub(crate) const DATABASE: &str = "postgres";

/// A role over TCP: everybody by SCRAM, encrypted or not, but for these.
const HBA: &str = "local all all trust\n\
                   local replication all trust\n\
                   host all digested 127.0.0.1/32 md5\n\
                   host all trusted 127.0.0.1/32 trust\n\
                   hostssl all certified 127.0.0.1/32 cert\n\
                   hostssl all encrypted 127.0.0.1/32 scram-sha-256\n\
                   hostnossl all encrypted 127.0.0.1/32 reject\n\
                   host all all 127.0.0.1/32 scram-sha-256\n";

/// A cluster of its own, and the process that serves it.
pub(crate) struct PostgresServer {
    folder: TempDir,
    port: u16,
    settings: Vec<String>,
    environment: Vec<(String, String)>,
    process: Mutex<Option<Child>>,
    pub(crate) certificates: CertificateFiles,
}

impl PostgresServer {
    /// Starts a server that does not wait for the disk.
    pub(crate) fn start() -> Self {
        Self::start_with(&["fsync=off"])
    }

    /// Starts a server with further settings.
    pub(crate) fn start_with(settings: &[&str]) -> Self {
        Self::start_at(&std::env::temp_dir(), settings, &[])
    }

    /// Starts one in a folder in `place`, with more variables in its environment.
    pub(crate) fn start_at(
        place: &Path,
        settings: &[&str],
        environment: &[(String, String)],
    ) -> Self {
        let folder = private_folder(place);
        let certificates = CertificateFiles::write_to(folder.path());
        let data = folder.path().join("data");
        let password = folder.path().join("password");
        private_file(&password, PASSWORD);
        let initdb = as_user(program("initdb"))
            .arg("-D")
            .arg(&data)
            .args(["-U", USER, "-A", "scram-sha-256", "-E", "UTF8"])
            .args(["--locale=C", "--no-sync", "--pwfile"])
            .arg(&password)
            .output()
            .expect("initdb cannot be run: install PostgreSQL 15");
        assert!(
            initdb.status.success(),
            "initdb failed: {}",
            String::from_utf8_lossy(&initdb.stderr)
        );
        fs::write(data.join("pg_hba.conf"), HBA).unwrap();
        Self::serving(folder, certificates, settings, environment)
    }

    /// Starts a standby of this server, which follows it.
    pub(crate) fn start_standby(&self) -> Self {
        let folder = private_folder(&std::env::temp_dir());
        let certificates = CertificateFiles::write_to(folder.path());
        let copied = as_user(program("pg_basebackup"))
            .arg("-D")
            .arg(folder.path().join("data"))
            .args(["-h", &self.socket_folder(), "-p", &self.port.to_string()])
            .args(["-U", USER, "-c", "fast", "-X", "stream", "-R", "--no-sync"])
            .output()
            .unwrap();
        assert!(
            copied.status.success(),
            "pg_basebackup failed: {}",
            String::from_utf8_lossy(&copied.stderr)
        );
        Self::serving(folder, certificates, &["fsync=off"], &[])
    }

    fn serving(
        folder: TempDir,
        certificates: CertificateFiles,
        settings: &[&str],
        environment: &[(String, String)],
    ) -> Self {
        let server = Self {
            port: free_port(),
            settings: settings
                .iter()
                .map(|setting| (*setting).to_owned())
                .collect(),
            environment: environment.to_vec(),
            process: Mutex::new(None),
            certificates,
            folder,
        };
        server.run();
        server
    }

    /// Serves, after the start or after a stop.
    pub(crate) fn run(&self) {
        let path = self.folder.path();
        let ssl = |name: &str| path.join(name).display().to_string();
        let mut command = supervised(as_user("sh"), &program("postgres"), "QUIT");
        command.arg("-D").arg(path.join("data"));
        command.arg("-k").arg(path);
        let mut settings = vec![
            format!("port={}", self.port),
            "listen_addresses=127.0.0.1".to_owned(),
            "max_connections=200".to_owned(),
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", ssl("server.pem")),
            format!("ssl_key_file={}", ssl("server.key")),
            format!("ssl_ca_file={}", ssl("ca.pem")),
        ];
        settings.extend(self.settings.iter().cloned());
        for setting in settings {
            command.args(["-c", &setting]);
        }
        let log = fs::File::create(path.join("log")).unwrap();
        command.envs(self.environment.iter().cloned());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        *self.process.lock().unwrap() = Some(child);
        wait_for("the server", &path.join("log"), || {
            let status = fs::read_to_string(path.join("data/postmaster.pid")).unwrap_or_default();
            status
                .lines()
                .nth(7)
                .is_some_and(|line| line.trim() == "ready")
        });
    }

    /// Lets it have that certificate from its next start on.
    pub(crate) fn present(&self, certificates: &Certificates) {
        let folder = self.folder.path();
        private_file(&folder.join("server.pem"), &certificates.server_cert);
        private_file(&folder.join("server.key"), &certificates.server_key);
    }

    /// Lets it trust that authority, from its next start on.
    pub(crate) fn trust(&self, certificates: &Certificates) {
        private_file(&self.folder.path().join("ca.pem"), &certificates.ca);
    }

    /// Ends the server at once, as a crash would, and waits until it is gone.
    pub(crate) fn stop(&self) {
        if let Some(mut process) = self.process.lock().unwrap().take() {
            drop(process.stdin.take());
            process.wait().unwrap();
            // What a crash leaves, and what would look like a server that is ready.
            let _ = fs::remove_file(self.folder.path().join("data/postmaster.pid"));
        }
    }

    /// Whether it has ended, by itself or not.
    pub(crate) fn has_ended(&self) -> bool {
        !self.folder.path().join("data/postmaster.pid").exists()
    }

    /// Ends the server and removes what it has left: for servers in statics, which nobody drops.
    pub(crate) fn end(&self) {
        self.stop();
        let _ = fs::remove_dir_all(self.folder.path());
    }

    /// What it has written into its log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The folder of the unix socket.
    pub(crate) fn socket_folder(&self) -> String {
        self.folder.path().display().to_string()
    }

    /// Over TCP, not encrypted, with SCRAM.
    pub(crate) fn tcp(&self) -> PostgresConfig {
        PostgresConfig {
            hosts: vec![Host {
                name: "127.0.0.1".to_owned(),
                port: self.port,
            }],
            password: Password::Text(PASSWORD.to_owned()),
            tls: Tls {
                mode: SslMode::Disable,
                ..Tls::default()
            },
            ..self.unix()
        }
    }

    /// Over TLS with everything checked, with SCRAM.
    pub(crate) fn tls(&self) -> PostgresConfig {
        PostgresConfig {
            tls: Tls {
                mode: SslMode::VerifyFull,
                root: Some(Pem::File(self.certificates.authority.clone())),
                ..Tls::default()
            },
            ..self.tcp()
        }
    }

    /// Over the unix socket.
    pub(crate) fn unix(&self) -> PostgresConfig {
        PostgresConfig {
            hosts: vec![Host {
                name: self.socket_folder(),
                port: self.port,
            }],
            user: Some(USER.to_owned()),
            database: Some(DATABASE.to_owned()),
            ..PostgresConfig::default()
        }
    }

    /// A session beside the backend.
    pub(crate) async fn client(&self) -> tokio_postgres::Client {
        self.client_of(DATABASE).await
    }

    /// The same in another database.
    pub(crate) async fn client_of(&self, database: &str) -> tokio_postgres::Client {
        self.listener_in(database).await.0
    }

    /// The same as [`client`](Self::client), if the server takes one more.
    pub(crate) async fn try_client(&self) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        Ok(self.try_listener_in(DATABASE).await?.0)
    }

    /// The same, with the channels of the notifications that arrive.
    pub(crate) async fn listener_in(
        &self,
        database: &str,
    ) -> (tokio_postgres::Client, UnboundedReceiver<String>) {
        self.try_listener_in(database).await.unwrap()
    }

    async fn try_listener_in(
        &self,
        database: &str,
    ) -> Result<(tokio_postgres::Client, UnboundedReceiver<String>), tokio_postgres::Error> {
        let (client, mut connection) = tokio_postgres::Config::new()
            .host_path(self.folder.path())
            .port(self.port)
            .user(USER)
            .dbname(database)
            .application_name("test")
            .connect(tokio_postgres::NoTls)
            .await?;
        let (channels, arrived) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await
            {
                if let AsyncMessage::Notification(notification) = message {
                    let _ = channels.send(notification.channel().to_owned());
                }
            }
        });
        Ok((client, arrived))
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What [`Certificates`] made for a server at localhost and for the role `certified`, in files. Beside
/// these, there are server.pem and server.key.
pub(crate) struct CertificateFiles {
    pub(crate) authority: PathBuf,
    /// One that has signed nothing.
    pub(crate) stranger: PathBuf,
    pub(crate) client: PathBuf,
    pub(crate) client_key: PathBuf,
}

impl CertificateFiles {
    fn write_to(folder: &Path) -> Self {
        let names = ["localhost", "127.0.0.1"];
        let made = Certificates::signed_by("test authority", &names, "certified");
        let other = Certificates::signed_by("stranger", &names, "certified");
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            private_file(&path, text);
            path
        };
        write("server.pem", &made.server_cert);
        write("server.key", &made.server_key);
        Self {
            authority: write("ca.pem", &made.ca),
            stranger: write("stranger.pem", &other.ca),
            client: write("client.pem", &made.client_cert),
            client_key: write("client.key", &made.client_key),
        }
    }
}

/// Who runs servers: PostgreSQL refuses root.
fn owner() -> Option<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let ids = |name: &str| {
        let line = users
            .lines()
            .find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    let me = Command::new("id").arg("-u").output().unwrap().stdout;
    if String::from_utf8_lossy(&me).trim() != "0" {
        return None;
    }
    Some(
        ids("postgres")
            .or_else(|| ids("nobody"))
            .expect("no user to run PostgreSQL"),
    )
}

pub(super) fn as_user(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = owner() {
        command.uid(user).gid(group);
    }
    command.current_dir("/");
    command
}

pub(super) fn private_folder(place: &Path) -> TempDir {
    let builder = &mut tempfile::Builder::new();
    let folder = builder.prefix("sg-pg").tempdir_in(place).unwrap();
    hand_over(folder.path());
    folder
}

pub(super) fn private_file(path: &Path, text: &str) {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options
        .open(path)
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    hand_over(path);
}

fn hand_over(path: &Path) {
    if let Some((user, group)) = owner() {
        chown(path, Some(user), Some(group)).unwrap();
    }
}

/// A program of PostgreSQL's; Debian keeps them off the path.
pub(crate) fn program(name: &str) -> PathBuf {
    let folder = Command::new("pg_config").arg("--bindir").output();
    let folder = folder.expect("pg_config cannot be run: install PostgreSQL 15");
    Path::new(String::from_utf8_lossy(&folder.stdout).trim()).join(name)
}
