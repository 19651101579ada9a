//! Memory for the bodies of requests, with one bound for all of them, so that no network and no
//! namespace fills the memory of a process.
//!
//! The first `UNCOUNTED_BYTES` of a body do not count, so a form, a token request or an enrolment
//! never needs memory that others could have filled. All further bytes count for a *lane*, the
//! party that sends the body: the namespace of the member or app, or else the network that the body
//! comes from. Each lane has a share, and namespaces and networks have separate memory. If it is
//! full, a body that is still arriving is dropped, and its sender gets 503: the oldest one of the
//! lane that uses most. So slow senders use memory only until others need it. A new body is refused
//! if no other can be dropped.
//!
//! A body of more than [`SMALL_BYTES`] needs one of a few *places*, for which lanes wait in turn.
//! It gets the place once that many bytes have arrived, and loses it if it arrives slowly: a sender
//! of one byte a second has no place. While a body waits for a scan by the gate (the security
//! scanner), it has no place and counts in the queue for scans instead. After the scan it waits for
//! a place of another kind, and has it until the body is stored and answered: so bodies that are
//! still arriving cannot delay it.

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
use vault_store::fair::{Lane, LaneBound};
use vault_store::gate::{FairGate, GateSize, Pass};

use crate::error::{ErrorCode, Refusal};
use crate::http::{BODY_TIME, DRAIN_BYTES, parse_json, require_media_type};

/// Number of bytes of a body that do not count. Their total is bounded by the number of
/// connections, each of which has one request at a time.
const UNCOUNTED_BYTES: usize = 8 * 1024;
/// Number of bytes of a body that may arrive before it needs a place. All forms and most JSON
/// bodies are smaller.
pub const SMALL_BYTES: usize = 64 * 1024;
/// Places for larger bodies, which have up to 4 MiB each and take more memory while they are
/// checked and stored.
const PLACES: GateSize = GateSize {
    places: 8,
    places_of_lane: 3,
    waiting: LaneBound::of_requests(64),
    patience: Duration::from_secs(10),
};
/// Places for scanned bodies, until they are stored. They wait only for the store, never for a
/// sender.
const SCANNED_PLACES: GateSize = GateSize {
    places: 4,
    places_of_lane: 2,
    waiting: LaneBound {
        requests: 64,
        bytes: 4 * 1024 * 1024,
        all_bytes: 16 * 1024 * 1024,
    },
    patience: Duration::from_secs(10),
};
/// Maximum number of counted bytes of all bodies without a place from namespaces. There is as much
/// again for callers who are not known to belong to one.
const MOST_OF_POOL: usize = 8 * 1024 * 1024;
/// Maximum number of counted bytes that one lane may fill.
pub const MOST_OF_LANE: usize = MOST_OF_POOL / 4;
/// Time limits in production; tests use shorter ones.
const TIMES: Times = Times {
    whole: BODY_TIME,
    start: Duration::from_secs(2),
    min_speed: 256 * 1024,
};

/// Time limits for the arrival of a body.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// Time in which the whole body must arrive, not counting the wait for a place.
    whole: Duration,
    /// Time after the body gets its place in which its speed does not count.
    start: Duration,
    /// Minimum speed after `start`, in bytes a second. Below it, the largest body would not arrive
    /// in time anyway.
    min_speed: u32,
}

/// The memory for bodies of one process. Clones share it.
#[derive(Clone)]
pub struct Bodies {
    registry: Arc<Mutex<BodyRegistry>>,
    places: Arc<FairGate>,
    scanned: Arc<FairGate>,
    times: Times,
}

/// The party that a body is counted for, with the share of the memory that it may fill.
#[derive(Clone, Debug)]
pub struct Sender {
    /// Party whose share of the memory the body uses.
    pub lane: Lane,
    /// Number of bytes up to which this sender may fill the share of the lane, at most
    /// [`MOST_OF_LANE`].
    pub most: usize,
}

impl From<Lane> for Sender {
    /// Creates a sender who may use the whole share of its lane.
    fn from(lane: Lane) -> Self {
        Self {
            lane,
            most: MOST_OF_LANE,
        }
    }
}

#[derive(Debug, Default)]
struct BodyRegistry {
    /// Bodies from namespaces.
    of_tenants: Pool,
    /// Bodies from callers who are not known to belong to a namespace.
    of_strangers: Pool,
    /// Number of the next body; older bodies have smaller numbers.
    next: u64,
}

impl BodyRegistry {
    fn pool(&mut self, lane: &Lane) -> &mut Pool {
        match lane {
            Lane::Namespace(_) => &mut self.of_tenants,
            _ => &mut self.of_strangers,
        }
    }
}

/// Bodies that together stay below [`MOST_OF_POOL`].
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
    /// Counted bytes: those beyond [`UNCOUNTED_BYTES`], while the body has no place.
    bytes: usize,
    /// [`Sender::most`] of its sender.
    most: usize,
    /// Dropping this sender ends the reading of the body; `None` once all bytes have arrived.
    reading: Option<oneshot::Sender<()>>,
}

impl HeldLane {
    /// Returns the body to drop first, among those of senders with at most the limit `most`:
    /// members before publishers, and the oldest of each. Never returns the body `except`.
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
    /// Counts `bytes` more for a body. If there is no room, drops other bodies. Returns false if
    /// that does not suffice, or if this body has been dropped itself.
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

    /// Returns the body to drop for body `number` of `sender`, whose lane uses `bytes`. Only lanes
    /// that use at least as much lose bodies, first the one that uses most: so a lane that floods
    /// displaces its own bodies and not those of others.
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

/// The memory of one body. Dropping it frees the memory.
pub struct BodyMemory {
    registry: Arc<Mutex<BodyRegistry>>,
    sender: Sender,
    number: u64,
    /// Number of bytes that are counted for the body.
    bytes: usize,
    place: Option<Pass>,
    /// Length of a complete body that has or had a place; 0 for others.
    placed_bytes: usize,
}

impl BodyMemory {
    /// Registers a body. The receiver is notified when the body is dropped for others.
    fn begin(registry: &Arc<Mutex<BodyRegistry>>, sender: Sender) -> (Self, oneshot::Receiver<()>) {
        let (reading, given_way) = oneshot::channel();
        let mut locked = lock_registry(registry);
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
            registry: Arc::clone(registry),
            sender,
            number,
            bytes: 0,
            place: None,
            placed_bytes: 0,
        };
        (room, given_way)
    }

    /// Takes memory for a body of which `length` bytes have arrived. Fails with 503 if there is
    /// none.
    fn grow(&mut self, length: usize) -> Result<(), Refusal> {
        let counted = length.saturating_sub(UNCOUNTED_BYTES);
        if self.place.is_some() || counted <= self.bytes {
            return Ok(());
        }
        let mut registry = lock_registry(&self.registry);
        let pool = registry.pool(&self.sender.lane);
        if !pool.grow(&self.sender, self.number, counted - self.bytes) {
            return Err(StoreError::Busy.into());
        }
        self.bytes = counted;
        Ok(())
    }

    /// Gives the body a place. The place then accounts for all its memory.
    fn hold_place(&mut self, place: Pass) {
        self.place = Some(place);
        let mut registry = lock_registry(&self.registry);
        registry
            .pool(&self.sender.lane)
            .release(&self.sender.lane, self.number);
    }

    /// Records that all `length` bytes have arrived, so that the body is no longer dropped for
    /// others. Fails if it already was.
    fn complete(&mut self, length: usize) -> Result<(), Refusal> {
        if self.place.is_some() {
            self.placed_bytes = length;
        }
        let mut registry = lock_registry(&self.registry);
        let lane = registry
            .pool(&self.sender.lane)
            .lanes
            .get_mut(&self.sender.lane);
        let body = lane.and_then(|lane| lane.bodies.get_mut(&self.number));
        body.ok_or(StoreError::Busy)?.reading = None;
        Ok(())
    }
}

/// The memory of the body of one request, shared by its handler and the functions that it calls.
#[derive(Clone, Default)]
pub struct SharedBodyMemory(Arc<Mutex<Option<BodyMemory>>>);

impl SharedBodyMemory {
    /// Keeps the memory of the body until the request is answered.
    pub fn hold(&self, room: BodyMemory) {
        *self.lock_memory() = Some(room);
    }

    /// Gives up the place of a large body before a step with a queue of its own. Returns the bytes
    /// that count in that queue: 0 for a small body, whose memory still counts here.
    pub fn leave_place(&self) -> usize {
        let mut room = self.lock_memory();
        let Some(room) = room.as_mut() else {
            return 0;
        };
        room.place = None;
        room.placed_bytes
    }

    /// Takes a place for scanned bodies until the request is answered, if the body has given up its
    /// place. Does nothing for other bodies. Fails like [`FairGate::enter_with`].
    pub async fn take_scanned_place(&self, bodies: &Bodies) -> Result<(), StoreError> {
        let left = match &*self.lock_memory() {
            Some(room) if room.placed_bytes > 0 && room.place.is_none() => {
                (room.sender.lane.clone(), room.placed_bytes)
            }
            _ => return Ok(()),
        };
        let place = bodies.scanned.enter_with(left.0, left.1).await?;
        if let Some(room) = &mut *self.lock_memory() {
            room.place = Some(place);
        }
        Ok(())
    }

    fn lock_memory(&self) -> MutexGuard<'_, Option<BodyMemory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BodyMemory {
    fn drop(&mut self) {
        let mut registry = lock_registry(&self.registry);
        registry
            .pool(&self.sender.lane)
            .remove(&self.sender.lane, self.number);
    }
}

fn lock_registry(registry: &Mutex<BodyRegistry>) -> MutexGuard<'_, BodyRegistry> {
    registry.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A complete body with its memory. Keep it for as long as its bytes are used.
pub struct ReceivedBody {
    bytes: Bytes,
    room: BodyMemory,
}

impl ReceivedBody {
    /// Returns the bytes, and their memory, which the caller must keep for as long as the bytes.
    pub fn into_parts(self) -> (Bytes, BodyMemory) {
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
            registry: Arc::default(),
            places: FairGate::new(PLACES),
            scanned: FairGate::new(SCANNED_PLACES),
            times: TIMES,
        }
    }
}

impl Bodies {
    /// Reads a body of at most `limit` bytes. Fails with 413 if it is longer, with 408 if it
    /// arrives too slowly, with 503 if there is no memory for it or it is dropped for others, and
    /// with 400 if the sender breaks off.
    pub async fn read(
        &self,
        sender: impl Into<Sender>,
        body: Body,
        limit: usize,
    ) -> Result<ReceivedBody, Refusal> {
        let (room, given_way) = BodyMemory::begin(&self.registry, sender.into());
        // A body whose announced length is too large is refused before any byte is read.
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

    /// Reads a JSON object. Fails like [`Bodies::read`], then with 415 for another media type, then
    /// with 400 for malformed JSON.
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

    /// Returns how many bytes of scanned bodies wait for a place.
    #[cfg(test)]
    pub(crate) fn waiting_scanned_bytes(&self) -> usize {
        self.scanned.waiting_bytes()
    }

    /// Takes a place for scanned bodies without a body, so that a test can fill them all.
    #[cfg(test)]
    pub(crate) async fn take_scanned_place(&self, lane: Lane) -> Pass {
        self.scanned.enter(lane).await.expect("a place is free")
    }

    /// Takes a place for larger bodies without a body, so that a test can fill them all.
    #[cfg(test)]
    pub(crate) async fn take_place(&self, lane: Lane) -> Pass {
        self.places.enter(lane).await.expect("a place is free")
    }
}

/// A body that is arriving.
struct Reading<'a> {
    bodies: &'a Bodies,
    limit: usize,
    announced: usize,
    /// Time by which the whole body must have arrived.
    until: Instant,
    /// Time at which the body got its place.
    placed_at: Option<Instant>,
    room: BodyMemory,
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
            // Any other frame is a trailer, which is ignored.
            if let Ok(data) = frame.into_data() {
                self.add(data).await?;
            }
        }
        if self.length > self.limit {
            return Err(ErrorCode::BodyTooLarge.into());
        }
        self.room.complete(self.length)?;
        Ok(ReceivedBody {
            bytes: self.first.unwrap_or_else(|| self.rest.freeze()),
            room: self.room,
        })
    }

    /// Returns the time by which the next bytes must arrive.
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
        // Over the limit, the rest is read and discarded, so that the sender receives the 413.
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
                    // A body without a place must not reserve more memory than it has sent.
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

    /// Waits for a place, without reading further. The time limits do not count this wait.
    async fn take_place(&mut self) -> Result<(), Refusal> {
        let since = Instant::now();
        let lane = self.room.sender.lane.clone();
        let place = self.bodies.places.enter(lane).await?;
        self.room.hold_place(place);
        let now = Instant::now();
        self.until += now - since;
        self.placed_at = Some(now);
        // Reserved at once, because a growing buffer would be copied each time that it doubles.
        self.rest
            .reserve(self.announced.saturating_sub(self.rest.len()));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
