//! The server loop: accepts connections, bounds how long a head may take, and stops gracefully.
//!
//! What HTTP itself refuses (a head that does not parse) is answered by the HTTP library, which gives no hook; everything that parses is ours.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

use crate::App;
use crate::http::Peer;

/// How long the head of a request may take, idle time of a kept connection included.
pub const HEAD_TIME: Duration = Duration::from_secs(10);
/// How long running requests may go on once the service was told to stop.
pub const STOP_TIME: Duration = Duration::from_secs(10);
/// Most connections at once; more wait in the listener's queue.
pub const MAX_CONNECTIONS: usize = 4096;
/// Room for a head. Larger than what [`crate::http`] lets through, so that the refusal is ours.
const HEAD_BUFFER: usize = 64 * 1024;

/// Serves until `shutdown` ends, then lets running requests finish for up to ten seconds. Fails never: an accept that fails is logged.
pub async fn serve(listener: TcpListener, app: App, shutdown: impl Future<Output = ()>) {
    serve_router(listener, crate::router(app), shutdown).await;
}

/// As [`serve`], for a router that carries more than the service's own routes.
pub async fn serve_router(
    listener: TcpListener,
    router: axum::Router,
    shutdown: impl Future<Output = ()>,
) {
    let mut shutdown = pin!(shutdown);
    let (stop, stopping) = watch::channel(false);
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        let (stream, peer, slot) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Usually out of file descriptors: it passes when connections end.
                tracing::warn!(%error, "accepting a connection failed");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (router, stopping) = (router.clone(), stopping.clone());
        tokio::spawn(async move {
            connection(stream, peer, router, stopping).await;
            drop(slot);
        });
    }
    drop(listener);
    stop.send_replace(true);
    let all_done = slots.acquire_many(u32::try_from(MAX_CONNECTIONS).unwrap_or(u32::MAX));
    if timeout(STOP_TIME, all_done).await.is_err() {
        tracing::warn!("stopped while requests were running");
    }
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> io::Result<(TcpStream, Peer, tokio::sync::OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots)
        .acquire_owned()
        .await
        .map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, Peer(peer), slot))
}

async fn connection(
    stream: TcpStream,
    peer: Peer,
    router: axum::Router,
    mut stopping: watch::Receiver<bool>,
) {
    // Small answers must not wait for more to send; failing to say so changes nothing but speed.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let router = router.clone();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        router.oneshot(request)
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .max_buf_size(HEAD_BUFFER)
            .max_headers(256)
            .serve_connection(TokioIo::new(stream), service)
    );
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = async { drop(stopping.wait_for(|stop| *stop).await) } => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
