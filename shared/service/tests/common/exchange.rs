//! Requests and their answers as they were on the wire: what the reference of the routes is written
//! from and held to.

use std::cell::RefCell;
use std::sync::OnceLock;

use axum::Router;
use axum::body::{Body, HttpBody as _, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use bytes::Bytes;
use tower::ServiceExt as _;

/// One request and its answer.
#[derive(Clone)]
pub struct Exchange {
    pub method: Method,
    /// Path and query.
    pub target: String,
    pub request_headers: HeaderMap,
    pub request_body: Bytes,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// What every answer is held to, where a test program has set it.
pub static CHECK: OnceLock<fn(&Exchange)> = OnceLock::new();

thread_local! {
    static LAST: RefCell<Option<Exchange>> = const { RefCell::new(None) };
}

/// The last exchange of this test.
pub fn last() -> Exchange {
    LAST.with_borrow(Clone::clone).unwrap()
}

/// Sends one request through a router and reads the answer to its end.
pub async fn send(router: Router, request: Request<Body>) -> Exchange {
    let (parts, body) = request.into_parts();
    // A body of unknown length is about how it arrives, and stays as it is.
    let (request_body, body) = if body.size_hint().exact().is_some() {
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        (bytes.clone(), Body::from(bytes))
    } else {
        (Bytes::new(), body)
    };
    let (method, target) = (parts.method.clone(), parts.uri.to_string());
    let request_headers = parts.headers.clone();
    let request = Request::from_parts(parts, body);
    let (answer, body) = router.oneshot(request).await.unwrap().into_parts();
    let exchange = Exchange {
        method,
        target,
        request_headers,
        request_body,
        status: answer.status,
        headers: answer.headers,
        body: to_bytes(body, usize::MAX).await.unwrap(),
    };
    if let Some(check) = CHECK.get() {
        check(&exchange);
    }
    LAST.set(Some(exchange.clone()));
    exchange
}
