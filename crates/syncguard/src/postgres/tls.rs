//! TLS as libpq's modes want it, through rustls.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::config::{Pem, SslMode, Tls};
use crate::error::Error;

/// Starts TLS on connections.
#[derive(Clone)]
pub(super) struct Connector {
    rustls: MakeRustlsConnect,
    server_name: Option<String>,
}

impl Connector {
    /// Reads certificates and keys.
    pub(super) fn new(tls: &Tls) -> Result<Self, Error> {
        Ok(Self {
            rustls: MakeRustlsConnect::new(client_config(tls)?),
            server_name: tls.server_name.clone(),
        })
    }
}

impl<S> MakeTlsConnect<S> for Connector
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
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::invalid("TLS cannot be set up").with_source(error))?;
    let roots = roots(tls.root.as_ref())?;
    let checks_authority = match tls.mode {
        SslMode::Disable | SslMode::Allow | SslMode::Prefer => false,
        // As libpq: with authorities at hand, "require" checks them.
        SslMode::Require => tls.root.is_some(),
        SslMode::VerifyCa | SslMode::VerifyFull => true,
    };
    let builder = if tls.mode == SslMode::VerifyFull {
        builder.with_root_certificates(roots)
    } else {
        let authority = if checks_authority {
            let verifier =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
            Some(verifier.build().map_err(|error| {
                Error::invalid("sslrootcert holds no authority to trust").with_source(error)
            })?)
        } else {
            None
        };
        let lenient = Lenient {
            authority,
            provider,
        };
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(lenient))
    };
    match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => builder
            .with_client_auth_cert(certificates("sslcert", certificate)?, private_key(key)?)
            .map_err(|error| Error::invalid("sslcert and sslkey do not fit").with_source(error)),
        _ => Ok(builder.with_no_client_auth()),
    }
}

fn roots(pem: Option<&Pem>) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    match pem {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(pem) => {
            for certificate in certificates("sslrootcert", pem)? {
                roots.add(certificate).map_err(|error| {
                    Error::invalid("sslrootcert holds a certificate that is none")
                        .with_source(error)
                })?;
            }
        }
    }
    Ok(roots)
}

fn certificates(field: &str, pem: &Pem) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = || -> Result<Vec<_>, rustls::pki_types::pem::Error> {
        match pem {
            Pem::File(path) => CertificateDer::pem_file_iter(path)?.collect(),
            Pem::Text(text) => CertificateDer::pem_slice_iter(text.as_bytes()).collect(),
        }
    };
    let found = read().map_err(|error| unreadable(field, error))?;
    if found.is_empty() {
        return Err(Error::invalid(format!("{field} holds no certificate")));
    }
    Ok(found)
}

fn private_key(pem: &Pem) -> Result<PrivateKeyDer<'static>, Error> {
    let read = match pem {
        Pem::File(path) => PrivateKeyDer::from_pem_file(path),
        Pem::Text(text) => PrivateKeyDer::from_pem_slice(text.as_bytes()),
    };
    read.map_err(|error| unreadable("sslkey", error))
}

fn unreadable(field: &str, error: rustls::pki_types::pem::Error) -> Error {
    Error::invalid(format!("{field} cannot be read as PEM")).with_source(error)
}

/// Checks less than everything: not the name, or not even the authority.
#[derive(Debug)]
struct Lenient {
    authority: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(authority) = &self.authority else {
            return Ok(ServerCertVerified::assertion());
        };
        let verified = authority.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            // The name is what is checked last.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
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
