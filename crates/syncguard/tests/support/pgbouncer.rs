//! PgBouncer before a private PostgreSQL server.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Mutex;

use syncguard::postgres::{Host, PostgresConfig, SslMode, Tls};
use tempfile::TempDir;

use super::postgres_server::{
    DATABASE, PostgresServer, USER, as_user, private_file, private_folder,
};
use super::process::{free_port, supervised, wait_for};

/// A transaction pooler before a server.
pub(crate) struct PgBouncer {
    port: u16,
    process: Mutex<Option<Child>>,
    folder: TempDir,
}

impl PgBouncer {
    /// Starts one. It refuses settings for sessions, or, when it `ignores` them, drops them.
    pub(crate) fn start(server: &PostgresServer, ignores: bool) -> Self {
        Self::start_with(server, ignores, "")
    }

    /// The same with one more line in its settings.
    pub(crate) fn start_with(server: &PostgresServer, ignores: bool, setting: &str) -> Self {
        let folder = private_folder(&std::env::temp_dir());
        let port = free_port();
        let ignored = if ignores {
            "options"
        } else {
            "extra_float_digits"
        };
        private_file(&folder.path().join("users"), &format!("\"{USER}\" \"\"\n"));
        let log = folder.path().join("log");
        let settings = folder.path().join("settings.ini");
        private_file(
            &settings,
            &format!(
                "[databases]\n* = host={} port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
                 listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\n\
                 pool_mode = transaction\ndefault_pool_size = 8\nmax_client_conn = 500\n\
                 ignore_startup_parameters = {ignored}\nlogfile = {}\n{setting}\n",
                server.socket_folder(),
                server.port(),
                folder.path().join("users").display(),
                log.display(),
            ),
        );
        let bouncer = Self {
            port,
            process: Mutex::new(None),
            folder,
        };
        bouncer.run();
        bouncer
    }

    /// Serves, after the start or after a stop.
    pub(crate) fn run(&self) {
        let log = self.folder.path().join("log");
        let mut command = supervised(as_user("sh"), Path::new("pgbouncer"), "TERM");
        command
            .arg(self.folder.path().join("settings.ini"))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        *self.process.lock().unwrap() = Some(command.spawn().unwrap());
        wait_for("PgBouncer", &log, || {
            let log = fs::read_to_string(&log).unwrap_or_default();
            log.contains("process up")
        });
    }

    /// What it has written into its log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Ends it at once, with all connections.
    pub(crate) fn stop(&self) {
        if let Some(mut process) = self.process.lock().unwrap().take() {
            drop(process.stdin.take());
            process.wait().unwrap();
            // It would look like one that is ready.
            let _ = fs::remove_file(self.folder.path().join("log"));
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn config(&self) -> PostgresConfig {
        PostgresConfig {
            hosts: vec![Host {
                name: "127.0.0.1".to_owned(),
                port: self.port,
            }],
            user: Some(USER.to_owned()),
            database: Some(DATABASE.to_owned()),
            tls: Tls {
                mode: SslMode::Disable,
                ..Tls::default()
            },
            ..PostgresConfig::default()
        }
    }

    /// Ends it and removes what it has left.
    pub(crate) fn end(&self) {
        self.stop();
        let _ = fs::remove_dir_all(self.folder.path());
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        self.end();
    }
}
