//! HTTP client for webhooks, whose addresses owners choose.
//!
//! An owner of a hosted vault must not reach hosts inside the service's own network: the SSRF guard
//! resolves names and connects to public addresses only. No redirect is followed, no proxy is used,
//! and only the status of the answer is read. A service whose public address is on this machine may
//! also send to this machine.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::Method;
use reqwest::header;
use vault_format::address::is_public;
use vault_http::{Client, Guard, HttpError, Limits, Options, Reach};

use crate::config::PublicUrl;
use crate::senders::{SendError, WebhookMessage, Webhooks};

/// Limits of one request. The time for the whole request also bounds a slow answer.
const LIMITS: Limits = Limits {
    connect: Duration::from_secs(5),
    whole: Duration::from_secs(10),
    window: Duration::from_secs(10),
    least: 0,
};

/// HTTP client that sends notices to webhooks; it implements [`Webhooks`].
pub struct Endpoints {
    public: Client,
    /// Client for endpoints on this machine, if they are allowed.
    local: Option<Client>,
}

impl Endpoints {
    /// Creates a client that uses the name resolver and the root certificates of the system. It
    /// reaches this machine only if the public URL of the service is on it too.
    pub fn new(public_url: &PublicUrl) -> Self {
        Self::with_guard(Guard::new(is_public), public_url, &[])
    }

    fn with_guard(guard: Guard, public_url: &PublicUrl, roots: &'static [&'static [u8]]) -> Self {
        let local = Reach::Loopback {
            localhost: None,
            plain: true,
        };
        let options = |reach, https_only| Options {
            limits: LIMITS,
            reach,
            https_only,
            // No connection is reused: the name is resolved and checked for every request.
            reuse: false,
            roots,
        };
        Self {
            public: Client::new(options(Reach::Guarded(guard), true)),
            local: public_url
                .is_loopback()
                .then(|| Client::new(options(local, false))),
        }
    }
}

#[async_trait]
impl Webhooks for Endpoints {
    async fn post(&self, message: &WebhookMessage) -> Result<(), SendError> {
        let client = match &self.local {
            Some(local) if message.address.is_local() => local,
            // The address was permitted when it was stored; the public URL of the service may have
            // changed since.
            None if message.address.is_local() => return Err(SendError::NotPublic),
            _ => &self.public,
        };
        let request = client.new_request(Method::POST, message.address.as_str())?;
        let request = request
            .header(header::CONTENT_TYPE, "application/json")
            .header("webhook-id", &message.id)
            .header("webhook-timestamp", message.at.unix())
            .header("webhook-signature", &message.signature)
            .body(message.body.clone());
        let status = client.send_request(request).await?.status();
        if (200..300).contains(&status) {
            Ok(())
        } else {
            Err(SendError::Status(status))
        }
    }
}

impl From<HttpError> for SendError {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::NotPublic => Self::NotPublic,
            HttpError::Timeout(_) | HttpError::TooSlow(_) => Self::Timeout,
            error => Self::Connection(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::IpAddr;
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use vault_format::time::Timestamp;
    use vault_http::Lookup;

    use super::*;

    /// Starts a server that answers one request with these bytes. Returns its port, and the request
    /// that it receives.
    async fn endpoint(answer: &'static str) -> (u16, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let came = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut came = Vec::new();
            while !came.ends_with(b"{\"a\":1}") {
                assert_ne!(stream.read_buf(&mut came).await.unwrap(), 0);
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8(came).unwrap()
        });
        (port, came)
    }

    fn message(address: &str) -> WebhookMessage {
        WebhookMessage {
            address: address.parse().unwrap(),
            id: "msg_1".to_owned(),
            at: Timestamp::from_unix(1_795_219_200),
            signature: "v1,abc=".to_owned(),
            body: r#"{"a":1}"#.to_owned(),
        }
    }

    fn here() -> PublicUrl {
        "http://127.0.0.1:8080".parse().unwrap()
    }

    #[tokio::test]
    async fn a_request_carries_the_headers_of_standard_webhooks() {
        let (port, came) = endpoint("HTTP/1.1 204 No Content\r\n\r\n").await;
        let address = format!("http://127.0.0.1:{port}/hook?a=b");
        Endpoints::new(&here())
            .post(&message(&address))
            .await
            .unwrap();
        let came = came.await.unwrap();
        assert!(came.starts_with("POST /hook?a=b HTTP/1.1\r\n"), "{came}");
        for header in [
            "content-type: application/json",
            "webhook-id: msg_1",
            "webhook-timestamp: 1795219200",
            "webhook-signature: v1,abc=",
        ] {
            assert!(
                came.contains(&format!("{header}\r\n")),
                "{header} in {came}"
            );
        }
    }

    #[tokio::test]
    async fn a_redirect_is_a_failure_and_is_not_followed() {
        let (to, other) = endpoint("HTTP/1.1 200 OK\r\n\r\n").await;
        let answer = format!(
            "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:{to}/\r\nContent-Length: 0\r\n\r\n"
        );
        let (port, _came) = endpoint(answer.leak()).await;
        let address = format!("http://127.0.0.1:{port}/");
        let sent = Endpoints::new(&here()).post(&message(&address)).await;
        assert!(matches!(sent, Err(SendError::Status(307))), "{sent:?}");
        assert!(!other.is_finished());
    }

    #[tokio::test]
    async fn a_service_elsewhere_sends_nothing_to_its_own_machine() {
        let (port, came) = endpoint("HTTP/1.1 200 OK\r\n\r\n").await;
        let elsewhere = "https://vault.example".parse().unwrap();
        let address = format!("http://127.0.0.1:{port}/");
        let sent = Endpoints::new(&elsewhere).post(&message(&address)).await;
        assert!(matches!(sent, Err(SendError::NotPublic)), "{sent:?}");
        assert!(!came.is_finished());
    }

    /// A resolver that gives a name one public and one private address, as an attacker's name
    /// server can.
    struct Mixed;

    #[async_trait]
    impl Lookup for Mixed {
        async fn lookup_addresses(&self, _host: &str) -> io::Result<Vec<IpAddr>> {
            Ok(vec![[1, 1, 1, 1].into(), [127, 0, 0, 1].into()])
        }
    }

    #[tokio::test]
    async fn a_name_with_a_private_address_gets_no_request() {
        let (port, came) = endpoint("HTTP/1.1 200 OK\r\n\r\n").await;
        let guard = Guard::with_lookup(Arc::new(Mixed), is_public);
        let address = format!("https://hooks.example:{port}/");
        // Even a service on this machine may send to this machine only by a loopback address, not
        // by a name.
        let sent = Endpoints::with_guard(guard, &here(), &[])
            .post(&message(&address))
            .await;
        assert!(matches!(sent, Err(SendError::NotPublic)), "{sent:?}");
        assert!(!came.is_finished());
    }
}
