//! Certificates made for one test: an authority, a server of it and a client of it.

use std::path::Path;
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// PEM texts.
pub(crate) struct Certificates {
    pub(crate) ca: String,
    pub(crate) server_cert: String,
    pub(crate) server_key: String,
    pub(crate) client_cert: String,
    pub(crate) client_key: String,
}

impl Certificates {
    /// A server that goes by these names and addresses.
    pub(crate) fn for_server(names: &[&str]) -> Self {
        Self::signed_by("test authority", names, "test client")
    }

    /// The same, with the names of the authority and of the client.
    pub(crate) fn signed_by(authority: &str, names: &[&str], client: &str) -> Self {
        let ca_key = KeyPair::generate().unwrap();
        let mut params = named(authority, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&ca_key).unwrap().pem();
        let issuer = Issuer::new(params, ca_key);
        let sign = |params: CertificateParams| {
            let key = KeyPair::generate().unwrap();
            let cert = params.signed_by(&key, &issuer).unwrap();
            (cert.pem(), key.serialize_pem())
        };
        let (server_cert, server_key) = sign(named("test server", names));
        let (client_cert, client_key) = sign(named(client, &[]));
        Self {
            ca,
            server_cert,
            server_key,
            client_cert,
            client_key,
        }
    }

    /// What `openssl req -x509` makes, with further options, at that time if not now: a server that is its own authority,
    /// by the common name `locks.example`.
    pub(crate) fn by_openssl(options: &[&str], time: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [cert, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
        let run = || {
            let mut command = match time {
                None => Command::new("openssl"),
                Some(time) => {
                    let mut command = Command::new("faketime");
                    command.args([time, "openssl"]);
                    command
                }
            };
            command.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes"]);
            command.args(["-subj", "/CN=locks.example"]).args(options);
            command.arg("-out").arg(&cert).arg("-keyout").arg(&key);
            command.output().expect("openssl cannot be run")
        };
        // faketime names a semaphore by the number of its process, and one that was killed has left its own behind.
        let mut output = run();
        for _ in 0..4 {
            if !output.status.success() {
                output = run();
            }
        }
        assert!(output.status.success(), "{output:?}");
        let text = std::fs::read_to_string(cert).unwrap();
        Self {
            ca: text.clone(),
            server_key: std::fs::read_to_string(key).unwrap(),
            server_cert: text,
            client_cert: String::new(),
            client_key: String::new(),
        }
    }

    /// Writes what a server needs: `ca.pem`, `cert.pem` and `key.pem`.
    pub(crate) fn write(&self, folder: &Path) {
        for (name, text) in [
            ("ca.pem", &self.ca),
            ("cert.pem", &self.server_cert),
            ("key.pem", &self.server_key),
        ] {
            std::fs::write(folder.join(name), text).unwrap();
        }
    }
}

fn named(name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
