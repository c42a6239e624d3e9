//! TLS through rustls, for every backend: which authorities to trust, and the client's own certificate.
//!
//! The operating system's certificates are not used, so container images without any work the same.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, ClientConfig};

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
    /// The authorities. Certificates that cannot be used are skipped: the user did not choose the default list, and
    /// so cannot be asked to correct it.
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

/// PEM that a user gave, and the name of the setting that it was given in.
pub(crate) struct GivenPem<'a> {
    pub(crate) field: &'static str,
    pub(crate) pem: PemInput<'a>,
}

pub(crate) enum PemInput<'a> {
    Text(&'a [u8]),
    File(&'a Path),
}

impl GivenPem<'_> {
    /// Whom to trust.
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
    /// That a trusted authority has signed it.
    Authority,
    /// The same, and that it is for the host that was asked for.
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
    builder
        .with_client_auth_cert(certificate.certificates()?, key.private_key()?)
        .map_err(|error| {
            let what = format!(
                "{} and {} do not belong together",
                certificate.field, key.field
            );
            Error::invalid(what).with_source(error)
        })
}

/// Whether one side has refused the other's certificate, or its lack: nothing that passes by itself.
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
}
