//! The authorities and certificates that a client trusts.

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;

/// The authorities and certificates that a client trusts.
#[derive(Debug)]
pub(crate) struct Trusted {
    /// The certificates that may sign others.
    pub(crate) authorities: RootCertStore,
    /// Those of them that were given as whole certificates. A server may present one of these as its own.
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
