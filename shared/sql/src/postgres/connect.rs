//! Creates a pool of connections from an address, with TLS where the address requires it.
//!
//! `sslmode=disable` never uses TLS. Without `sslmode`, the connection to a server on this machine
//! is not encrypted, and every other connection uses TLS or fails: an attacker on the network could
//! otherwise refuse TLS in the server's name and read the password. `require` (and `verify-ca`,
//! `verify-full`) always uses TLS. Certificates are always verified, against the system's roots or
//! the file in `sslrootcert`: an unverified certificate does not stop an attacker on the network.

use std::net::IpAddr;
use std::time::Duration;

use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::lease::Connections;
use crate::SqlError;

/// Maximum number of connections that one service opens. PostgreSQL allows 100 for all clients
/// together by default.
pub const CONNECTIONS: usize = 16;

/// Begins the transaction of a commit. With "read committed", each statement sees everything that
/// was committed before that statement, not only before the first one. A statement that waits for a
/// lock for more than 2 s fails.
pub const BEGIN: &str = "begin isolation level read committed; set local lock_timeout = 2000";

/// Settings of each connection. The timeouts make the server end the statements and transactions
/// that a crashed or hanging service left open, so that their locks are released.
const SESSION: &str = "set idle_in_transaction_session_timeout = 10000; set statement_timeout = 10000; set client_min_messages = warning";

/// Creates the pool for an address. It opens no connection yet.
pub fn create_pool(url: &str, patience: Duration) -> Result<Connections, SqlError> {
    let (url, authority) = take_authority(url)?;
    let mut config: Config = url.parse().map_err(SqlError::ServerAddress)?;
    config.application_name("vault");
    config.connect_timeout(patience);
    config.keepalives_idle(Duration::from_secs(30));
    // Without this limit, a request would hang on a server that vanished without closing the
    // connection.
    config.tcp_user_timeout(Duration::from_secs(10));
    let recycling = ManagerConfig {
        // The fast method does not test a pooled connection, which would cost a round trip per
        // request. If the connection is dead, its first statement fails, and the caller retries on
        // a new one.
        recycling_method: RecyclingMethod::Fast,
    };
    let manager = if wants_tls(&config) {
        // Set the mode that was decided here: with `prefer`, the client would continue without TLS
        // if the server refused it.
        config.ssl_mode(SslMode::Require);
        Manager::from_config(config, tls_connector(authority.as_deref())?, recycling)
    } else {
        Manager::from_config(config, NoTls, recycling)
    };
    let pool = Pool::builder(manager)
        .max_size(CONNECTIONS)
        .wait_timeout(Some(patience))
        .create_timeout(Some(patience))
        .recycle_timeout(Some(patience))
        .post_create(Hook::async_fn(|client, _| {
            Box::pin(async {
                client
                    .batch_execute(SESSION)
                    .await
                    .map_err(HookError::Backend)
            })
        }))
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(SqlError::from_source)?;
    Ok(Connections::new(pool))
}

/// Splits `sslrootcert` from an address, and replaces the values of `sslmode` that tokio-postgres
/// does not know.
fn take_authority(url: &str) -> Result<(String, Option<String>), SqlError> {
    let Some((base, query)) = url.split_once('?') else {
        return Ok((url.to_owned(), None));
    };
    let mut authority = None;
    let mut kept_pairs = Vec::new();
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("sslrootcert", value)) => authority = Some(percent_decoded(value)?),
            // `require` verifies as much here, because a certificate is always verified.
            Some(("sslmode", "verify-ca" | "verify-full")) => kept_pairs.push("sslmode=require"),
            // `allow` would try without encryption first. `prefer` lets `wants_tls` decide by the
            // host instead.
            Some(("sslmode", "allow")) => kept_pairs.push("sslmode=prefer"),
            _ => kept_pairs.push(pair),
        }
    }
    Ok((format!("{base}?{}", kept_pairs.join("&")), authority))
}

fn percent_decoded(text: &str) -> Result<String, SqlError> {
    let odd = || SqlError::Address("sslrootcert is not well formed");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('%') {
        bytes.extend(before.as_bytes());
        let digits = behind
            .get(..2)
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let byte = digits
            .and_then(|digits| u8::from_str_radix(digits, 16).ok())
            .ok_or_else(odd)?;
        bytes.push(byte);
        rest = &behind[2..];
    }
    bytes.extend(rest.as_bytes());
    String::from_utf8(bytes).map_err(|_| odd())
}

fn wants_tls(config: &Config) -> bool {
    match config.get_ssl_mode() {
        SslMode::Disable => false,
        // If there is a `hostaddr`, the client connects to it and not to the host.
        SslMode::Prefer => {
            !(config.get_hosts().iter().all(is_local)
                && config.get_hostaddrs().iter().all(IpAddr::is_loopback))
        }
        _ => true,
    }
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

fn tls_connector(authority: Option<&str>) -> Result<MakeRustlsConnect, SqlError> {
    let unusable = |reason: &dyn std::fmt::Display| SqlError::Certificates(reason.to_string());
    let Some(file) = authority else {
        // The loader of the system's root certificates uses the process-wide provider. Ring is the
        // only one that is linked, so an error means that it is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        return MakeRustlsConnect::with_native_certs()
            .map(|(connector, _)| connector)
            .map_err(|_| {
                unusable(&"this system has no root certificates; name a file in sslrootcert")
            });
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|e| unusable(&e))? {
        roots
            .add(certificate.map_err(|e| unusable(&e))?)
            .map_err(|e| unusable(&e))?;
    }
    // Without any root, every connection would fail with a message that does not name the file.
    if roots.is_empty() {
        return Err(unusable(&"the file in sslrootcert holds none"));
    }
    let config =
        ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(|e| unusable(&e))?
            .with_root_certificates(roots)
            .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn the_authority_is_taken_out_of_the_address() {
        let cases = [
            ("postgres://h/d", "postgres://h/d", None),
            (
                "postgres://h/d?sslmode=require",
                "postgres://h/d?sslmode=require",
                None,
            ),
            (
                "postgres://h/d?sslmode=verify-full",
                "postgres://h/d?sslmode=require",
                None,
            ),
            (
                "postgres://h/d?sslrootcert=/a%20b/c%25.pem&sslmode=verify-ca&connect_timeout=1",
                "postgres://h/d?sslmode=require&connect_timeout=1",
                Some("/a b/c%.pem"),
            ),
        ];
        for (url, left, file) in cases {
            let taken = take_authority(url).unwrap();
            assert_eq!(taken, (left.to_owned(), file.map(str::to_owned)), "{url}");
        }
        for odd in ["%", "%1", "%zz", "a%+1", "%ff"] {
            assert!(percent_decoded(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn only_a_server_elsewhere_or_an_address_that_says_so_gets_tls() {
        let cases = [
            ("postgres://localhost/d", false),
            ("postgres://127.0.0.1/d", false),
            ("postgres://[::1]/d", false),
            ("postgres:///d?host=/run/postgresql", false),
            ("postgres://localhost/d?sslmode=require", true),
            ("postgres://db.example/d", true),
            ("postgres://10.0.0.1/d", true),
            ("postgres://localhost,db.example/d", true),
            ("postgres://db.example/d?sslmode=disable", false),
            ("postgres://db.example/d?sslmode=prefer", true),
            ("postgres:///d?hostaddr=127.0.0.1", false),
            ("postgres:///d?hostaddr=10.0.0.1", true),
            ("postgres://localhost/d?hostaddr=10.0.0.1", true),
            ("postgres://db.example/d?hostaddr=127.0.0.1", true),
        ];
        for (url, tls) in cases {
            assert_eq!(wants_tls(&url.parse().unwrap()), tls, "{url}");
        }
    }

    /// Stands where a server elsewhere should, and says that it has no TLS, as whoever stands
    /// between can.
    #[tokio::test]
    async fn a_server_elsewhere_that_refuses_tls_is_told_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut asked = [0; 8];
            client.read_exact(&mut asked).await.unwrap();
            assert_eq!(
                asked[4..],
                80_877_103_i32.to_be_bytes(),
                "a request for TLS"
            );
            client.write_all(b"N").await.unwrap();
            let mut told = Vec::new();
            client.read_to_end(&mut told).await.unwrap();
            told
        });
        let files = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls");
        let url = format!(
            "postgres://vault:secret@db.example:{port}/vault?hostaddr=127.0.0.1&sslrootcert={files}/ca.pem"
        );
        let connections = create_pool(&url, Duration::from_secs(5)).unwrap();
        assert!(connections.lease_connection(false).await.is_err());
        assert_eq!(server.await.unwrap(), b"", "neither name nor password");
    }
}
