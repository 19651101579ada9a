//! The bodies of requests in memory: one bound for all of them, so that no network and no tenant
//! fills the memory of a process.
//!
//! A body counts by the bytes that have arrived beyond its first [`UNCOUNTED_BYTES`]: a form, a token
//! request or an enrolment never needs memory that others could have filled. Each lane has a share: a
//! namespace whose member or app sends it, or else the network that it comes from. Namespaces and
//! networks have memory of their own. Where it is full, the oldest body that is still arriving gives
//! way, of the lane that holds most, and its sender gets 503. So senders who dawdle hold what they
//! have only until somebody else needs it. A new body is refused if no other can give way.
//!
//! A body of more than [`SMALL_BYTES`] needs one of a few places, for which lanes wait in turn. It
//! gets the place only once so much of it has arrived, and loses it when it arrives slowly: a sender
//! of a byte a second holds what it has sent, and no place.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::header::HeaderMap;
use bytes::{Bytes, BytesMut};
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use vault_store::StoreError;
use vault_store::fair::Lane;
use vault_store::gate::{FairGate, GateSize, Pass};

use crate::error::{ErrorCode, Refusal};
use crate::http::{BODY_TIME, DRAIN_BYTES, parse_json, require_media_type};

/// Number of bytes of a body that do not count. The connections of a process are a bound for them:
/// each has one request at a time.
const UNCOUNTED_BYTES: usize = 8 * 1024;
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
/// Counted bytes of all bodies without a place that namespaces send; as many again are for callers
/// who are not known to belong to one.
const MOST_OF_POOL: usize = 8 * 1024 * 1024;
/// The part of [`MOST_OF_POOL`] that one lane may fill.
pub const MOST_OF_LANE: usize = MOST_OF_POOL / 4;
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

/// The bodies that are held.
#[derive(Debug, Default)]
struct Held {
    of_tenants: Pool,
    of_strangers: Pool,
    /// Number of the next body: older ones have smaller numbers.
    next: u64,
}

impl Held {
    fn pool(&mut self, lane: &Lane) -> &mut Pool {
        match lane {
            Lane::Namespace(_) => &mut self.of_tenants,
            _ => &mut self.of_strangers,
        }
    }
}

/// Bodies that share a bound.
#[derive(Debug, Default)]
struct Pool {
    bytes: usize,
    lanes: HashMap<Lane, HeldLane>,
}

#[derive(Debug, Default)]
struct HeldLane {
    bytes: usize,
    bodies: BTreeMap<u64, HeldBody>,
}

#[derive(Debug)]
struct HeldBody {
    /// Bytes that count.
    bytes: usize,
    /// [`Sender::most`] of its sender.
    most: usize,
    /// Dropping it ends the reading; `None` once all has arrived.
    reading: Option<oneshot::Sender<()>>,
}

impl HeldLane {
    /// Returns the body that gives way first, of senders who may use no more than `most`: members
    /// before publishers, and the oldest of each. Never the body `except`.
    fn find_droppable(&self, except: u64, most: usize) -> Option<u64> {
        let bodies = self.bodies.iter().filter(|(number, body)| {
            **number != except && body.bytes > 0 && body.most <= most && body.reading.is_some()
        });
        bodies
            .min_by_key(|(number, body)| (body.most, **number))
            .map(|(number, _)| *number)
    }
}

impl Pool {
    /// Counts `bytes` more of a body. Other bodies give way where there is no room; false if that
    /// does not suffice, or if this body has given way itself.
    fn grow(&mut self, sender: &Sender, number: u64, bytes: usize) -> bool {
        loop {
            let Some(lane) = self.lanes.get_mut(&sender.lane) else {
                return false;
            };
            let Some(body) = lane.bodies.get_mut(&number) else {
                return false;
            };
            let is_lane_full = lane.bytes + bytes > sender.most.min(MOST_OF_LANE);
            if !is_lane_full && self.bytes + bytes <= MOST_OF_POOL {
                body.bytes += bytes;
                lane.bytes += bytes;
                self.bytes += bytes;
                return true;
            }
            let droppable = if is_lane_full {
                let own = lane.find_droppable(number, sender.most);
                own.map(|number| (sender.lane.clone(), number))
            } else {
                let bytes = lane.bytes;
                self.find_droppable(sender, number, bytes)
            };
            let Some((lane, number)) = droppable else {
                return false;
            };
            self.remove(&lane, number);
        }
    }

    /// Returns the body that gives way to one of a lane with `bytes`: of the lane that holds most,
    /// and at least so many. So a lane that floods displaces its own bodies, not those of others.
    fn find_droppable(&self, sender: &Sender, number: u64, bytes: usize) -> Option<(Lane, u64)> {
        let lanes = self.lanes.iter().filter(|(_, lane)| lane.bytes >= bytes);
        let droppable = lanes.filter_map(|(name, lane)| {
            let is_own = *name == sender.lane;
            let most = if is_own { sender.most } else { usize::MAX };
            let number = lane.find_droppable(number, most)?;
            Some((lane.bytes, Reverse(number), name))
        });
        let (_, Reverse(number), name) = droppable.max()?;
        Some((name.clone(), number))
    }

    /// Stops counting the bytes of a body.
    fn release(&mut self, lane: &Lane, number: u64) {
        if let Some(lane) = self.lanes.get_mut(lane)
            && let Some(body) = lane.bodies.get_mut(&number)
        {
            lane.bytes -= body.bytes;
            self.bytes -= body.bytes;
            body.bytes = 0;
        }
    }

    fn remove(&mut self, name: &Lane, number: u64) {
        self.release(name, number);
        if let Some(lane) = self.lanes.get_mut(name) {
            lane.bodies.remove(&number);
            // Removed when empty, or the map would grow with every network that ever sent a body.
            if lane.bodies.is_empty() {
                self.lanes.remove(name);
            }
        }
    }
}

/// The memory that one body has. Dropping it frees the memory.
pub struct Room {
    held: Arc<Mutex<Held>>,
    sender: Sender,
    number: u64,
    /// Bytes that it counts.
    bytes: usize,
    place: Option<Pass>,
}

impl Room {
    /// Begins a body. The receiver hears when the body has to give way.
    fn begin(held: &Arc<Mutex<Held>>, sender: Sender) -> (Self, oneshot::Receiver<()>) {
        let (reading, given_way) = oneshot::channel();
        let mut locked = lock_held(held);
        let number = locked.next;
        locked.next += 1;
        let lane = locked.pool(&sender.lane).lanes.entry(sender.lane.clone());
        let body = HeldBody {
            bytes: 0,
            most: sender.most,
            reading: Some(reading),
        };
        lane.or_default().bodies.insert(number, body);
        drop(locked);
        let room = Self {
            held: Arc::clone(held),
            sender,
            number,
            bytes: 0,
            place: None,
        };
        (room, given_way)
    }

    /// Takes memory for a body of which `length` bytes have arrived.
    fn grow(&mut self, length: usize) -> Result<(), Refusal> {
        let counted = length.saturating_sub(UNCOUNTED_BYTES);
        if self.place.is_some() || counted <= self.bytes {
            return Ok(());
        }
        let mut held = lock_held(&self.held);
        let pool = held.pool(&self.sender.lane);
        if !pool.grow(&self.sender, self.number, counted - self.bytes) {
            return Err(StoreError::Busy.into());
        }
        self.bytes = counted;
        Ok(())
    }

    /// Keeps a place for the body, which is then all its memory.
    fn hold_place(&mut self, place: Pass) {
        self.place = Some(place);
        let mut held = lock_held(&self.held);
        held.pool(&self.sender.lane)
            .release(&self.sender.lane, self.number);
    }

    /// Notes that all has arrived, so that the body does not give way any more. Fails if it has.
    fn complete(&mut self) -> Result<(), Refusal> {
        let mut held = lock_held(&self.held);
        let lane = held
            .pool(&self.sender.lane)
            .lanes
            .get_mut(&self.sender.lane);
        let body = lane.and_then(|lane| lane.bodies.get_mut(&self.number));
        body.ok_or(StoreError::Busy)?.reading = None;
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut held = lock_held(&self.held);
        held.pool(&self.sender.lane)
            .remove(&self.sender.lane, self.number);
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
    /// 503 if there is no memory for it, or if it gives way to others; and with 400 if the sender breaks off.
    pub async fn read(
        &self,
        sender: impl Into<Sender>,
        body: Body,
        limit: usize,
    ) -> Result<ReceivedBody, Refusal> {
        let (room, given_way) = Room::begin(&self.held, sender.into());
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
        tokio::select! {
            biased;
            _ = given_way => Err(StoreError::Busy.into()),
            read = reading.read_all(body) => read,
        }
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
        self.room.complete()?;
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
        self.room.grow(self.length)?;
        // Most bodies arrive as one frame, which is then returned without copying.
        match self.first.take() {
            None if self.rest.is_empty() => self.first = Some(data),
            held => {
                if let Some(held) = held {
                    let mut size = held.len() + data.len();
                    // What has no place yet must not reserve more than it has sent.
                    if self.placed_at.is_some() {
                        size = size.max(self.announced);
                    }
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
        let lane = self.room.sender.lane.clone();
        let place = self.bodies.places.enter(lane).await?;
        self.room.hold_place(place);
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

    /// Bytes that count of a body that has all it may have without a place.
    const COUNTED: usize = SMALL_BYTES - UNCOUNTED_BYTES;
    /// Number of such bodies of one lane.
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
    ) -> Result<Room, ErrorCode> {
        let read = bodies.read(sender, Body::from(part(bytes)), SMALL_BYTES);
        let read = read.await.map_err(|refusal| {
            let retry = &axum::http::header::RETRY_AFTER;
            assert!(refusal.header_value(retry).is_some());
            refusal.code()
        });
        read.map(|body| body.into_parts().1)
    }

    /// Reads bodies until one is refused, and keeps them.
    async fn fill(bodies: &Bodies, sender: impl Into<Sender>) -> Vec<Room> {
        let (sender, mut rooms) = (sender.into(), Vec::new());
        while let Ok(room) = read_now(bodies, sender.clone(), SMALL_BYTES).await {
            rooms.push(room);
        }
        rooms
    }

    /// Begins bodies that stall, more than the lane may have.
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
        // Bodies that have arrived do not give way, so that their handlers can use them.
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
        // Whatever is full: what a form, a token request and an enrolment send needs no memory.
        for n in 0..99 {
            let read = read_now(&bodies, stranger(n), UNCOUNTED_BYTES).await;
            rooms.push(read.expect("a small body needs no memory"));
        }
        rooms.clear();
        // Namespaces do not take what strangers have.
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
        // A network that has sent nothing yet, one that stalls itself, and an honest sender whose
        // body is larger than what counts for nothing and takes its time.
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

    /// Members of a namespace cannot displace what its publishers send; publishers can.
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
}
