//! Verifies the certificates of servers as Node does.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{ExtendedKeyUsage, NameConstraints, SubjectAltName};

use super::trusted::Trusted;

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ANY_USE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37.0");
const SERVERS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1");

/// Verifies as much as a [`Check`](super::Check) says.
#[derive(Debug)]
pub(super) struct Verifier {
    /// The authorities to trust. `None` trusts every certificate.
    pub(super) trusted: Option<Trusted>,
    pub(super) checks_name: bool,
    pub(super) provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(trusted) = &self.trusted {
            let is_itself_trusted =
                trusted.certificates.contains(end_entity) && is_self_issued(end_entity);
            if is_itself_trusted {
                // The signature of the handshake proves that the server has the key of the certificate.
                is_usable(&read(end_entity)?, now)?;
            } else {
                self.verify_chain(trusted, end_entity, intermediates, now)?;
            }
            if self.checks_name {
                let may_be_common =
                    is_itself_trusted || are_names_unconstrained(trusted, intermediates);
                verify_name(end_entity, server_name, may_be_common)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

impl Verifier {
    /// Whether an authority has signed the certificate, directly or through others.
    fn verify_chain(
        &self,
        trusted: &Trusted,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let algorithms = self.provider.signature_verification_algorithms.all;
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let authorities = &trusted.authorities;
        verify_server_cert_signed_by_trust_anchor(
            &parsed,
            authorities,
            intermediates,
            now,
            algorithms,
        )
        .map_err(|error| match &error {
            // The library names some property of a certificate that has signed itself. The reason is that nobody trusts it.
            Error::InvalidCertificate(CertificateError::Other(_)) if is_self_issued(end_entity) => {
                CertificateError::UnknownIssuer.into()
            }
            _ => error,
        })
    }
}

/// Whether the certificate is for this server. With `may_be_common`, its common name counts if it has no other names.
fn verify_name(
    certificate: &CertificateDer<'_>,
    name: &ServerName<'_>,
    may_be_common: bool,
) -> Result<(), Error> {
    let Err(error) = verify_server_name(&ParsedCertificate::try_from(certificate)?, name) else {
        return Ok(());
    };
    match name {
        ServerName::DnsName(host)
            if may_be_common
                && common_names(&read(certificate)?).is_some_and(|names| {
                    names.iter().any(|pattern| fits(pattern, host.as_ref()))
                }) =>
        {
            Ok(())
        }
        _ => Err(error),
    }
}

/// The common names of a certificate. `None` if it has alternative names for hosts, which then count alone.
fn common_names(certificate: &Certificate) -> Option<Vec<&str>> {
    let content = &certificate.tbs_certificate;
    let alternatives = content.get::<SubjectAltName>().ok()?;
    let is_host = |name: &GeneralName| matches!(name, GeneralName::DnsName(_));
    if alternatives.is_some_and(|(_, SubjectAltName(names))| names.iter().any(is_host)) {
        return None;
    }
    let parts = content.subject.0.iter().flat_map(|part| part.0.iter());
    let names = parts.filter(|part| part.oid == COMMON_NAME);
    let texts = names.filter_map(|name| std::str::from_utf8(name.value.value()).ok());
    Some(texts.collect())
}

/// Whether a name in a certificate fits a host. `*` in the name stands for the first label.
fn fits(pattern: &str, host: &str) -> bool {
    let [pattern, host] = [pattern, host].map(|name| name.strip_suffix('.').unwrap_or(name));
    match pattern.strip_prefix("*.") {
        None => !host.is_empty() && pattern.eq_ignore_ascii_case(host),
        Some(parent) => {
            parent.contains('.')
                && host.split_once('.').is_some_and(|(label, rest)| {
                    !label.is_empty() && rest.eq_ignore_ascii_case(parent)
                })
        }
    }
}

/// Whether all authorities on the way may sign for any name. The library checks their limits against alternative names only, and not
/// against common names, so a limited authority is not trusted with those.
fn are_names_unconstrained(trusted: &Trusted, intermediates: &[CertificateDer<'_>]) -> bool {
    let mut authorities = trusted.authorities.roots.iter();
    authorities.all(|authority| authority.name_constraints.is_none())
        && intermediates.iter().all(|certificate| {
            read(certificate).is_ok_and(|certificate| {
                let constraints = certificate.tbs_certificate.get::<NameConstraints>();
                matches!(constraints, Ok(None))
            })
        })
}

/// Whether a server may use the certificate now.
fn is_usable(certificate: &Certificate, now: UnixTime) -> Result<(), CertificateError> {
    let content = &certificate.tbs_certificate;
    let [not_before, not_after] = [content.validity.not_before, content.validity.not_after]
        .map(|time| UnixTime::since_unix_epoch(time.to_unix_duration()));
    if now < not_before {
        let time = now;
        return Err(CertificateError::NotValidYetContext { time, not_before });
    }
    if now > not_after {
        let time = now;
        return Err(CertificateError::ExpiredContext { time, not_after });
    }
    let uses = content.get::<ExtendedKeyUsage>();
    match uses.map_err(|_| CertificateError::BadEncoding)? {
        Some((_, ExtendedKeyUsage(uses)))
            if !uses.contains(&SERVERS) && !uses.contains(&ANY_USE) =>
        {
            Err(CertificateError::InvalidPurpose)
        }
        _ => Ok(()),
    }
}

/// Whether a certificate names itself as the authority that has signed it.
fn is_self_issued(certificate: &CertificateDer<'_>) -> bool {
    read(certificate).is_ok_and(|certificate| {
        let content = certificate.tbs_certificate;
        content.subject == content.issuer
    })
}

fn read(certificate: &CertificateDer<'_>) -> Result<Certificate, CertificateError> {
    Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)
}

#[cfg(test)]
mod tests;
