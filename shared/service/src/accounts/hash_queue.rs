//! The queue of passwords that wait to be hashed. Only few are hashed at a time, since each hash
//! takes much memory and time. The clients' networks take turns, so that one network with many
//! requests delays each other network by one hash at a time.
//!
//! A client belongs to several nested networks (such as its /24 and its address), and the narrower
//! networks within a wider one take turns in the same way. When the queue is full, a request
//! displaces the last request of a network that has more places than its own; the displaced request
//! fails. So no network keeps the others out, and one that is alone may use all places.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::model::limits::Networks;

/// The waiting entries in the order of their arrival, and the turns of their networks. This is the
/// algorithm alone: it knows neither tasks nor time.
#[derive(Debug)]
struct Turns<T> {
    /// Maximum number of waiting entries.
    most: usize,
    waiting: Vec<WaitingHash<T>>,
    /// The networks with waiting entries, by name.
    networks: HashMap<String, Lane>,
    /// Number of the next event; turns and arrivals are ordered by these numbers.
    next: u64,
}

#[derive(Debug)]
struct WaitingHash<T> {
    number: u64,
    /// Names of the networks that the client belongs to, the widest first.
    networks: Vec<String>,
    value: T,
}

/// The state of a network that has waiting entries.
#[derive(Debug)]
struct Lane {
    waiting: usize,
    /// Number of the event since which the network waits: its first arrival, or its last turn. The
    /// network with the lowest number has the next turn.
    since: u64,
}

impl<T> Turns<T> {
    fn new(most: usize) -> Self {
        Self {
            most,
            waiting: Vec::new(),
            networks: HashMap::new(),
            next: 0,
        }
    }

    /// Adds an entry. Returns its number, and the entry that it displaces, if any. Returns `None`,
    /// and adds nothing, if the queue is full and no other network has more places than the
    /// client's own.
    fn enter(&mut self, networks: &Networks, value: T) -> Option<(u64, Option<T>)> {
        let names = networks.narrowest_first().rev();
        let names: Vec<_> = names.map(|network| network.name.to_owned()).collect();
        let displaced = if self.waiting.len() < self.most {
            None
        } else {
            let number = self.find_displaced(&names)?;
            self.remove(number)
        };
        let number = self.next;
        self.next += 1;
        for name in &names {
            let lane = self.networks.entry(name.clone()).or_insert(Lane {
                waiting: 0,
                since: number,
            });
            lane.waiting += 1;
        }
        self.waiting.push(WaitingHash {
            number,
            networks: names,
            value,
        });
        Some((number, displaced))
    }

    /// Returns the number of the entry that a new entry of a client in these networks displaces.
    /// The networks are compared level by level, from the widest. On the first level on which
    /// another network has at least two places more than the client's own, it is the last entry of
    /// the network with the most places.
    fn find_displaced(&self, names: &[String]) -> Option<u64> {
        for level in 0..names.len() {
            // All entries that share the wider networks of the new entry, so that only neighbours
            // compete.
            let rivals = self.waiting.iter().filter(|entry| {
                entry.networks.len() > level && entry.networks[..level] == names[..level]
            });
            let fullest = rivals
                .map(|entry| &entry.networks[level])
                .max_by_key(|name| self.count(name))?;
            if self.count(fullest) > self.count(&names[level]) + 1 {
                return self.find_last(fullest);
            }
        }
        None
    }

    /// Returns the last entry of a network; if it contains narrower networks, of the fullest of
    /// them.
    fn find_last(&self, name: &str) -> Option<u64> {
        let entries = self.waiting.iter();
        let entries = entries.filter(|entry| entry.networks.iter().any(|held| held == name));
        let last = entries.max_by_key(|entry| {
            let counts = entry.networks.iter().map(|name| self.count(name));
            (counts.collect::<Vec<_>>(), entry.number)
        });
        last.map(|entry| entry.number)
    }

    fn count(&self, name: &str) -> usize {
        self.networks.get(name).map_or(0, |lane| lane.waiting)
    }

    /// Removes and returns the entry whose turn it is.
    fn take_next(&mut self) -> Option<T> {
        let since = |name: &String| self.networks.get(name).map_or(0, |lane| lane.since);
        let next = self.waiting.iter().min_by_key(|entry| {
            let turns: Vec<_> = entry.networks.iter().map(since).collect();
            (turns, entry.number)
        })?;
        let (number, names) = (next.number, next.networks.clone());
        for name in names {
            if let Some(lane) = self.networks.get_mut(&name) {
                lane.since = self.next;
            }
        }
        self.next += 1;
        self.remove(number)
    }

    /// Removes an entry; `None` if it is not there.
    fn remove(&mut self, number: u64) -> Option<T> {
        let entries = &self.waiting;
        let at = entries.iter().position(|entry| entry.number == number)?;
        let entry = self.waiting.remove(at);
        for name in &entry.networks {
            if let Some(lane) = self.networks.get_mut(name) {
                lane.waiting -= 1;
                // A network without entries is forgotten. It loses no turn by that, because it
                // would enter at the end anyway.
                if lane.waiting == 0 {
                    self.networks.remove(name);
                }
            }
        }
        Some(entry.value)
    }
}

/// A fixed number of slots for hashing, and the queue of requests that wait for one. Clones share
/// it.
#[derive(Clone, Debug)]
pub struct HashQueue(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Number of slots in which no hash is computed at present.
    free: usize,
    turns: Turns<oneshot::Sender<Slot>>,
}

/// The right to compute one hash now. Dropping it passes the slot on to the next request in the
/// queue.
#[derive(Debug)]
pub struct Slot(HashQueue);

/// Error: the queue has no place for the request.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("too many passwords wait to be hashed")]
pub struct QueueFull;

impl HashQueue {
    /// Creates a queue with `slots` slots, in which at most `most` requests may wait.
    pub fn new(slots: usize, most: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            free: slots,
            turns: Turns::new(most),
        })))
    }

    /// Waits for a slot, in turn with the other networks. Fails at once if the queue is full, and
    /// later if a request of a network with fewer places displaces this one. Dropping the future
    /// leaves the queue.
    pub async fn acquire(&self, networks: &Networks) -> Result<Slot, QueueFull> {
        let (sender, receiver) = oneshot::channel();
        let place = {
            let mut state = self.lock_state();
            if state.free > 0 {
                state.free -= 1;
                return Ok(Slot(self.clone()));
            }
            let (number, displaced) = state.turns.enter(networks, sender).ok_or(QueueFull)?;
            // Closing its channel makes the displaced request fail.
            drop(displaced);
            QueuePlace {
                queue: self,
                number,
            }
        };
        let slot = receiver.await.map_err(|_| QueueFull);
        drop(place);
        slot
    }

    /// Returns the number of requests that wait for a slot.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.lock_state().turns.waiting.len()
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let next = {
            let mut state = self.0.lock_state();
            let next = state.turns.take_next();
            state.free += usize::from(next.is_none());
            next
        };
        if let Some(next) = next {
            // If the waiting request was cancelled meanwhile, `send` returns the slot, and dropping
            // it here passes it on again.
            drop(next.send(Slot(self.0.clone())));
        }
    }
}

/// A place in the queue. Dropping it leaves the queue, which also happens when the request is
/// cancelled.
struct QueuePlace<'a> {
    queue: &'a HashQueue,
    number: u64,
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        drop(self.queue.lock_state().turns.remove(self.number));
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;

    fn networks(address: &str) -> Networks {
        Networks::of(address.parse().ok())
    }

    fn enter(turns: &mut Turns<String>, address: &str) -> Result<Option<String>, QueueFull> {
        let entered = turns.enter(&networks(address), address.to_owned());
        entered.map(|(_, displaced)| displaced).ok_or(QueueFull)
    }

    fn take_all(turns: &mut Turns<String>) -> Vec<String> {
        std::iter::from_fn(|| turns.take_next()).collect()
    }

    #[test]
    fn networks_take_turns_and_so_do_the_networks_in_them() {
        let mut turns = Turns::new(64);
        for address in [
            "2001:db8:1:100::1",
            "2001:db8:1:100::2",
            "2001:db8:1:100::3",
            "2001:db8:1:101::1",
            "2001:db8:1:200::1",
            "192.0.2.1",
            "192.0.2.1",
            "192.0.2.2",
            "198.51.100.1",
        ] {
            assert_eq!(enter(&mut turns, address), Ok(None));
        }
        assert_eq!(
            take_all(&mut turns),
            [
                "2001:db8:1:100::1",
                "192.0.2.1",
                "198.51.100.1",
                "2001:db8:1:200::1",
                "192.0.2.2",
                "2001:db8:1:101::1",
                "192.0.2.1",
                "2001:db8:1:100::2",
                "2001:db8:1:100::3",
            ]
        );
        assert!(turns.networks.is_empty());
    }

    /// A network whose entry was served, and that adds another, waits behind those that were there.
    #[test]
    fn a_network_that_comes_again_waits_behind_the_others() {
        let mut turns = Turns::new(64);
        enter(&mut turns, "192.0.2.1").unwrap();
        for n in 0..3 {
            enter(&mut turns, &format!("198.51.100.{n}")).unwrap();
        }
        assert_eq!(turns.take_next().as_deref(), Some("192.0.2.1"));
        enter(&mut turns, "192.0.2.1").unwrap();
        assert_eq!(turns.take_next().as_deref(), Some("198.51.100.0"));
        assert_eq!(turns.take_next().as_deref(), Some("192.0.2.1"));
        assert_eq!(turns.take_next().as_deref(), Some("198.51.100.1"));
    }

    /// A single /48, /24 or address may fill the queue, but it keeps no other network out of it.
    #[test]
    fn a_full_queue_has_room_for_a_network_with_fewer_places() {
        for flood in [
            |n: usize| format!("2001:db8:1:{n:x}::1"),
            |n| format!("2001:db8:1:{n:x}00::1"),
            |n| format!("203.0.113.{n}"),
            |_| "203.0.113.7".to_owned(),
        ] {
            let mut turns = Turns::new(64);
            for n in 0..64 {
                assert_eq!(enter(&mut turns, &flood(n)), Ok(None));
            }
            let last = turns.enter(&networks(&flood(64)), flood(64));
            let displaced = last.and_then(|(_, displaced)| displaced);
            assert_eq!(displaced, None, "a flood displaces nothing of its own");
            let mut displaced = 0;
            for _ in 0..40 {
                let entered = enter(&mut turns, "192.0.2.1");
                displaced += usize::from(entered.is_ok());
                assert_ne!(entered, Ok(Some("192.0.2.1".to_owned())));
                assert_ne!(entered, Ok(None));
            }
            assert_eq!(displaced, 32, "each has half of the places");
            let order = take_all(&mut turns);
            assert_eq!(order.len(), 64);
            assert_eq!(order[1], "192.0.2.1", "{}", order[0]);
        }
    }

    /// The same holds for the addresses within one network.
    #[test]
    fn a_neighbour_in_the_same_network_has_room_too() {
        let mut turns = Turns::new(64);
        for _ in 0..64 {
            enter(&mut turns, "203.0.113.7").unwrap();
        }
        let entered = enter(&mut turns, "203.0.113.8");
        assert_eq!(entered, Ok(Some("203.0.113.7".to_owned())));
        turns.take_next();
        assert_eq!(turns.take_next().as_deref(), Some("203.0.113.8"));
    }

    #[test]
    fn a_queue_of_equal_networks_is_full() {
        let mut turns = Turns::new(3);
        for n in 0..3 {
            enter(&mut turns, &format!("192.0.{n}.1")).unwrap();
        }
        assert_eq!(enter(&mut turns, "198.51.100.1"), Err(QueueFull));
        turns.take_next();
        assert_eq!(enter(&mut turns, "198.51.100.1"), Ok(None));
    }

    #[tokio::test]
    async fn a_slot_goes_to_a_request_that_still_waits() {
        let queue = HashQueue::new(1, 2);
        let held = queue.acquire(&networks("192.0.2.1")).await.unwrap();
        let elsewhere = networks("192.0.2.2");
        let mut given_up = Box::pin(queue.acquire(&elsewhere));
        assert!(is_waiting(given_up.as_mut()).await);
        let mut waiting = JoinSet::new();
        let second = queue.clone();
        waiting.spawn(async move { second.acquire(&networks("198.51.100.1")).await.map(drop) });
        while queue.waiting() < 2 {
            tokio::task::yield_now().await;
        }
        drop(given_up);
        assert_eq!(queue.waiting(), 1);
        drop(held);
        assert_eq!(waiting.join_next().await.unwrap().unwrap(), Ok(()));
        assert!(queue.acquire(&networks("192.0.2.1")).await.is_ok());
    }

    #[tokio::test]
    async fn a_request_that_loses_its_place_is_told_at_once() {
        let queue = HashQueue::new(1, 2);
        let held = queue.acquire(&networks("192.0.2.1")).await.unwrap();
        let mut waiting = JoinSet::new();
        for (number, address) in ["192.0.2.1", "192.0.2.1", "198.51.100.1"]
            .iter()
            .enumerate()
        {
            let queue = queue.clone();
            waiting.spawn(async move {
                let slot = queue.acquire(&networks(address)).await;
                (number, slot.map(drop))
            });
            tokio::task::yield_now().await;
        }
        let lost = waiting.join_next().await.unwrap().unwrap();
        assert_eq!(lost, (1, Err(QueueFull)));
        drop(held);
        let rest = waiting.join_all().await;
        assert!(rest.iter().all(|(_, done)| done.is_ok()), "{rest:?}");
        assert_eq!(queue.waiting(), 0);
    }

    /// Polls a future once, and returns whether it still waits.
    async fn is_waiting<F: Future + Unpin>(mut future: F) -> bool {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(std::pin::Pin::new(&mut future).poll(context).is_pending())
        })
        .await
    }
}
