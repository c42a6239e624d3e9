//! Whom to trust.

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;

/// Whom to trust.
#[derive(Debug)]
pub(crate) struct Trusted {
    /// As authorities.
    pub(crate) authorities: RootCertStore,
    /// The certificates among them that were given as such: a server may present one of them as its own.
    pub(super) certificates: Vec<CertificateDer<'static>>,
}

impl Trusted {
    pub(super) fn nobody() -> Self {
        Self {
            authorities: RootCertStore::empty(),
            certificates: Vec::new(),
        }
    }

    pub(super) fn add(
        &mut self,
        certificate: CertificateDer<'static>,
    ) -> Result<(), rustls::Error> {
        self.authorities.add(certificate.clone())?;
        self.certificates.push(certificate);
        Ok(())
    }
}
