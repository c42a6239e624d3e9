//! Makes TLS configurations for all backends, by rustls: which authorities to trust, and the client's own certificate.
//!
//! The operating system's certificates are not used, so container images without any work the same.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, ClientConfig};
use x509_cert::der::Decode as _;
use x509_cert::{Certificate, Version};

pub(crate) use self::trusted::Trusted;
use self::verifier::Verifier;
use crate::text::error::Error;

mod trusted;
mod verifier;

/// The authorities that a backend trusts if its settings name none. `Debug` shows no contents.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum DefaultRoots {
    /// Mozilla's list of authorities, which is part of this library.
    #[default]
    Mozilla,
    /// That list, and these certificates in PEM form.
    MozillaAnd(Vec<u8>),
    /// These certificates in PEM form, and no others.
    Only(Vec<u8>),
}

impl DefaultRoots {
    /// Reads the authorities. Certificates that cannot be used are skipped, because the user did not choose the default list and cannot
    /// correct it.
    pub(crate) fn read(&self) -> Trusted {
        let mut trusted = Trusted::nobody();
        let more = match self {
            Self::Mozilla => None,
            Self::MozillaAnd(more) => Some(more),
            Self::Only(all) => Some(all),
        };
        if !matches!(self, Self::Only(_)) {
            let mozillas = webpki_roots::TLS_SERVER_ROOTS.iter().cloned();
            trusted.authorities.extend(mozillas);
        }
        if let Some(pem) = more {
            for certificate in CertificateDer::pem_slice_iter(pem).map_while(Result::ok) {
                let _ = trusted.add(certificate);
            }
        }
        trusted
    }
}

impl fmt::Debug for DefaultRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mozilla => "Mozilla",
            Self::MozillaAnd(_) => "MozillaAnd(…)",
            Self::Only(_) => "Only(…)",
        })
    }
}

/// PEM that a user gave, and the name of its setting.
pub(crate) struct GivenPem<'a> {
    pub(crate) field: &'static str,
    pub(crate) pem: PemInput<'a>,
}

pub(crate) enum PemInput<'a> {
    Text(&'a [u8]),
    File(&'a Path),
}

impl GivenPem<'_> {
    /// Reads the certificates as those to trust.
    pub(crate) fn trusted(&self) -> Result<Trusted, Error> {
        let mut trusted = Trusted::nobody();
        for certificate in self.certificates()? {
            trusted.add(certificate).map_err(|error| {
                let what = format!("{} holds a certificate that cannot be used", self.field);
                Error::invalid(what).with_source(error)
            })?;
        }
        Ok(trusted)
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, Error> {
        let read = || -> Result<Vec<_>, PemError> {
            match self.pem {
                PemInput::Text(text) => CertificateDer::pem_slice_iter(text).collect(),
                PemInput::File(path) => CertificateDer::pem_file_iter(path)?.collect(),
            }
        };
        let found = read().map_err(|error| self.unreadable(error))?;
        if found.is_empty() {
            return Err(Error::invalid(format!(
                "{} holds no certificate in PEM form",
                self.field
            )));
        }
        Ok(found)
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>, Error> {
        let read = match self.pem {
            PemInput::Text(text) => PrivateKeyDer::from_pem_slice(text),
            PemInput::File(path) => PrivateKeyDer::from_pem_file(path),
        };
        read.map_err(|error| self.unreadable(error))
    }

    fn unreadable(&self, error: PemError) -> Error {
        Error::invalid(format!("{} cannot be read as PEM", self.field)).with_source(error)
    }
}

/// What to check of a server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// Nothing. The connection is not protected from anybody in between.
    Nothing,
    /// Whether a trusted authority has signed it.
    Authority,
    /// Whether a trusted authority has signed it, and it is for the host that was asked for.
    AuthorityAndName,
}

/// The TLS configuration of connections. `identity` is the client's certificate and its key.
pub(crate) fn client_config(
    check: Check,
    trusted: Trusted,
    identity: Option<(GivenPem<'_>, GivenPem<'_>)>,
) -> Result<ClientConfig, Error> {
    let unusable = |error| Error::invalid("TLS cannot be set up").with_source(error);
    let provider = Arc::new(aws_lc_rs::default_provider());
    let trusted = match check {
        Check::Nothing => None,
        _ if trusted.authorities.is_empty() => {
            return Err(Error::invalid("there is no authority to trust"));
        }
        Check::Authority | Check::AuthorityAndName => Some(trusted),
    };
    let verifier = Verifier {
        trusted,
        checks_name: check == Check::AuthorityAndName,
        provider: Arc::clone(&provider),
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let Some((certificate, key)) = identity else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificate.certificates()?;
    let is_old = chain.first().is_some_and(is_of_version_1);
    builder
        .with_client_auth_cert(chain, key.private_key()?)
        .map_err(|error| {
            let (certificate, key) = (certificate.field, key.field);
            let what = match error {
                rustls::Error::InvalidCertificate(_) if is_old => {
                    format!("{certificate} is an X.509 certificate of version 1, and version 3 is needed")
                }
                rustls::Error::InvalidCertificate(_) => {
                    format!("{certificate} holds a certificate that cannot be used")
                }
                rustls::Error::InconsistentKeys(_) => {
                    format!("{certificate} and {key} do not belong together")
                }
                _ => format!("{key} holds a private key that cannot be used"),
            };
            Error::invalid(what).with_source(error)
        })
}

/// Whether the certificate is of the version that has no extensions. `openssl x509 -req` makes such ones if it is given none.
fn is_of_version_1(certificate: &CertificateDer<'static>) -> bool {
    let read = Certificate::from_der(certificate);
    read.is_ok_and(|certificate| certificate.tbs_certificate.version == Version::V1)
}

/// Whether one side has refused the other because of its certificate, or because it has none. That does not pass by itself.
pub(crate) fn is_refusal(error: &rustls::Error) -> bool {
    use AlertDescription as Alert;
    match error {
        rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => true,
        rustls::Error::AlertReceived(alert) => matches!(
            alert,
            Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied
                | Alert::CertificateRequired
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use x509_cert::der::Encode as _;

    use super::*;

    fn authority() -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.self_signed(&key).unwrap().pem()
    }

    #[test]
    fn defaults_are_mozillas_list_or_what_is_given() {
        let mozilla = webpki_roots::TLS_SERVER_ROOTS.len();
        let two = format!("{}# a comment\n{}", authority(), authority()).into_bytes();
        assert_eq!(DefaultRoots::Mozilla.read().authorities.len(), mozilla);
        let more = DefaultRoots::MozillaAnd(two.clone());
        assert_eq!(more.read().authorities.len(), mozilla + 2);
        assert_eq!(DefaultRoots::Only(two).read().authorities.len(), 2);
    }

    #[test]
    fn what_cannot_be_used_among_defaults_is_passed_over() {
        let no_certificate =
            "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n".to_owned();
        for (pem, count) in [
            (String::new(), 0),
            ("no PEM".to_owned(), 0),
            (no_certificate.clone() + &authority(), 1),
            (
                authority() + "-----BEGIN CERTIFICATE-----\n%\n-----END CERTIFICATE-----\n",
                1,
            ),
        ] {
            let trusted = DefaultRoots::Only(pem.clone().into_bytes()).read();
            assert_eq!(trusted.authorities.len(), count, "{pem}");
        }
        let without_certificate = GivenPem {
            field: "ca",
            pem: PemInput::Text(no_certificate.as_bytes()),
        };
        assert!(
            without_certificate
                .trusted()
                .unwrap_err()
                .message()
                .starts_with("ca ")
        );
    }

    fn refusal_of_identity(certificate: &str, key: &str) -> String {
        let identity = [("sslcert", certificate), ("sslkey", key)].map(|(field, text)| GivenPem {
            field,
            pem: PemInput::Text(text.as_bytes()),
        });
        let [certificate, key] = identity;
        let config = client_config(Check::Nothing, Trusted::nobody(), Some((certificate, key)));
        config.unwrap_err().message().to_owned()
    }

    #[test]
    fn a_client_certificate_that_cannot_be_used_is_called_what_it_is() {
        let [key, other] = [(); 2].map(|()| rcgen::KeyPair::generate().unwrap());
        let params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        let made = params.self_signed(&key).unwrap();
        let message = refusal_of_identity(&made.pem(), &other.serialize_pem());
        assert!(message.contains("sslcert and sslkey do not belong together"));
        let mut old = Certificate::from_der(made.der()).unwrap();
        old.tbs_certificate.version = Version::V1;
        old.tbs_certificate.extensions = None;
        let old = STANDARD.encode(old.to_der().unwrap());
        let old = format!("-----BEGIN CERTIFICATE-----\n{old}\n-----END CERTIFICATE-----\n");
        let message = refusal_of_identity(&old, &key.serialize_pem());
        assert!(
            message.starts_with("sslcert is an X.509 certificate of version 1"),
            "{message}"
        );
    }
}
