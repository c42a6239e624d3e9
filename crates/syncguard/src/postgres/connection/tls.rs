//! TLS with the modes of libpq.

use rustls::ClientConfig;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::network::tls::{self, Check, GivenPem};
use crate::postgres::config::{Pem, SslMode, Tls};
use crate::text::error::Error;

/// Starts TLS on connections.
#[derive(Clone)]
pub(super) struct TlsUpgrade {
    rustls: MakeRustlsConnect,
    server_name: Option<String>,
}

impl TlsUpgrade {
    /// Reads certificates and keys.
    pub(super) fn new(tls: &Tls) -> Result<Self, Error> {
        Ok(Self {
            rustls: MakeRustlsConnect::new(client_config(tls)?),
            server_name: tls.server_name.clone(),
        })
    }
}

impl<S> MakeTlsConnect<S> for TlsUpgrade
where
    MakeRustlsConnect: MakeTlsConnect<S>,
{
    type Stream = <MakeRustlsConnect as MakeTlsConnect<S>>::Stream;
    type TlsConnect = <MakeRustlsConnect as MakeTlsConnect<S>>::TlsConnect;
    type Error = <MakeRustlsConnect as MakeTlsConnect<S>>::Error;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Self::TlsConnect, Self::Error> {
        let name = self.server_name.as_deref().unwrap_or(domain);
        MakeTlsConnect::<S>::make_tls_connect(&mut self.rustls, name)
    }
}

fn client_config(tls: &Tls) -> Result<ClientConfig, Error> {
    let check = match tls.mode {
        SslMode::Disable | SslMode::Allow | SslMode::Prefer => Check::Nothing,
        // As in libpq: "require" checks the certificate only if authorities are given.
        SslMode::Require if tls.root.is_none() => Check::Nothing,
        SslMode::Require | SslMode::VerifyCa => Check::Authority,
        SslMode::VerifyFull => Check::AuthorityAndName,
    };
    let trusted = match &tls.root {
        Some(root) => pem_of("sslrootcert", root).trusted()?,
        None => tls.default_roots.read(),
    };
    let identity = match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => {
            Some((pem_of("sslcert", certificate), pem_of("sslkey", key)))
        }
        _ => None,
    };
    tls::client_config(check, trusted, identity)
}

fn pem_of<'a>(field: &'static str, pem: &'a Pem) -> GivenPem<'a> {
    let pem = match pem {
        Pem::File(path) => tls::PemInput::File(path),
        Pem::Text(text) => tls::PemInput::Text(text.as_bytes()),
    };
    GivenPem { field, pem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_missing_or_no_pem_are_named_by_their_field() {
        let missing = || Some(Pem::File("/nonexistent/secret.pem".into()));
        let nothing = || Some(Pem::Text("nothing".to_owned()));
        for (root, certificate, key, field) in [
            (missing(), None, None, "sslrootcert"),
            (nothing(), None, None, "sslrootcert"),
            (None, missing(), missing(), "sslcert"),
            (None, nothing(), nothing(), "sslcert"),
        ] {
            let tls = Tls {
                root,
                certificate,
                key,
                ..Tls::default()
            };
            let error = client_config(&tls).unwrap_err();
            assert!(error.message().starts_with(field), "{error}");
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
    }

    #[test]
    fn every_mode_can_be_set_up_without_files() {
        use SslMode::*;
        for mode in [Disable, Allow, Prefer, Require, VerifyCa, VerifyFull] {
            assert!(
                client_config(&Tls {
                    mode,
                    ..Tls::default()
                })
                .is_ok()
            );
        }
    }
}
