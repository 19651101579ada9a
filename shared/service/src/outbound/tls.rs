//! Tests that the host of a client's document is proved by its certificate, against a TLS server on
//! loopback whose certificates are those of `tests/certificates`.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::tests::Table;
use super::*;

const AUTHORITY: &[u8] = include_bytes!("../../tests/certificates/authority.pem");
const APP: &[u8] = include_bytes!("../../tests/certificates/app.pem");
const EXPIRED: &[u8] = include_bytes!("../../tests/certificates/expired.pem");
const UNTRUSTED: &[u8] = include_bytes!("../../tests/certificates/untrusted.pem");

/// Starts a server with this certificate that answers every request with the same document; returns
/// its port, and a counter of the requests that came through TLS.
fn server(certificate: &[u8]) -> (u16, Arc<AtomicUsize>) {
    let chain = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<Vec<_>, _>>()
        .unwrap();
    let key = PrivateKeyDer::from_pem_slice(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, stream);
            let mut head = [0; 4096];
            // A client that refuses the certificate sends an alert and no request.
            if stream.read(&mut head).is_ok_and(|length| length > 0) {
                counted.fetch_add(1, Ordering::SeqCst);
                let _ = stream.write_all(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
                );
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        }
    });
    (port, asked)
}

/// The client of the service, except that loopback counts as public, and `roots` are trusted
/// besides the system's certificates.
fn outbound(roots: &'static [&'static [u8]]) -> Outbound {
    let table = Table::of(&[
        ("app.example", &[&["127.0.0.1"]]),
        ("other.example", &[&["127.0.0.1"]]),
    ]);
    Outbound::with_options(Options {
        roots,
        ..request_options(Guard::with_lookup(table, |ip| ip.is_loopback()))
    })
}

/// Joins the texts of all causes of a failure, to check that the certificate was one.
fn causes(error: &FetchError) -> String {
    let mut words = String::new();
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        words.push_str(&format!("{error}; "));
        cause = error.source();
    }
    words
}

#[tokio::test]
async fn requirement_13_a_document_comes_from_who_its_certificate_names() {
    let (port, asked) = server(APP);
    let address = format!("https://app.example:{port}/client.json");
    let fetched = outbound(&[AUTHORITY])
        .fetch_document(&address)
        .await
        .unwrap();
    assert_eq!((fetched.status, &fetched.body[..]), (200, &b"{}"[..]));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn requirement_13_no_request_goes_to_who_has_no_good_certificate() {
    for (certificate, host, roots, why) in [
        // The certificate is for another name.
        (APP, "other.example", &[AUTHORITY][..], "NotValidForName"),
        (APP, "127.0.0.1", &[AUTHORITY], "NotValidForName"),
        // The certificate is from an unknown authority.
        (UNTRUSTED, "app.example", &[AUTHORITY], "UnknownIssuer"),
        (APP, "app.example", &[], "UnknownIssuer"),
        // The certificate has expired.
        (EXPIRED, "app.example", &[AUTHORITY], "Expired"),
    ] {
        let (port, asked) = server(certificate);
        let address = format!("https://{host}:{port}/client.json");
        let refused = outbound(roots).fetch_document(&address).await.unwrap_err();
        assert!(
            matches!(refused, FetchError::Unreachable(_)),
            "{host}: {refused:?}"
        );
        let words = format!("{} {refused:?}", causes(&refused));
        assert!(words.contains(why), "{host}, {why}: {words}");
        assert_eq!(asked.load(Ordering::SeqCst), 0, "{host}, {why}");
    }
}

#[tokio::test]
async fn requirement_13_nothing_is_asked_in_plain_words() {
    // The port speaks TLS, but the address is http, which is refused before any connection.
    let (port, asked) = server(APP);
    let refused = outbound(&[AUTHORITY])
        .fetch_document(&format!("http://app.example:{port}/client.json"))
        .await;
    assert!(
        matches!(refused, Err(FetchError::Unreachable(_))),
        "{refused:?}"
    );
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}
