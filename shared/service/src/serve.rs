//! The server loop: accepts connections, bounds their number per network and the time for which
//! each may be idle or read nothing of its answer, and shuts down gracefully.
//!
//! Requests whose head cannot be parsed are answered by the HTTP library, which has no hook for
//! them; all others reach the router.

mod bounded;

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

use crate::app::App;
use crate::config::Config;
use crate::error::{ErrorCode, Refusal};
use crate::http::Peer;
use crate::model::limits::Networks;
use crate::web::host::check_host_header;

use bounded::{Bounded, InProgress};

/// Time limits of a connection that makes no progress.
#[derive(Clone, Copy, Debug)]
struct TimeLimits {
    /// Maximum time between requests. Longer than clients keep idle connections, so that the client
    /// closes first: a request that arrives at a closing server is lost.
    idle: Duration,
    /// Maximum time from the first byte of a request's head to its last.
    head: Duration,
    /// Maximum time in which the client reads less than [`MIN_PROGRESS`] of an answer.
    write: Duration,
}

/// Time limits for the connections of the service; tests use others.
const TIME_LIMITS: TimeLimits = TimeLimits {
    idle: Duration::from_secs(75),
    head: Duration::from_secs(10),
    write: Duration::from_secs(30),
};
/// Number of bytes of an answer that a client must read within [`TimeLimits::write`], unless fewer
/// are left. A client that reads a byte now and then would otherwise keep the answer in memory for
/// as long as it likes.
const MIN_PROGRESS: usize = 32 * 1024;
/// Maximum number of connections per source, which is an IPv4 address or an IPv6 /64 network. Each
/// wider network has four times as many.
pub const MAX_PER_SOURCE: usize = 64;
/// Maximum time for which running requests may continue after the service was told to stop.
pub const STOP_TIME: Duration = Duration::from_secs(10);
/// Maximum number of connections; more wait in the listener's queue.
pub const MAX_CONNECTIONS: usize = 4096;
/// Size of the buffer for a request's head, in bytes. Larger than
/// [`crate::edge::MAX_HEADER_BYTES`], so that the service's own refusal is sent.
const HEAD_BUFFER: usize = 64 * 1024;

/// Serves until `shutdown` completes, then lets running requests finish for up to ten seconds.
/// Never fails: a failed accept is logged.
pub async fn serve(listener: TcpListener, app: App, shutdown: impl Future<Output = ()>) {
    let config = Arc::clone(&app.config);
    serve_router(listener, &config, crate::router::router(app), shutdown).await;
}

/// Serves like [`serve`], with the caller's router.
pub async fn serve_router(
    listener: TcpListener,
    config: &Arc<Config>,
    router: axum::Router,
    shutdown: impl Future<Output = ()>,
) {
    let networks = ConnectionCounts::new(config);
    let mut shutdown = pin!(shutdown);
    let (stop, stopping) = watch::channel(false);
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept_connection(&listener, &slots) => accepted,
        };
        let (stream, peer, slot) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Usually the process is out of file descriptors, which are freed when connections
                // end; without the pause, the loop would use the processor fully.
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Closed without an answer: an answer would need the resources that the limit protects.
        let Some(counted) = networks.count_connection(peer) else {
            tracing::debug!("closed a new connection: its network has too many");
            continue;
        };
        // Small answers are sent immediately instead of waiting for more data. If that cannot be
        // set, they are only slower.
        let _ = stream.set_nodelay(true);
        let (router, stopping) = (router.clone(), stopping.clone());
        tokio::spawn(async move {
            run_connection(Bounded::new(stream, TIME_LIMITS), peer, router, stopping).await;
            drop((counted, slot));
        });
    }
    // No new connections: their clients get an error at once, and may try another instance.
    drop(listener);
    stop.send_replace(true);
    let all_done = slots.acquire_many(u32::try_from(MAX_CONNECTIONS).unwrap_or(u32::MAX));
    if timeout(STOP_TIME, all_done).await.is_err() {
        tracing::warn!("stopped before all requests were answered");
    }
}

async fn accept_connection(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> io::Result<(TcpStream, Peer, tokio::sync::OwnedSemaphorePermit)> {
    // The slot is taken before a connection is accepted, so that more connections wait in the
    // kernel's queue and not in this process.
    let slot = Arc::clone(slots)
        .acquire_owned()
        .await
        .map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, Peer(peer), slot))
}

/// Counts the open connections of each network.
#[derive(Clone)]
struct ConnectionCounts {
    config: Arc<Config>,
    held: Arc<Mutex<HashMap<String, usize>>>,
}

/// A counted connection; dropping it lowers the counts of its networks.
struct CountedConnection {
    /// Networks whose counts include this connection; `None` for a source that is not counted.
    networks: Option<Networks>,
    held: Arc<Mutex<HashMap<String, usize>>>,
}

impl ConnectionCounts {
    fn new(config: &Arc<Config>) -> Self {
        Self {
            config: Arc::clone(config),
            held: Arc::default(),
        }
    }

    /// Counts a connection; `None` if one of its networks has too many. This machine and trusted
    /// proxies, which connect for many people, are not counted.
    fn count_connection(&self, peer: Peer) -> Option<CountedConnection> {
        let address = peer.0.ip().to_canonical();
        let held = Arc::clone(&self.held);
        if address.is_loopback() || self.config.is_trusted_proxy(address) {
            let networks = None;
            return Some(CountedConnection { networks, held });
        }
        let networks = Networks::of(Some(address));
        let mut counts = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for network in networks.narrowest_first() {
            let most = MAX_PER_SOURCE.saturating_mul(network.share as usize);
            if counts.get(network.name).is_some_and(|held| *held >= most) {
                return None;
            }
        }
        for network in networks.narrowest_first() {
            *counts.entry(network.name.to_owned()).or_default() += 1;
        }
        drop(counts);
        let networks = Some(networks);
        Some(CountedConnection { networks, held })
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let Some(networks) = &self.networks else {
            return;
        };
        let mut counts = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for network in networks.narrowest_first() {
            if let Some(count) = counts.get_mut(network.name) {
                *count -= 1;
                // Removed at zero, or the map would grow with every address that ever connected.
                if *count == 0 {
                    counts.remove(network.name);
                }
            }
        }
    }
}

async fn run_connection(
    stream: Bounded<impl AsyncRead + AsyncWrite + Send + Unpin>,
    peer: Peer,
    router: axum::Router,
    mut stopping: watch::Receiver<bool>,
) {
    let phase = stream.phase();
    let of_requests = phase.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let in_progress = InProgress::begin(&of_requests);
        let router = router.clone();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        if let Err(fault) = check_host_header(request.version(), request.headers()) {
            let refusal = Refusal::new(ErrorCode::RequestInvalid);
            let refusal = refusal.detail(fault.to_string());
            // Not answered here: the edge answers, so that this refusal is logged like any other.
            request.extensions_mut().insert(refusal);
        }
        async move {
            let answer = router.oneshot(request).await;
            answer.map(|answer| answer.map(|body| in_progress.until_sent(body)))
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            // `Bounded` has the time limits; hyper's would count idle time as time of the head.
            .header_read_timeout(None)
            .max_buf_size(HEAD_BUFFER)
            .max_headers(256)
            .serve_connection(TokioIo::new(stream), service)
    );
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = async { drop(stopping.wait_for(|stop| *stop).await) } => {
            // No answer is due. A client that has sent a part of a request, or none, would
            // otherwise delay the end.
            if phase.is_quiet() {
                return;
            }
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::task::JoinHandle;

    use super::*;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    const NEVER: Duration = Duration::from_hours(24);
    /// Time limits so long that a test reaches only the one that it sets itself.
    const PATIENT: TimeLimits = TimeLimits {
        idle: NEVER,
        head: NEVER,
        write: NEVER,
    };

    fn peer(address: &str) -> Peer {
        Peer(SocketAddr::new(address.parse().unwrap(), 1))
    }

    /// Returns the client's end of a connection to a router with one page.
    fn serve_page(
        times: TimeLimits,
        buffer: usize,
        page: &'static str,
    ) -> (DuplexStream, JoinHandle<()>) {
        let (client, server) = duplex(buffer);
        let router = axum::Router::new().route("/", get(move || async move { page }));
        let (stop, stopping) = watch::channel(false);
        let served = tokio::spawn(async move {
            let server = Bounded::new(server, times);
            run_connection(server, peer("127.0.0.1"), router, stopping).await;
            drop(stop);
        });
        (client, served)
    }

    async fn answer(client: &mut DuplexStream) -> String {
        let mut answer = Vec::new();
        while !answer.ends_with(b"hello") {
            assert_ne!(client.read_buf(&mut answer).await.unwrap(), 0, "no answer");
        }
        String::from_utf8(answer).unwrap()
    }

    async fn rest(client: &mut DuplexStream) -> usize {
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        rest.len()
    }

    #[tokio::test]
    async fn idle_time_does_not_count_into_the_time_of_a_head() {
        let head = Duration::ZERO;
        let (mut client, served) = serve_page(TimeLimits { head, ..PATIENT }, 4096, "hello");
        for _ in 0..3 {
            client.write_all(REQUEST).await.unwrap();
            assert!(answer(&mut client).await.starts_with("HTTP/1.1 200"));
            // The server waits for the next request meanwhile.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        }
        // The head's own time counts from its first byte.
        client.write_all(&REQUEST[..1]).await.unwrap();
        served.await.unwrap();
        assert_eq!(rest(&mut client).await, 0);
    }

    #[tokio::test]
    async fn an_idle_connection_is_closed() {
        let idle = Duration::ZERO;
        let (mut client, served) = serve_page(TimeLimits { idle, ..PATIENT }, 4096, "hello");
        served.await.unwrap();
        assert_eq!(rest(&mut client).await, 0);
    }

    #[tokio::test]
    async fn a_connection_is_idle_again_after_its_answer() {
        for method in ["GET", "HEAD"] {
            let idle = Duration::from_millis(20);
            let (mut client, served) = serve_page(TimeLimits { idle, ..PATIENT }, 4096, "hello");
            let request = format!("{method} / HTTP/1.1\r\nHost: x\r\n\r\n");
            client.write_all(request.as_bytes()).await.unwrap();
            served.await.unwrap();
            assert_ne!(rest(&mut client).await, 0, "{method}");
        }
    }

    #[tokio::test]
    async fn a_client_that_takes_no_byte_of_its_answer_is_left() {
        let page: &'static str = Box::leak("x".repeat(64 * 1024).into_boxed_str());
        let write = Duration::ZERO;
        let (mut client, served) = serve_page(TimeLimits { write, ..PATIENT }, 1024, page);
        client.write_all(REQUEST).await.unwrap();
        served.await.unwrap();
        assert_eq!(rest(&mut client).await, 1024);
    }

    /// Stops a server while a client has sent these bytes. Returns whether the server waits for
    /// more.
    async fn waits_at_the_stop(sent: &[u8]) -> bool {
        let (mut client, server) = duplex(4096);
        let router = axum::Router::new().route("/", get(async || "hello"));
        let (stop, stopping) = watch::channel(false);
        let served = tokio::spawn(async move {
            let server = Bounded::new(server, PATIENT);
            run_connection(server, peer("127.0.0.1"), router, stopping).await;
        });
        client.write_all(sent).await.unwrap();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        stop.send_replace(true);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        !served.is_finished()
    }

    #[tokio::test]
    async fn a_stop_waits_for_no_client_that_has_not_asked() {
        for sent in [
            &b""[..],
            b"GET / HT",
            &REQUEST[..REQUEST.len() - 1],
            REQUEST,
        ] {
            let text = String::from_utf8_lossy(sent);
            assert!(!waits_at_the_stop(sent).await, "{text:?}");
        }
        let unfinished = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc";
        assert!(!waits_at_the_stop(unfinished).await, "answered with 405");
    }

    #[test]
    fn a_network_has_so_many_connections() {
        let mut config = Config::new("https://vault.example".parse().unwrap());
        config.trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
        let sources = ConnectionCounts::new(&Arc::new(config));
        for (held, same, other) in [
            ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"),
            ("2001:db8:1:2::1", "2001:db8:1:2::ffff", "2001:db8:1:3::1"),
        ] {
            let mut places: Vec<_> = (0..MAX_PER_SOURCE)
                .map(|_| sources.count_connection(peer(held)).unwrap())
                .collect();
            assert!(sources.count_connection(peer(same)).is_none(), "{same}");
            assert!(sources.count_connection(peer(other)).is_some(), "{other}");
            places.pop();
            assert!(sources.count_connection(peer(same)).is_some(), "{same}");
        }
        assert!(sources.held.lock().unwrap().is_empty());
        for (share, network) in [
            (4, (|n| format!("192.0.2.{n}")) as fn(usize) -> String),
            (4, |n| format!("2001:db8:1:1{n:02x}::1")),
            (16, |n| format!("2001:db8:1:{n:x}00::1")),
        ] {
            let connections = (0..200).cycle().take(2000);
            let taken = connections.filter_map(|n| sources.count_connection(peer(&network(n))));
            let taken: Vec<_> = taken.collect();
            assert_eq!(taken.len(), share * MAX_PER_SOURCE, "{}", network(0));
            assert!(sources.count_connection(peer("198.51.100.1")).is_some());
        }
        assert!(sources.held.lock().unwrap().is_empty());
        let uncounted: Vec<_> = ["127.0.0.1", "10.1.2.3"]
            .iter()
            .cycle()
            .take(4 * MAX_PER_SOURCE)
            .map(|address| sources.count_connection(peer(address)))
            .collect();
        assert!(uncounted.iter().all(Option::is_some));
    }
}
