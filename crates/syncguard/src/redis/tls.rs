//! TLS settings.

use std::fmt;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::error::{Error, ErrorKind};

/// How to trust the server, and how to be trusted by it. All files are PEM.
///
/// `Debug` shows no contents.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisTls {
    /// The certificates to trust, instead of the operating system's.
    pub ca: Option<Vec<u8>>,
    /// The certificate to show, with those that vouch for it.
    pub cert: Option<Vec<u8>>,
    /// Its private key.
    pub key: Option<Vec<u8>>,
    /// The name that the server's certificate must have, instead of the host.
    pub servername: Option<String>,
    /// Whether a certificate that cannot be trusted ends the connection. `false` protects from
    /// nobody who can be in between.
    pub reject_unauthorized: bool,
}

impl Default for RedisTls {
    fn default() -> Self {
        Self {
            ca: None,
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

/// Settings that were read, and the certificates of the operating system if they are needed.
#[derive(Clone)]
pub(super) struct Trust {
    roots: Option<RootCertStore>,
    identity: Option<(Vec<CertificateDer<'static>>, Arc<PrivateKeyDer<'static>>)>,
    servername: Option<ServerName<'static>>,
    reject_unauthorized: bool,
}

impl RedisTls {
    /// Reads the PEM texts; no I/O.
    pub(super) fn read(&self) -> Result<Trust, Error> {
        let roots = self.ca.as_deref().map(read_roots).transpose()?;
        let identity = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let certs = read_certificates("tls.cert", cert)?;
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|_| Error::invalid("tls.key must be a private key in PEM form"))?;
                Some((certs, Arc::new(key)))
            }
            (None, None) => None,
            _ => return Err(Error::invalid("tls.cert and tls.key need each other")),
        };
        let servername = self
            .servername
            .clone()
            .map(ServerName::try_from)
            .transpose()
            .map_err(|_| Error::invalid("tls.servername must be a host name or an address"))?;
        let trust = Trust {
            roots,
            identity,
            servername,
            reject_unauthorized: self.reject_unauthorized,
        };
        if trust.roots.is_some() || !trust.reject_unauthorized {
            // The rest of what can be wrong, such as a key that is not the certificate's.
            trust.client_config()?;
        }
        Ok(trust)
    }
}

impl Trust {
    /// The name that the certificate of the server at `host` must have; `None` if there is no such
    /// name.
    pub(super) fn name_of(&self, host: &str) -> Option<ServerName<'static>> {
        // Wherever the server is: Sentinels tell addresses.
        self.servername
            .clone()
            .or_else(|| ServerName::try_from(host.to_owned()).ok())
    }

    /// Reads the operating system's certificates if they are needed: file I/O.
    pub(super) fn client_config(&self) -> Result<ClientConfig, Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = if self.reject_unauthorized {
            let roots = match &self.roots {
                Some(roots) => roots.clone(),
                None => system_roots(),
            };
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .build()
                .map_err(|error| {
                    Error::new(
                        ErrorKind::ServiceUnavailable,
                        "no certificate to trust was found: set tls.ca",
                    )
                    .with_source(error)
                })?
        } else {
            Arc::new(Trusting(Arc::clone(&provider)))
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(bad_settings)?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        match &self.identity {
            Some((certs, key)) => builder
                .with_client_auth_cert(certs.clone(), key.clone_key())
                .map_err(bad_settings),
            None => Ok(builder.with_no_client_auth()),
        }
    }
}

fn bad_settings(error: rustls::Error) -> Error {
    Error::invalid("tls.cert and tls.key do not fit each other or cannot be used")
        .with_source(error)
}

fn read_certificates(field: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let certs: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certs {
        Ok(certs) if !certs.is_empty() => Ok(certs),
        _ => Err(Error::invalid(format!(
            "{field} must be certificates in PEM form"
        ))),
    }
}

fn read_roots(pem: &[u8]) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for cert in read_certificates("tls.ca", pem)? {
        roots
            .add(cert)
            .map_err(|_| Error::invalid("tls.ca holds a certificate that cannot be used"))?;
    }
    Ok(roots)
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // One that cannot be read must not keep the others from being used.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Takes any certificate: `reject_unauthorized` is `false`.
#[derive(Debug)]
struct Trusting(Arc<CryptoProvider>);

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
