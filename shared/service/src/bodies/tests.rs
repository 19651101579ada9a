//! Tests of the memory for bodies, with bodies that arrive as the test sends them.

use std::convert::Infallible;
use std::task::{Context, Poll};

use hyper::body::Frame;
use tokio::sync::mpsc;
use vault_format::name::NamespaceId;

use super::*;

fn tenant(n: u64) -> Lane {
    Lane::Namespace(NamespaceId::from_parts(n, 0))
}

fn stranger(n: usize) -> Lane {
    Lane::Network(format!("192.0.{n}.0/24").into())
}

fn is_empty(bodies: &Bodies) -> bool {
    let held = lock_registry(&bodies.registry);
    let pools = [&held.of_tenants, &held.of_strangers];
    pools
        .iter()
        .all(|pool| pool.bytes == 0 && pool.lanes.is_empty())
}

/// A body whose sender is the test.
struct Sent(mpsc::UnboundedReceiver<Bytes>);

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = self.0.poll_recv(context);
        data.map(|data| data.map(|data| Ok(Frame::data(data))))
    }
}

type Answer = tokio::task::JoinHandle<Result<usize, ErrorCode>>;

/// Begins to read a body that arrives as the test sends it. Returns its sender and its answer.
fn arriving(bodies: &Bodies, lane: Lane) -> (mpsc::UnboundedSender<Bytes>, Answer) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let bodies = bodies.clone();
    let answer = tokio::spawn(async move {
        let body = Body::new(Sent(receiver));
        let read = bodies.read(lane, body, 4 * 1024 * 1024).await;
        read.map(|body| body.len())
            .map_err(|refusal| refusal.code())
    });
    (sender, answer)
}

fn part(bytes: usize) -> Bytes {
    Bytes::from(vec![b'x'; bytes])
}

async fn let_run() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn bodies_are_counted_while_they_are_read() {
    let bodies = Bodies::default();
    for (size, limit, good) in [
        (0, 0, true),
        (1, 0, false),
        (9, 10, true),
        (10, 10, true),
        (11, 10, false),
        (3_000_000, 10, false),
        (3_000_000, 4_000_000, true),
    ] {
        let body = Body::from(vec![b'x'; size]);
        let outcome = bodies.read(stranger(1), body, limit).await;
        assert_eq!(outcome.is_ok(), good, "{size} of {limit}");
        match outcome {
            Ok(body) => assert_eq!(body.len(), size),
            Err(refusal) => assert_eq!(refusal.code(), ErrorCode::BodyTooLarge),
        }
    }
    assert!(is_empty(&bodies));
}

const NEVER: Duration = Duration::from_hours(24);
const SHORT: Duration = Duration::from_millis(20);

fn bodies_with(whole: Duration, start: Duration, min_speed: u32) -> Bodies {
    let times = Times {
        whole,
        start,
        min_speed,
    };
    Bodies {
        times,
        ..Bodies::default()
    }
}

#[tokio::test]
async fn a_body_that_stalls_is_408_and_frees_its_memory() {
    let bodies = bodies_with(SHORT, NEVER, 1);
    let (sender, answer) = arriving(&bodies, stranger(1));
    sender.send(part(1)).unwrap();
    assert_eq!(answer.await.unwrap(), Err(ErrorCode::BodyTimeout));
    assert!(is_empty(&bodies));
}

/// Slow senders of small bodies have no place, however many they are.
#[tokio::test]
async fn a_slow_sender_holds_no_place() {
    let bodies = bodies_with(NEVER, NEVER, 1);
    let mut slow = Vec::new();
    for n in 0..40 {
        let (sender, answer) = arriving(&bodies, tenant(n));
        sender.send(part(20_000)).unwrap();
        slow.push((sender, answer));
    }
    let_run().await;
    let (sender, answer) = arriving(&bodies, tenant(99));
    for _ in 0..30 {
        sender.send(part(100_000)).unwrap();
    }
    drop(sender);
    let_run().await;
    assert!(answer.is_finished(), "it waits for nobody");
    assert_eq!(answer.await.unwrap(), Ok(3_000_000));
}

/// A sender that becomes slow loses its place, and the next gets it.
#[tokio::test]
async fn a_body_that_becomes_slow_loses_its_place() {
    let bodies = bodies_with(NEVER, SHORT, u32::MAX);
    let mut slow = Vec::new();
    for n in 0..PLACES.places as u64 {
        let (sender, answer) = arriving(&bodies, tenant(n));
        sender.send(part(70_000)).unwrap();
        slow.push((sender, answer));
    }
    let_run().await;
    let (sender, answer) = arriving(&bodies, tenant(99));
    sender.send(part(100_000)).unwrap();
    drop(sender);
    assert_eq!(answer.await.unwrap(), Ok(100_000));
    for (_sender, answer) in slow {
        assert_eq!(answer.await.unwrap(), Err(ErrorCode::BodyTimeout));
    }
    assert!(is_empty(&bodies));
}

/// Each byte that has arrived extends the time for the rest, at the minimum speed.
#[tokio::test]
async fn a_body_of_sufficient_speed_keeps_its_place() {
    let bodies = bodies_with(NEVER, Duration::ZERO, 10);
    let (sender, answer) = arriving(&bodies, tenant(1));
    sender.send(part(100_000)).unwrap();
    let_run().await;
    sender.send(part(100_000)).unwrap();
    drop(sender);
    assert_eq!(answer.await.unwrap(), Ok(200_000));
}

/// Counted bytes of the largest body without a place.
const COUNTED: usize = SMALL_BYTES - UNCOUNTED_BYTES;
/// Number of such bodies that one lane may have.
const SHARE: usize = MOST_OF_LANE / COUNTED;

fn member(n: u64) -> Sender {
    Sender {
        lane: tenant(n),
        most: MOST_OF_LANE / 2,
    }
}

async fn read_now(
    bodies: &Bodies,
    sender: impl Into<Sender>,
    bytes: usize,
) -> Result<BodyMemory, ErrorCode> {
    let read = bodies.read(sender, Body::from(part(bytes)), SMALL_BYTES);
    let read = read.await.map_err(|refusal| {
        let retry = &axum::http::header::RETRY_AFTER;
        assert!(refusal.header_value(retry).is_some());
        refusal.code()
    });
    read.map(|body| body.into_parts().1)
}

/// Reads bodies until one is refused, and keeps them.
async fn fill(bodies: &Bodies, sender: impl Into<Sender>) -> Vec<BodyMemory> {
    let (sender, mut rooms) = (sender.into(), Vec::new());
    while let Ok(room) = read_now(bodies, sender.clone(), SMALL_BYTES).await {
        rooms.push(room);
    }
    rooms
}

/// Begins bodies that then stall, more than the share of the lane allows.
async fn stall(bodies: &Bodies, lane: &Lane) -> Vec<(mpsc::UnboundedSender<Bytes>, Answer)> {
    let mut stalled = Vec::new();
    for _ in 0..SHARE + 9 {
        let (sender, answer) = arriving(bodies, lane.clone());
        sender.send(part(SMALL_BYTES)).unwrap();
        stalled.push((sender, answer));
        let_run().await;
    }
    stalled
}

#[tokio::test]
async fn each_lane_has_a_share_and_strangers_have_memory_of_their_own() {
    let bodies = Bodies::default();
    let mut rooms = Vec::new();
    // Complete bodies are not dropped, because their handlers use them.
    for n in 1..40 {
        let held = fill(&bodies, stranger(n)).await;
        assert!(held.len() <= SHARE, "{n}: {}", held.len());
        assert!(n > 3 || held.len() == SHARE, "{n}: {}", held.len());
        rooms.extend(held);
    }
    // Members leave half of their namespace's share to others.
    let held = fill(&bodies, member(1)).await;
    assert_eq!(held.len(), SHARE / 2);
    rooms.extend(held);
    rooms.extend(fill(&bodies, tenant(1)).await);
    assert_eq!(
        read_now(&bodies, tenant(2), SMALL_BYTES).await.map(drop),
        Ok(())
    );
    // Even if all is full, a form, a token request and an enrolment need no counted memory.
    for n in 0..99 {
        let read = read_now(&bodies, stranger(n), UNCOUNTED_BYTES).await;
        rooms.push(read.expect("a small body needs no memory"));
    }
    rooms.clear();
    // Namespaces do not use the memory of unknown callers.
    for n in 1..40 {
        rooms.extend(fill(&bodies, tenant(n)).await);
    }
    assert_eq!(fill(&bodies, stranger(1)).await.len(), SHARE);
    rooms.clear();
    assert!(is_empty(&bodies));
}

#[tokio::test]
async fn stalled_bodies_give_way_to_those_of_other_networks_and_of_their_own() {
    let bodies = bodies_with(NEVER, NEVER, 1);
    let mut stalled = Vec::new();
    for n in 1..=37 {
        stalled.extend(stall(&bodies, &stranger(n)).await);
    }
    // A network without bodies, one that stalls itself, and an honest but slow sender of a body
    // that needs counted memory.
    let (form, answer) = arriving(&bodies, stranger(99));
    form.send(part(26 * 1024)).unwrap();
    for n in [98, 99, 1, 37] {
        let read = read_now(&bodies, stranger(n), SMALL_BYTES).await;
        assert_eq!(read.map(drop), Ok(()), "network {n}");
    }
    for n in 1..=37 {
        stalled.extend(stall(&bodies, &stranger(n)).await);
    }
    drop(form);
    assert_eq!(answer.await.unwrap(), Ok(26 * 1024));
    let mut dropped = 0;
    for (sender, answer) in stalled {
        drop(sender);
        match answer.await.unwrap() {
            Ok(length) => assert_eq!(length, SMALL_BYTES),
            Err(code) => {
                assert_eq!(code, ErrorCode::Unavailable);
                dropped += 1;
            }
        }
    }
    assert!(dropped > 0);
    assert!(is_empty(&bodies));
}

/// Members of a namespace cannot displace the bodies of its publishers; publishers can displace
/// theirs.
#[tokio::test]
async fn bodies_of_members_give_way_first() {
    let bodies = bodies_with(NEVER, NEVER, 1);
    let stalled = stall(&bodies, &tenant(1)).await;
    let read = read_now(&bodies, member(1), SMALL_BYTES).await;
    assert_eq!(read.map(drop), Err(ErrorCode::Unavailable));
    let read = read_now(&bodies, tenant(1), SMALL_BYTES).await;
    assert_eq!(read.map(drop), Ok(()));
    drop(stalled);
}

#[tokio::test]
async fn the_places_of_a_lane_leave_others_theirs() {
    let bodies = Bodies::default();
    let mut passes = Vec::new();
    for _ in 0..PLACES.places_of_lane {
        passes.push(bodies.take_place(tenant(1)).await);
    }
    let (sender, own) = arriving(&bodies, tenant(1));
    sender.send(part(100_000)).unwrap();
    drop(sender);
    let (sender, other) = arriving(&bodies, tenant(2));
    sender.send(part(100_000)).unwrap();
    drop(sender);
    let_run().await;
    assert!(!own.is_finished());
    assert_eq!(other.await.unwrap(), Ok(100_000));
    passes.pop();
    assert_eq!(own.await.unwrap(), Ok(100_000));
}
