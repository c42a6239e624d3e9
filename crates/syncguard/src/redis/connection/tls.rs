//! TLS settings.

use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::network::tls::{Check, DefaultRoots, GivenPem, PemInput, client_config};
use crate::text::error::Error;

/// Which servers to trust, and how the client identifies itself. All contents are PEM.
///
/// `Debug` shows no contents.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisTls {
    /// The certificates to trust, instead of [`default_roots`](Self::default_roots).
    pub ca: Option<Vec<u8>>,
    /// Whom to trust without [`ca`](Self::ca).
    pub default_roots: DefaultRoots,
    /// The client certificate to present, followed by its chain.
    pub cert: Option<Vec<u8>>,
    /// Its private key.
    pub key: Option<Vec<u8>>,
    /// The name that the server's certificate must have, instead of the host.
    pub servername: Option<String>,
    /// Whether a certificate that cannot be trusted ends the connection. With `false`, the connection is not
    /// protected from anybody in between.
    pub reject_unauthorized: bool,
}

impl Default for RedisTls {
    fn default() -> Self {
        Self {
            ca: None,
            default_roots: DefaultRoots::default(),
            cert: None,
            key: None,
            servername: None,
            reject_unauthorized: true,
        }
    }
}

impl fmt::Debug for RedisTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisTls")
            .field("servername", &self.servername)
            .field("reject_unauthorized", &self.reject_unauthorized)
            .finish_non_exhaustive()
    }
}

/// The settings once they are read. Every TLS connection of a backend starts with them.
#[derive(Clone)]
pub(super) struct TlsContext {
    config: Arc<ClientConfig>,
    servername: Option<ServerName<'static>>,
}

impl RedisTls {
    /// Reads the PEM texts; no I/O.
    pub(super) fn read(&self) -> Result<TlsContext, Error> {
        let trusted = match &self.ca {
            Some(ca) => pem_of("tls.ca", ca).trusted()?,
            None => self.default_roots.read(),
        };
        let identity = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some((pem_of("tls.cert", cert), pem_of("tls.key", key))),
            (None, None) => None,
            _ => return Err(Error::invalid("tls.cert and tls.key need each other")),
        };
        let servername = self
            .servername
            .clone()
            .map(ServerName::try_from)
            .transpose()
            .map_err(|_| Error::invalid("tls.servername must be a host name or an address"))?;
        let check = if self.reject_unauthorized {
            Check::AuthorityAndName
        } else {
            Check::Nothing
        };
        Ok(TlsContext {
            config: Arc::new(client_config(check, trusted, identity)?),
            servername,
        })
    }
}

impl TlsContext {
    /// The name that the certificate of the server at `host` must have; `None` if there is no such
    /// name.
    pub(super) fn name_of(&self, host: &str) -> Option<ServerName<'static>> {
        // The configured name counts for any host: Sentinels give bare addresses.
        self.servername
            .clone()
            .or_else(|| ServerName::try_from(host.to_owned()).ok())
    }

    pub(super) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }
}

fn pem_of<'a>(field: &'static str, text: &'a [u8]) -> GivenPem<'a> {
    GivenPem {
        field,
        pem: PemInput::Text(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::error::ErrorKind;

    fn refused(tls: &RedisTls) -> String {
        let error = tls.read().err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.message().to_owned()
    }

    #[test]
    fn bad_settings_are_named_and_not_quoted() {
        let bad = Some(b"secret".to_vec());
        let default = RedisTls::default();
        for (tls, field) in [
            (
                RedisTls {
                    ca: bad.clone(),
                    ..default.clone()
                },
                "tls.ca",
            ),
            (
                RedisTls {
                    cert: bad.clone(),
                    ..default.clone()
                },
                "tls.cert and tls.key",
            ),
            (
                RedisTls {
                    cert: bad.clone(),
                    key: bad.clone(),
                    ..default.clone()
                },
                "tls.cert",
            ),
            (
                RedisTls {
                    servername: Some("se cret".into()),
                    ..default.clone()
                },
                "tls.servername",
            ),
        ] {
            let message = refused(&tls);
            assert!(message.starts_with(field), "{message}");
            assert!(!message.contains("cret\""), "{message}");
            assert!(!format!("{tls:?}").contains("secret"));
        }
        assert!(default.read().is_ok());
    }
}
