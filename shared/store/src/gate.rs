//! A gate that lets a limited number of requests through at once, and serves namespaces in turn
//! ([`crate::fair`]). It guards the connections of PostgreSQL against commits, and the memory
//! against uploads. What a request occupies behind the gate is called a place.
//!
//! Without the gate, a tenant with many requests would take all places, since it arrives first. One
//! lane (the callers of one namespace) never gets all places, so that its slow requests do not stop
//! the others. Unknown callers of all networks together get no more places than one lane.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::StoreError;
use crate::fair::{FairQueue, Lane, LaneBound, Party, Waiting, Work};

/// How many requests a gate lets through at once, and how many may wait.
#[derive(Clone, Copy, Debug)]
pub struct GateSize {
    /// Maximum number of requests that work behind the gate at the same time.
    pub places: usize,
    /// Maximum number of these places that one lane may hold, or all networks of unknown callers
    /// together.
    pub places_of_lane: usize,
    /// How many requests may wait, and how much content in bytes they may hold.
    pub waiting: LaneBound,
    /// How long a request waits before it fails.
    pub patience: Duration,
}

/// A gate; see the module.
pub struct FairGate {
    state: Mutex<State>,
    size: GateSize,
}

struct State {
    queue: FairQueue<Waiter>,
    free: usize,
    /// The number of places that each party holds; no entry is 0.
    taken: HashMap<Party, usize>,
}

struct Waiter {
    turn: oneshot::Sender<Pass>,
    /// Content that the request keeps in memory while it waits, in bytes.
    bytes: usize,
}

impl Waiting for Waiter {
    fn work(&self) -> Work {
        Work {
            rows: 0,
            bytes: self.bytes,
        }
    }

    fn is_abandoned(&self) -> bool {
        self.turn.is_closed()
    }
}

/// A place behind the gate. Dropping the pass gives the place to the next request.
pub struct Pass {
    party: Party,
    /// `None` once the place was given back.
    gate: Option<Arc<FairGate>>,
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(gate) = self.gate.take() {
            gate.pass_on_place(&self.party);
        }
    }
}

impl State {
    fn may_pass(&self, party: &Party, size: GateSize) -> bool {
        self.free > 0 && self.taken.get(party).copied().unwrap_or(0) < size.places_of_lane
    }

    fn take_place(&mut self, party: &Party) {
        self.free -= 1;
        *self.taken.entry(party.clone()).or_default() += 1;
    }

    fn give_back(&mut self, party: &Party) {
        self.free += 1;
        if let Some(taken) = self.taken.get_mut(party) {
            *taken -= 1;
            // Remove the entry at zero, or the map would grow with every namespace.
            if *taken == 0 {
                self.taken.remove(party);
            }
        }
    }
}

impl FairGate {
    /// Creates a gate with all places free.
    pub fn new(size: GateSize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                queue: FairQueue::new(size.waiting),
                free: size.places,
                taken: HashMap::new(),
            }),
            size,
        })
    }

    /// Waits for a place. Fails with `Busy` if too many requests of this lane wait, and with
    /// `Unavailable` if the turn does not come within the patience.
    pub async fn enter(self: &Arc<Self>, lane: Lane) -> Result<Pass, StoreError> {
        self.enter_with(lane, 0).await
    }

    /// Like [`FairGate::enter`], for a request that keeps `bytes` bytes of content in memory while
    /// it waits. Also fails with `Busy` or `Unavailable` if the waiting requests hold too much
    /// content.
    pub async fn enter_with(
        self: &Arc<Self>,
        lane: Lane,
        bytes: usize,
    ) -> Result<Pass, StoreError> {
        let turn = {
            let mut state = self.lock_state();
            // No waiting request could use a place that is free here: a freed place is handed on at
            // once.
            let party = Party::of(&lane);
            if state.may_pass(&party, self.size) {
                state.take_place(&party);
                return Ok(self.create_pass(party));
            }
            let (sender, turn) = oneshot::channel();
            let waiter = Waiter {
                turn: sender,
                bytes,
            };
            state.queue.push(lane, waiter)?;
            turn
        };
        match timeout(self.size.patience, turn).await {
            Ok(Ok(pass)) => Ok(pass),
            _ => Err(StoreError::unavailable("no place became free in time")),
        }
    }

    /// Returns the content of all waiting requests, in bytes.
    pub fn waiting_bytes(&self) -> usize {
        self.lock_state().queue.content()
    }

    fn create_pass(self: &Arc<Self>, party: Party) -> Pass {
        Pass {
            party,
            gate: Some(Arc::clone(self)),
        }
    }

    /// Gives the place of a party to the next request that may take it.
    fn pass_on_place(self: &Arc<Self>, party: &Party) {
        let mut given_back = party.clone();
        while let Some((next, waiter)) = self.replace(&given_back) {
            match waiter.turn.send(self.create_pass(next)) {
                Ok(()) => return,
                // The caller has just left. If the pass were dropped as it is, it would hand the
                // place on one call deeper for each such caller, so take its gate away and go on in
                // this loop.
                Err(mut pass) => {
                    drop(pass.gate.take());
                    given_back = pass.party.clone();
                }
            }
        }
    }

    /// Frees a place of `party` and assigns it to the next request, which is returned.
    fn replace(&self, party: &Party) -> Option<(Party, Waiter)> {
        let mut state = self.lock_state();
        state.give_back(party);
        let State { queue, taken, .. } = &mut *state;
        let most = self.size.places_of_lane;
        let next = queue.take_next(|party| taken.get(party).copied().unwrap_or(0) < most)?;
        state.take_place(&next.0);
        Some(next)
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::task::Poll;

    use vault_format::name::NamespaceId;

    use super::*;

    const LONG: Duration = Duration::from_hours(1);

    fn lane(n: u64) -> Lane {
        Lane::Namespace(NamespaceId::from_parts(n, 0))
    }

    fn gate(places: usize, places_of_lane: usize, patience: Duration) -> Arc<FairGate> {
        FairGate::new(GateSize {
            places,
            places_of_lane,
            waiting: LaneBound::of_requests(9),
            patience,
        })
    }

    fn free(gate: &FairGate) -> usize {
        let state = gate.lock_state();
        assert_eq!(state.free == gate.size.places, state.taken.is_empty());
        state.free
    }

    /// Polls once; returns whether it waits.
    async fn is_waiting<F: Future + Unpin>(future: &mut F) -> bool {
        poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context).is_pending())).await
    }

    #[tokio::test]
    async fn namespaces_come_in_turn() {
        let gate = gate(1, 1, LONG);
        let held = gate.enter(lane(1)).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut requests = tokio::task::JoinSet::new();
        for number in [1, 1, 1, 1, 2, 3, 2] {
            let (gate, order) = (Arc::clone(&gate), Arc::clone(&order));
            requests.spawn(async move {
                let pass = gate.enter(lane(number)).await.unwrap();
                order.lock().unwrap().push(number);
                drop(pass);
            });
            // The test has one thread, so the new task runs now, until it waits.
            tokio::task::yield_now().await;
        }
        drop(held);
        while requests.join_next().await.is_some() {}
        assert_eq!(*order.lock().unwrap(), [1, 2, 3, 1, 2, 1, 1]);
        assert_eq!(free(&gate), 1);
    }

    #[tokio::test]
    async fn one_lane_never_has_all_places() {
        let gate = gate(3, 2, LONG);
        let mut passes = vec![
            gate.enter(lane(1)).await.unwrap(),
            gate.enter(lane(1)).await.unwrap(),
        ];
        let mut third = Box::pin(gate.enter(lane(1)));
        assert!(is_waiting(&mut third).await, "although a place is free");
        passes.push(gate.enter(lane(2)).await.unwrap());
        passes.pop();
        assert!(is_waiting(&mut third).await);
        passes.pop();
        passes.push(third.await.unwrap());
        passes.clear();
        assert_eq!(free(&gate), 3);
    }

    #[tokio::test]
    async fn strangers_of_many_networks_have_the_places_of_one_lane() {
        let gate = gate(3, 2, LONG);
        let network = |n: u8| Lane::Network(format!("192.0.{n}.0/24").into());
        let mut passes = vec![
            gate.enter(network(1)).await.unwrap(),
            gate.enter(network(2)).await.unwrap(),
        ];
        let mut third = Box::pin(gate.enter(network(3)));
        assert!(is_waiting(&mut third).await, "although a place is free");
        passes.push(gate.enter(lane(1)).await.unwrap());
        passes.swap_remove(0);
        passes.push(third.await.unwrap());
        passes.clear();
        assert_eq!(free(&gate), 3);
    }

    #[tokio::test]
    async fn a_request_waits_for_a_bounded_time_in_a_bounded_lane() {
        let short = gate(1, 1, Duration::ZERO);
        let held = short.enter(lane(1)).await.unwrap();
        let late = short.enter(lane(2)).await;
        assert!(matches!(late, Err(StoreError::Unavailable(_))));
        drop(held);
        drop(short.enter(lane(2)).await.unwrap());
        assert_eq!(free(&short), 1);

        let gate = gate(1, 1, LONG);
        let held = gate.enter(lane(1)).await.unwrap();
        let mut waiting: Vec<_> = (0..9).map(|_| Box::pin(gate.enter(lane(1)))).collect();
        for request in &mut waiting {
            assert!(is_waiting(request).await);
        }
        assert!(matches!(gate.enter(lane(1)).await, Err(StoreError::Busy)));
        let mut other = Box::pin(gate.enter(lane(2)));
        assert!(is_waiting(&mut other).await);
        drop(held);
        drop(waiting);
        drop(other.await.unwrap());
        assert_eq!(free(&gate), 1);
    }

    #[tokio::test]
    async fn a_caller_who_leaves_loses_no_place() {
        let gate = gate(1, 1, LONG);
        let held = gate.enter(lane(1)).await.unwrap();
        let mut leaving = Box::pin(gate.enter(lane(2)));
        assert!(is_waiting(&mut leaving).await);
        drop(leaving);
        drop(held);
        assert_eq!(free(&gate), 1);
        // Also one who leaves after the place was handed over.
        let held = gate.enter(lane(1)).await.unwrap();
        let mut leaving = Box::pin(gate.enter(lane(2)));
        assert!(is_waiting(&mut leaving).await);
        drop(held);
        drop(leaving);
        assert_eq!(free(&gate), 1);
    }
}
