//! Steps that every request passes, whatever its route: limits, a request id, the time limit of its
//! handler, one log line, and the headers of all answers. Nothing here depends on the route.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::header::{self, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use tokio::time::{Instant, timeout};
use tower::ServiceExt;
use vault_format::text::error_chain;

use crate::app::App;
use crate::devices::DeviceRoutes;
use crate::error::{ErrorCode, Fault, Refusal};
use crate::http::{LogFields, Logged, drop_body, raw_path};
use crate::route::LogGroups;
use crate::web::error_page::ErrorPage;
use crate::web::host::names_our_host;
use crate::web::welcome;

/// Maximum total size of header fields, in bytes of names and values; above it 431.
pub const MAX_HEADER_BYTES: usize = 16 * 1024;
/// Maximum length of a path, in bytes; above it 414.
pub const MAX_PATH_BYTES: usize = 1024;
/// Maximum length of a request target, path and query, in bytes; above it 414. No legitimate client
/// sends a longer query.
pub const MAX_TARGET_BYTES: usize = 16 * 1024;
/// Maximum time that a handler may take; above it 503.
pub const HANDLER_TIME: Duration = Duration::from_secs(20);

/// The entry point of every request, in the server, in the functions and in tests.
pub(crate) struct Edge {
    app: App,
    routes: Router,
    hosted: DeviceRoutes,
    groups: LogGroups,
}

impl Edge {
    /// Creates an edge that sends requests under `/v/` to `hosted` and all others to `routes`.
    /// `groups` gives the name of each request in the log.
    pub(crate) const fn new(
        app: App,
        routes: Router,
        hosted: DeviceRoutes,
        groups: LogGroups,
    ) -> Self {
        Self {
            app,
            routes,
            hosted,
            groups,
        }
    }

    /// Answers any request, and logs it.
    pub(crate) async fn answer_request(&self, request: Request) -> Response {
        let public_url = &self.app.config.public_url;
        let started = Instant::now();
        let id = self.app.fresh_id();
        let method = request.method().clone();
        let path = raw_path(request.uri(), request.extensions());
        let below = path.strip_prefix(public_url.prefix());
        let group = self.groups.find_group(path);
        let page_path = below
            .filter(|_| welcome::prefers_html(request.headers()))
            .map(str::to_owned);

        let mut response = self.dispatch_request(request).await;
        let refusal = response.extensions_mut().remove::<Refusal>();
        if let Some(refusal) = &refusal {
            // Written here and not by the handlers: only the edge knows the request id.
            *response.body_mut() = Body::from(refusal.problem(&id));
            // The router's own fallbacks set the length of an empty body; a length that does not
            // match the body ends the connection.
            response.headers_mut().remove(header::CONTENT_LENGTH);
            response.headers_mut().insert(
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/problem+json"),
            );
        }
        let page = page_path.and_then(|path| {
            // The service has no such path. Any other 404 has been answered by its own handler.
            let is_get = matches!(method, Method::GET | Method::HEAD);
            if is_get && group == "none" && response.status() == StatusCode::NOT_FOUND {
                return Some(ErrorPage::NotFound.render_error_page(&self.app));
            }
            welcome::shows_welcome(response.status(), &path)
                .then(|| welcome::welcome_page(public_url, response.status()))
        });
        if let Some(page) = page {
            let (parts, body) = page.into_parts();
            *response.body_mut() = body;
            response.headers_mut().remove(header::CONTENT_LENGTH);
            response.headers_mut().extend(parts.headers);
            // As in every answer below `/v/`; the page itself has only `no-store`.
            let private = HeaderValue::from_static("private, no-store");
            response
                .headers_mut()
                .insert(header::CACHE_CONTROL, private);
        }
        let headers = response.headers_mut();
        // Browsers ignore this header over plain http.
        if !public_url.is_loopback_http() {
            headers.insert(
                header::STRICT_TRANSPORT_SECURITY,
                HeaderValue::from_static("max-age=31536000"),
            );
        }
        // The strict default; a handler whose answer may be cached has set the header itself.
        headers
            .entry(header::CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("private, no-store"));
        headers
            .entry(header::X_CONTENT_TYPE_OPTIONS)
            .or_insert(HeaderValue::from_static("nosniff"));
        let refusal = refusal.or_else(|| {
            let logged = response.extensions_mut().remove::<Logged>();
            logged.map(|logged| logged.0)
        });
        let logged = LoggedRequest {
            id: &id,
            group,
            method: &method,
            started,
        };
        logged.log_answer(&response, refusal.as_ref());
        response
    }

    async fn dispatch_request(&self, mut request: Request) -> Response {
        let public_url = &self.app.config.public_url;
        let path = raw_path(request.uri(), request.extensions());
        if let Err(refusal) = check_limits(&request, path) {
            return refusal.into_response();
        }
        let below = path.strip_prefix(public_url.prefix());
        if below.is_some_and(|path| path.starts_with("/v/")) {
            return run_bounded(self.hosted.answer_request(request)).await;
        }
        // Health probes use the address of a container or a machine as host, and learn nothing but
        // the health. `/mcp` makes this check itself, since it refuses in its own form.
        let is_exempt = matches!(below, Some("/healthz" | "/mcp"));
        // The server has found that the head breaks a rule of HTTP. Requests under `/v/` never come
        // here: their signature determines whom they are for, and is checked first.
        if let Some(refusal) = request.extensions_mut().remove::<Refusal>() {
            return refusal.into_response();
        }
        if !is_exempt && !names_our_host(&self.app.config, request.headers(), request.uri()) {
            let (parts, body) = request.into_parts();
            // With an unread body the connection would be reset before the sender has read the
            // refusal.
            let reading = drop_body(&parts.headers, body);
            return run_bounded(async {
                reading.await;
                Refusal::from(ErrorCode::HostForbidden).into_response()
            })
            .await;
        }
        let reply = self.routes.clone().oneshot(request);
        run_bounded(async { reply.await.unwrap_or_else(|never| match never {}) }).await
    }
}

/// Limits the time of a handler and turns a panic into an answer: one request must not end a
/// connection that others share.
async fn run_bounded(handler: impl Future<Output = Response>) -> Response {
    let mut handler = pin!(handler);
    let caught = poll_fn(|context| {
        match catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(response)) => Poll::Ready(response),
            Err(_) => Poll::Ready(
                Refusal::new(ErrorCode::Internal)
                    .cause(std::io::Error::other("the handler panicked"))
                    .into_response(),
            ),
        }
    });
    // A handler over the limit is dropped: it stops at the wait where it is.
    timeout(HANDLER_TIME, caught)
        .await
        .unwrap_or_else(|elapsed| {
            Refusal::new(ErrorCode::Unavailable)
                .cause(elapsed)
                .into_response()
        })
}

fn check_limits(request: &Request, path: &str) -> Result<(), Refusal> {
    let target = request
        .uri()
        .path_and_query()
        .map_or(0, |target| target.as_str().len());
    if path.len() > MAX_PATH_BYTES || target > MAX_TARGET_BYTES {
        return Err(ErrorCode::PathTooLong.into());
    }
    // The size on the wire: name, colon, space, value, line end.
    let headers: usize = request
        .headers()
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    if headers > MAX_HEADER_BYTES {
        return Err(ErrorCode::HeadersTooLarge.into());
    }
    Ok(())
}

/// Facts about a request for its line in the log.
struct LoggedRequest<'a> {
    id: &'a str,
    group: &'a str,
    method: &'a Method,
    started: Instant,
}

impl LoggedRequest<'_> {
    fn log_answer(&self, response: &Response, refusal: Option<&Refusal>) {
        let &Self {
            id,
            group,
            method,
            started,
        } = self;
        let seen = response.extensions().get::<LogFields>();
        let slug = seen.and_then(|seen| seen.slug.as_deref());
        let caller = seen.and_then(|seen| seen.caller.as_deref());
        let status = response.status().as_u16();
        let bytes = HttpBody::size_hint(response.body()).exact();
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let row = refusal.map(|refusal| refusal.code().row());
        let error = row.map(|row| row.code);
        // The text of a cause may name files or hosts, never a secret: adapters keep addresses with
        // passwords out of their errors.
        let cause = refusal
            .and_then(Refusal::source)
            .map(|cause| error_chain(cause));
        if row.is_some_and(|row| row.fault == Fault::Service) {
            tracing::error!(request_id = id, group, %method, slug, caller, status, ms, bytes, error, cause, "request");
        } else if group == "health" {
            // Probes call every few seconds and would fill the log.
            tracing::debug!(request_id = id, group, %method, status, ms, bytes, "request");
        } else {
            tracing::info!(request_id = id, group, %method, slug, caller, status, ms, bytes, error, cause, "request");
        }
    }
}
