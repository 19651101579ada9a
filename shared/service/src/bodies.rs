//! The bodies of requests in memory: one bound for all of them, so that no network and no tenant
//! fills the memory of a process.
//!
//! A body counts by the bytes that have arrived, and each lane has a share: a namespace whose member
//! or app sends it, or else the network that it comes from. Beyond the share, or when the memory is
//! full, the request is refused with 503. A body of more than [`SMALL_BYTES`] needs one of a few
//! places, for which lanes wait in turn. It gets the place only once so much of it has arrived, and
//! loses it when it arrives slowly: a sender of a byte a second holds what it has sent, and no
//! place.

use std::collections::HashMap;
use std::future::poll_fn;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::header::HeaderMap;
use bytes::{Bytes, BytesMut};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};
use vault_store::StoreError;
use vault_store::fair::Lane;
use vault_store::gate::{FairGate, GateSize, Pass};

use crate::error::{ErrorCode, Refusal};
use crate::http::{BODY_TIME, DRAIN_BYTES, parse_json, require_media_type};

/// Number of bytes of a body that may arrive before it needs a place: all of any form, and of most
/// JSON.
pub const SMALL_BYTES: usize = 64 * 1024;
/// Places for larger bodies. Each has up to 4 MiB, and more while it is checked and stored.
const PLACES: GateSize = GateSize {
    places: 8,
    places_of_lane: 3,
    waiting: 64,
    patience: Duration::from_secs(10),
};
/// Bytes of all bodies without a place, and of the beginnings of those with one.
const MOST: usize = 16 * 1024 * 1024;
/// The part of [`MOST`] that callers may fill who are not known to belong to a namespace.
const MOST_OF_STRANGERS: usize = MOST / 2;
/// The part of [`MOST`] that one lane may fill.
pub const MOST_OF_LANE: usize = MOST / 8;
/// Time limits of the service.
const TIMES: Times = Times {
    whole: BODY_TIME,
    start: Duration::from_secs(2),
    min_speed: 256 * 1024,
};

/// Time limits of a body.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// Time in which all of it must arrive, without the wait for a place.
    whole: Duration,
    /// Time with a place before its speed counts.
    start: Duration,
    /// Least speed with a place after that, in bytes a second. With less, the largest body would not
    /// arrive in time either.
    min_speed: u32,
}

/// The memory for bodies of one process. Clones share it.
#[derive(Clone)]
pub struct Bodies {
    held: Arc<Mutex<Held>>,
    places: Arc<FairGate>,
    times: Times,
}

/// The sender of a body.
#[derive(Clone, Debug)]
pub struct Sender {
    /// The party whose share of the memory the body takes.
    pub lane: Lane,
    /// Bytes of its lane up to which this sender may go, at most [`MOST_OF_LANE`].
    pub most: usize,
}

impl From<Lane> for Sender {
    /// A sender who may use all that its lane has.
    fn from(lane: Lane) -> Self {
        Self {
            lane,
            most: MOST_OF_LANE,
        }
    }
}

/// The bytes that are held.
#[derive(Debug, Default)]
struct Held {
    all: usize,
    of_strangers: usize,
    lanes: HashMap<Lane, usize>,
}

impl Held {
    fn take(&mut self, sender: &Sender, bytes: usize) -> bool {
        let lane = &sender.lane;
        let of_lane = self.lanes.get(lane).copied().unwrap_or(0);
        let has_room = self.all + bytes <= MOST
            && of_lane + bytes <= sender.most.min(MOST_OF_LANE)
            && (!is_stranger(lane) || self.of_strangers + bytes <= MOST_OF_STRANGERS);
        if has_room && bytes > 0 {
            self.all += bytes;
            self.of_strangers += if is_stranger(lane) { bytes } else { 0 };
            *self.lanes.entry(lane.clone()).or_default() += bytes;
        }
        has_room
    }

    fn give_back(&mut self, lane: &Lane, bytes: usize) {
        self.all -= bytes;
        self.of_strangers -= if is_stranger(lane) { bytes } else { 0 };
        if let Some(held) = self.lanes.get_mut(lane) {
            *held -= bytes;
            // Removed at zero, or the map would grow with every network that ever sent a body.
            if *held == 0 {
                self.lanes.remove(lane);
            }
        }
    }
}

const fn is_stranger(lane: &Lane) -> bool {
    !matches!(lane, Lane::Namespace(_))
}

/// The memory that one body has. Dropping it frees the memory.
pub struct Room {
    held: Arc<Mutex<Held>>,
    sender: Sender,
    bytes: usize,
    place: Option<Pass>,
}

impl Room {
    /// Takes memory for `bytes` more that have arrived.
    fn grow(&mut self, bytes: usize) -> Result<(), Refusal> {
        if self.place.is_some() {
            return Ok(());
        }
        if !lock_held(&self.held).take(&self.sender, bytes) {
            return Err(StoreError::Busy.into());
        }
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        lock_held(&self.held).give_back(&self.sender.lane, self.bytes);
    }
}

fn lock_held(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A body that has arrived, with its memory. Keep it for as long as the bytes are used.
pub struct ReceivedBody {
    bytes: Bytes,
    room: Room,
}

impl ReceivedBody {
    /// Returns the bytes and their memory.
    pub fn into_parts(self) -> (Bytes, Room) {
        (self.bytes, self.room)
    }
}

impl Deref for ReceivedBody {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.bytes
    }
}

impl Default for Bodies {
    fn default() -> Self {
        Self {
            held: Arc::default(),
            places: FairGate::new(PLACES),
            times: TIMES,
        }
    }
}

impl Bodies {
    /// Reads a body of at most `limit` bytes. Fails with 413; with 408 if it arrives too slowly; with
    /// 503 if its lane has no memory for it; and with 400 if the sender breaks off.
    pub async fn read(
        &self,
        sender: impl Into<Sender>,
        body: Body,
        limit: usize,
    ) -> Result<ReceivedBody, Refusal> {
        let room = Room {
            held: Arc::clone(&self.held),
            sender: sender.into(),
            bytes: 0,
            place: None,
        };
        // Refused by its announced length, before any byte is read.
        let announced = HttpBody::size_hint(&body).lower();
        if announced > (limit + DRAIN_BYTES) as u64 {
            return Err(ErrorCode::BodyTooLarge.into());
        }
        let reading = Reading {
            bodies: self,
            limit,
            announced: usize::try_from(announced).unwrap_or(0).min(limit),
            until: Instant::now() + self.times.whole,
            placed_at: None,
            room,
            first: None,
            rest: BytesMut::new(),
            length: 0,
        };
        reading.read_all(body).await
    }

    /// Reads a JSON object; fails like [`Bodies::read`], then with 415, then with 400.
    pub async fn read_json<T: DeserializeOwned>(
        &self,
        sender: impl Into<Sender>,
        headers: &HeaderMap,
        body: Body,
        limit: usize,
    ) -> Result<T, Refusal> {
        let bytes = self.read(sender, body, limit).await?;
        require_media_type(headers, "application/json")?;
        parse_json(&bytes)
    }

    /// Takes a place as a large body does.
    #[cfg(test)]
    async fn take_place(&self, lane: Lane) -> Pass {
        self.places.enter(lane).await.expect("a place is free")
    }
}

/// A body that is arriving.
struct Reading<'a> {
    bodies: &'a Bodies,
    limit: usize,
    announced: usize,
    /// Time at which all of it must have arrived.
    until: Instant,
    /// Time at which it got its place.
    placed_at: Option<Instant>,
    room: Room,
    first: Option<Bytes>,
    rest: BytesMut,
    length: usize,
}

impl Reading<'_> {
    async fn read_all(mut self, mut body: Body) -> Result<ReceivedBody, Refusal> {
        loop {
            let next = poll_fn(|context| Pin::new(&mut body).poll_frame(context));
            let frame = match timeout_at(self.deadline(), next).await {
                Err(_) => return Err(ErrorCode::BodyTimeout.into()),
                Ok(None) => break,
                Ok(Some(frame)) => frame.map_err(|broken| {
                    Refusal::new(ErrorCode::RequestInvalid)
                        .detail("The body ended before it was complete.")
                        .cause(broken)
                })?,
            };
            // Anything else is a trailer.
            if let Ok(data) = frame.into_data() {
                self.add(data).await?;
            }
        }
        if self.length > self.limit {
            return Err(ErrorCode::BodyTooLarge.into());
        }
        Ok(ReceivedBody {
            bytes: self.first.unwrap_or_else(|| self.rest.freeze()),
            room: self.room,
        })
    }

    /// Returns the time at which the next bytes must be there.
    fn deadline(&self) -> Instant {
        let Some(placed_at) = self.placed_at else {
            return self.until;
        };
        let Times {
            start, min_speed, ..
        } = self.bodies.times;
        let millis = self.length as u64 * 1000 / u64::from(min_speed);
        self.until
            .min(placed_at + start + Duration::from_millis(millis))
    }

    async fn add(&mut self, data: Bytes) -> Result<(), Refusal> {
        self.length += data.len();
        if self.length > self.limit + DRAIN_BYTES {
            return Err(ErrorCode::BodyTooLarge.into());
        }
        // Over the limit: read on without keeping the data, for the sender's sake.
        if self.length > self.limit {
            return Ok(());
        }
        if self.length > SMALL_BYTES && self.placed_at.is_none() {
            self.take_place().await?;
        }
        self.room.grow(data.len())?;
        // Most bodies arrive as one frame, which is then returned without copying.
        match self.first.take() {
            None if self.rest.is_empty() => self.first = Some(data),
            held => {
                if let Some(held) = held {
                    let size = self.announced.max(held.len() + data.len());
                    // What has no place yet must not reserve more than it has sent.
                    let size = if self.placed_at.is_some() {
                        size
                    } else {
                        size.min(SMALL_BYTES)
                    };
                    self.rest.reserve(size);
                    self.rest.extend_from_slice(&held);
                }
                self.rest.extend_from_slice(&data);
            }
        }
        Ok(())
    }

    /// Waits for a place, without reading on. The wait does not count as time of the body.
    async fn take_place(&mut self) -> Result<(), Refusal> {
        let since = Instant::now();
        self.room.place = Some(
            self.bodies
                .places
                .enter(self.room.sender.lane.clone())
                .await?,
        );
        let now = Instant::now();
        self.until += now - since;
        self.placed_at = Some(now);
        // At once, or the buffer would be copied each time that it doubles.
        self.rest
            .reserve(self.announced.saturating_sub(self.rest.len()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
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
        let held = lock_held(&bodies.held);
        assert_eq!(held.all == 0, held.lanes.is_empty());
        held.all == 0 && held.of_strangers == 0
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

    /// A body that arrives as the test sends it, and what becomes of it.
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

    /// Senders who dawdle before they have sent much hold no place, however many they are.
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

    /// Those who dawdle with a place lose it, and the next gets it.
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

    /// What has arrived earns time for the rest.
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

    #[tokio::test]
    async fn strangers_leave_memory_to_tenants_and_to_other_networks() {
        let bodies = Bodies::default();
        let mut rooms = Vec::new();
        let mut fill = async |sender: Sender| {
            let mut number = 0;
            loop {
                let body = Body::from(part(SMALL_BYTES));
                match bodies.read(sender.clone(), body, SMALL_BYTES).await {
                    Ok(body) => rooms.push(body.into_parts().1),
                    Err(refusal) => {
                        assert_eq!(refusal.status(), 503);
                        assert!(
                            refusal
                                .header_value(&axum::http::header::RETRY_AFTER)
                                .is_some()
                        );
                        return number;
                    }
                }
                number += 1;
            }
        };
        let share = MOST_OF_LANE / SMALL_BYTES;
        assert_eq!(
            fill(stranger(1).into()).await,
            share,
            "one network has its share"
        );
        assert_eq!(
            fill(stranger(2).into()).await,
            share,
            "and leaves another its own"
        );
        for n in 3..40 {
            fill(stranger(n).into()).await;
        }
        // A tenant has what strangers may not fill, and its members leave half to others.
        let member = Sender {
            lane: tenant(1),
            most: MOST_OF_LANE / 2,
        };
        assert_eq!(fill(member).await, share / 2);
        assert_eq!(fill(tenant(1).into()).await, share / 2);
        drop(rooms);
        assert!(is_empty(&bodies));
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
}
