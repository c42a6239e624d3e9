//! Firestore over TLS, with an authority of one's own.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use syncguard::firestore::{Credentials, Endpoint, FirestoreBackend, FirestoreConfig};
use syncguard::{DefaultRoots, Error, ErrorKind};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::stage::Server;
use crate::support::certificates::Certificates;
use crate::support::locks::try_acquire;
use crate::support::suite::tests;

tests![a_server_may_be_its_own_authority];

/// Takes the TLS off before an emulator.
async fn front(server: SocketAddr, made: &Certificates) -> (u16, JoinSet<()>) {
    let certificate = CertificateDer::from_pem_slice(made.server_cert.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(made.server_key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut pumps = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            pumps.spawn(async move {
                if let Ok(mut client) = acceptor.accept(client).await {
                    let mut server = TcpStream::connect(server).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                }
            });
        }
    });
    (port, tasks)
}

/// The key of a service account, which signs its tokens by itself.
fn service_account() -> Credentials {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
    let key = serde_json::json!({
        "type": "service_account", "client_email": "a@b", "private_key": key.serialize_pem(),
    });
    Credentials::Json(key.to_string())
}

async fn a_server_may_be_its_own_authority() {
    let server = Server::start();
    let check = async |made: &Certificates, trusted: &Certificates| -> Result<(), Error> {
        let (port, _tasks) = front(server.emulator.address(), made).await;
        let backend = FirestoreBackend::new(FirestoreConfig {
            endpoint: Some(Endpoint {
                host: format!("localhost:{port}"),
                tls: true,
            }),
            credentials: service_account(),
            default_roots: DefaultRoots::Only(trusted.ca.clone().into_bytes()),
            ..FirestoreConfig::project("test")
        })?;
        try_acquire(&backend, "k").await.map(drop)
    };
    let made = Certificates::by_openssl(&["-addext", "subjectAltName=DNS:localhost"], None);
    check(&made, &made).await.unwrap();
    let other = Certificates::by_openssl(&["-addext", "subjectAltName=DNS:localhost"], None);
    let elsewhere = Certificates::by_openssl(&[], None);
    for (made, trusted) in [(&made, &other), (&elsewhere, &elsewhere)] {
        let error = check(made, trusted).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AuthFailed, "{error:?}");
        assert!(error.message().contains("certificate"), "{error}");
    }
}
