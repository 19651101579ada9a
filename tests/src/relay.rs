//! A relay on loopback between commands and a server. It passes on every request, and may falsify
//! the answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use reqwest::{Client, Method, StatusCode};

use crate::browser;

/// Maximum size of a body that the relay forwards, in bytes.
const CEILING: usize = 8 << 20;

/// A falsification of the responses to reads that pass the relay.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Lie {
    /// Passes every response on unchanged.
    #[default]
    None,
    /// Sends the response that the path had when [`Relay::keep`] was called, if it had one.
    Old,
    /// Flips one bit in the middle of each response.
    Changed,
    /// Answers with an empty JSON list.
    Hidden,
}

#[derive(Default)]
struct State {
    lie: Lie,
    seen: BTreeMap<String, Bytes>,
    kept: BTreeMap<String, Bytes>,
    told: usize,
    /// Text in the paths that are refused once as busy; empty for no path.
    busy: String,
    refused: BTreeSet<String>,
}

impl State {
    /// Returns true for the first request to each busy path, which a client should repeat.
    fn refuses(&mut self, path: &str) -> bool {
        let is_busy = !self.busy.is_empty() && path.contains(&self.busy);
        is_busy && self.refused.insert(path.to_owned())
    }

    /// Returns the response to send for the server's response `honest`, falsified as `lie` says.
    fn answer(&mut self, path: &str, honest: &Bytes) -> Bytes {
        self.seen.insert(path.to_owned(), honest.clone());
        let told = match self.lie {
            Lie::None => honest.clone(),
            Lie::Old => self.kept.get(path).unwrap_or(honest).clone(),
            Lie::Changed => {
                let mut bytes = honest.to_vec();
                let middle = bytes.len() / 2;
                if let Some(byte) = bytes.get_mut(middle) {
                    *byte ^= 1;
                }
                bytes.into()
            }
            Lie::Hidden => Bytes::from_static(b"[]"),
        };
        self.told += usize::from(told != honest);
        told
    }
}

/// A running relay between client and service, which stops when the value is dropped.
pub struct Relay {
    state: Arc<Mutex<State>>,
    /// Held because dropping it stops the relay.
    _runtime: tokio::runtime::Runtime,
}

impl Relay {
    /// Listens at this port of loopback, and passes requests on to the server at the address
    /// `server`.
    pub fn start(port: u16, server: String) -> Self {
        let state = Arc::<Mutex<State>>::default();
        let (shared, client) = (Arc::clone(&state), browser::client());
        let router = axum::Router::new().fallback(move |request: Request| {
            let (state, client, server) = (Arc::clone(&shared), client.clone(), server.clone());
            async move {
                let is_read = request.method() == Method::GET;
                let path = request.uri().to_string();
                let is_refused = state.lock().expect("no panic in between").refuses(&path);
                if is_refused {
                    return busy();
                }
                let Some((head, body)) = carry(&client, &server, request).await else {
                    return bad_gateway();
                };
                let mut answer = head;
                let is_good = answer.status() == StatusCode::OK;
                let body = if is_read && is_good {
                    // A client would reject a falsified answer for its wrong length, before it
                    // checks the content.
                    answer.headers_mut().remove("content-length");
                    state
                        .lock()
                        .expect("no panic in between")
                        .answer(&path, &body)
                } else {
                    body
                };
                answer.map(|()| Body::from(body))
            }
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("an event loop");
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind(("127.0.0.1", port)))
            .expect("a free port");
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self {
            state,
            _runtime: runtime,
        }
    }

    /// Stores the latest response to each read so far, for [`Lie::Old`].
    pub fn keep(&self) {
        let mut state = self.state.lock().expect("no panic in between");
        state.kept = state.seen.clone();
    }

    /// From now on, answers 503 to the first request for each path that contains `part`; empty for
    /// no path. Returns the number of requests that it has refused since the last call.
    pub fn be_busy(&self, part: &str) -> usize {
        let mut state = self.state.lock().expect("no panic in between");
        part.clone_into(&mut state.busy);
        std::mem::take(&mut state.refused).len()
    }

    /// Falsifies all later responses in this way. Returns the number of falsified responses since
    /// the last call.
    pub fn lie(&self, lie: Lie) -> usize {
        let mut state = self.state.lock().expect("no panic in between");
        state.lie = lie;
        std::mem::take(&mut state.told)
    }
}

/// Sends a request to a server unchanged, with the header `Host` of the client. Returns the
/// response without its body, and the body; `None` if the server does not answer.
pub async fn carry(
    client: &Client,
    server: &str,
    request: Request,
) -> Option<(Response<()>, Bytes)> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, CEILING).await.ok()?;
    let url = format!("{server}{}", parts.uri.path_and_query()?);
    let sent = client
        .request(parts.method, url)
        .headers(parts.headers)
        .body(body)
        .send()
        .await
        .ok()?;
    let mut head = Response::new(());
    *head.status_mut() = sent.status();
    for (name, value) in sent.headers() {
        if name != "transfer-encoding" && name != "connection" {
            head.headers_mut().append(name, value.clone());
        }
    }
    Some((head, sent.bytes().await.ok()?))
}

/// Returns the answer of a busy service: 503, with `Retry-After` of one second.
fn busy() -> Response {
    let body = r#"{"code":"unavailable","title":"Service Unavailable","status":503}"#;
    let mut answer = Response::new(Body::from(body));
    *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let headers = answer.headers_mut();
    headers.insert("retry-after", "1".parse().expect("a header"));
    let kind = "application/problem+json".parse().expect("a header");
    headers.insert("content-type", kind);
    answer
}

/// Returns an empty answer with the status 502, as a proxy does if the server behind it does not
/// answer.
pub fn bad_gateway() -> Response {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::BAD_GATEWAY;
    answer
}
