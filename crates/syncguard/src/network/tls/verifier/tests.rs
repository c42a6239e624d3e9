use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa,
    Issuer, KeyPair, NameConstraints as Constraints, date_time_ymd,
};
use rustls::crypto::aws_lc_rs;

use super::super::{GivenPem, PemInput};
use super::*;

/// A server's certificate, and the authority or certificate that is given as `ca`.
struct TestCertificate {
    presented: CertificateDer<'static>,
    ca: String,
}

/// What `openssl req -x509` makes: it is its own authority.
fn itself(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> TestCertificate {
    let mut params = named(names, "locks.example");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut params);
    let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
    TestCertificate {
        presented: made.der().clone(),
        ca: made.pem(),
    }
}

/// A certificate that an authority has signed.
fn signed(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> TestCertificate {
    let key = KeyPair::generate().unwrap();
    let mut authority = named(&[], "an authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut authority);
    let ca = authority.self_signed(&key).unwrap().pem();
    let params = named(names, "locks.example");
    let issuer = Issuer::new(authority, key);
    let made = params.signed_by(&KeyPair::generate().unwrap(), &issuer);
    TestCertificate {
        presented: made.unwrap().der().clone(),
        ca,
    }
}

fn named(names: &[&str], common: &str) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2030, 1, 1);
    params.distinguished_name.push(DnType::CommonName, common);
    params
}

impl TestCertificate {
    fn verified(&self, ca: &str, name: &str, checks_name: bool, year: u64) -> Result<(), Error> {
        let pem = PemInput::Text(ca.as_bytes());
        let verifier = Verifier {
            trusted: Some(GivenPem { field: "ca", pem }.trusted().unwrap()),
            checks_name,
            provider: Arc::new(aws_lc_rs::default_provider()),
        };
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let seconds = (year - 1970) * 31_557_600;
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        verifier
            .verify_server_cert(&self.presented, &[], &name, &[], now)
            .map(drop)
    }

    /// Whether it is accepted in 2026 for a host of that name.
    fn is_accepted(&self, name: &str) -> bool {
        self.verified(&self.ca, name, true, 2026).is_ok()
    }
}

#[test]
fn a_server_may_be_its_own_authority() {
    let made = itself(&["locks.example", "127.0.0.1"], |_| {});
    assert!(made.is_accepted("locks.example") && made.is_accepted("127.0.0.1"));
    let verified = |ca: &str, name, checks_name, year| {
        let error = made.verified(ca, name, checks_name, year).unwrap_err();
        format!("{error:?}")
    };
    assert!(verified(&made.ca, "other.example", true, 2026).contains("NotValidForName"));
    assert!(
        made.verified(&made.ca, "other.example", false, 2026)
            .is_ok()
    );
    for checks_name in [false, true] {
        let late = verified(&made.ca, "locks.example", checks_name, 2031);
        assert!(late.contains("Expired"), "{late}");
        let early = verified(&made.ca, "locks.example", checks_name, 2019);
        assert!(early.contains("NotValidYet"), "{early}");
    }
    // One of the same names with another key.
    let other = itself(&["locks.example"], |_| {});
    let unknown = verified(&other.ca, "locks.example", true, 2026);
    assert!(unknown.contains("UnknownIssuer"), "{unknown}");
}

#[test]
fn a_certificate_for_clients_is_none_for_servers() {
    let for_clients = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    };
    assert!(!itself(&["locks.example"], for_clients).is_accepted("locks.example"));
    let for_both = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
    };
    assert!(itself(&["locks.example"], for_both).is_accepted("locks.example"));
}

#[test]
fn a_common_name_counts_where_there_is_no_other() {
    for made in [itself(&[], |_| {}), signed(&[], |_| {})] {
        assert!(made.is_accepted("locks.example") && made.is_accepted("LOCKS.example"));
        assert!(!made.is_accepted("other.example") && !made.is_accepted("127.0.0.1"));
    }
    // Addresses are no names of this kind.
    assert!(itself(&["127.0.0.1"], |_| {}).is_accepted("locks.example"));
    for made in [
        itself(&["other.example"], |_| {}),
        signed(&["other.example"], |_| {}),
    ] {
        assert!(!made.is_accepted("locks.example") && made.is_accepted("other.example"));
    }
}

#[test]
fn an_authority_that_may_sign_for_some_names_only_signs_for_no_common_name() {
    let constrained = |params: &mut CertificateParams| {
        params.name_constraints = Some(Constraints {
            permitted_subtrees: vec![GeneralSubtree::DnsName("allowed.example".to_owned())],
            excluded_subtrees: Vec::new(),
        });
    };
    assert!(!signed(&[], constrained).is_accepted("locks.example"));
    assert!(signed(&["a.allowed.example"], constrained).is_accepted("a.allowed.example"));
}

#[test]
fn a_star_stands_for_one_label() {
    for (pattern, host, does_fit) in [
        ("a.example", "a.example", true),
        ("a.example", "A.Example.", true),
        ("*.a.example", "b.a.example", true),
        ("*.a.example", "c.b.a.example", false),
        ("*.a.example", "a.example", false),
        ("*.a.example", ".a.example", false),
        ("*.example", "a.example", false),
        ("*", "a", false),
        ("a*.example.org", "ab.example.org", false),
        ("", "", false),
    ] {
        assert_eq!(fits(pattern, host), does_fit, "{pattern} {host}");
    }
}
