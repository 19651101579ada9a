//! A queue with lanes that are served in turn, so that no caller waits behind the backlog of
//! another one.
//!
//! The stores put it in front of everything that serves few requests at a time: the writer of
//! SQLite, the connections of PostgreSQL, the memory for request bodies. A lane holds the requests
//! of one namespace or of another group of callers, and is first in, first out. A turn serves one
//! request of a lane; a lane that had its turn goes behind the lanes that arrived meanwhile. So a
//! request waits for at most one request of each other lane, however many those have queued. A full
//! lane rejects only requests of its own.
//!
//! Callers who are not known yet ("strangers") have a lane for each network, and all these lanes
//! share one turn, because one stranger may use any number of networks. Such a turn serves a few of
//! the networks, and they take turns among themselves.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr};

use vault_format::name::{NamespaceId, Slug};

use crate::StoreError;
use crate::records::Write;

/// First parts of the partitions whose names contain a vault's name (slug) instead of its id: what
/// machines, and strangers who ask to enrol, write.
const NAMED_BY_SLUG: [&str; 6] = ["dev", "devid", "ns", "pend", "seen", "withdrawn"];

/// First parts of the partitions that only background work writes by itself: marks of objects that
/// are to be deleted, the progress of the garbage collection, and the state of the work.
const UPKEEP: [&str; 3] = ["collected", "doomed", "work"];

/// The group of callers whose requests wait together and are served in turn with other groups.
///
/// A namespace has two lanes. A flood by its machines, or by strangers who ask to enrol there, so
/// does not delay its owner, who could end the flood. Strangers have one lane for each of their
/// networks.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Lane {
    /// People and apps of this namespace, which is named by its id.
    Namespace(NamespaceId),
    /// Machines of this namespace, which is named by its slug.
    Machines(Slug),
    /// Callers from this network who are not known yet. The text is an IPv4 /24 or an IPv6 /56, as
    /// rate limits write it.
    Network(Box<str>),
    /// Background work. No tenant and no stranger can fill its lane.
    Upkeep,
    /// Other work of the service, of no namespace or of several.
    Service,
}

impl Lane {
    /// Returns the lane of a commit: that of the one namespace whose records it changes, or else
    /// that of the one network for which it counts.
    pub fn for_writes(writes: &[Write]) -> Self {
        let partitions = || writes.iter().map(|write| write.key().partition.as_str());
        if !writes.is_empty() && partitions().all(is_upkeep) {
            return Self::Upkeep;
        }
        find_single_lane(partitions().filter_map(namespace_of))
            .or_else(|| find_single_lane(partitions().filter_map(machines_of)))
            .or_else(|| partitions().find_map(network_of))
            .unwrap_or(Self::Service)
    }
}

/// Returns the lane that all of `lanes` are; `None` if they differ, since work over several
/// namespaces must not take the turn of one of them.
fn find_single_lane(lanes: impl Iterator<Item = Lane>) -> Option<Lane> {
    let mut lanes: BTreeSet<_> = lanes.collect();
    lanes.pop_first().filter(|_| lanes.is_empty())
}

fn is_upkeep(partition: &str) -> bool {
    let (first, _) = partition.split_once('/').unwrap_or((partition, ""));
    UPKEEP.contains(&first)
}

/// Returns the lane of the network that stands at the end of a rate limit's partition.
fn network_of(partition: &str) -> Option<Lane> {
    let counted = partition.strip_prefix("limit/")?;
    let (rest, length) = counted.rsplit_once('/')?;
    let (_, address) = rest.rsplit_once('/')?;
    let is_network = match length {
        "24" => address.parse::<Ipv4Addr>().is_ok(),
        "56" => address.parse::<Ipv6Addr>().is_ok(),
        _ => false,
    };
    is_network.then(|| Lane::Network(format!("{address}/{length}").into()))
}

fn namespace_of(partition: &str) -> Option<Lane> {
    let (_, id) = partition.split_once('/')?;
    id.parse().ok().map(Lane::Namespace)
}

fn machines_of(partition: &str) -> Option<Lane> {
    let (first, slug) = partition.split_once('/')?;
    // Only these partitions: in others, a stranger may have made the name up, and would get a lane
    // and so a turn for each name.
    NAMED_BY_SLUG.contains(&first).then_some(())?;
    slug.parse().ok().map(Lane::Machines)
}

/// Everyone who shares one turn: a lane, or all networks of strangers together.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Party {
    /// The callers of this lane.
    Lane(Lane),
    /// Callers who are not known yet, from all networks together.
    Strangers,
}

impl Party {
    /// Returns the party to which a lane belongs.
    pub fn of(lane: &Lane) -> Self {
        match lane {
            Lane::Network(_) => Self::Strangers,
            _ => Self::Lane(lane.clone()),
        }
    }
}

/// Most networks that one turn of strangers serves. Their commits have a few rows each, so all of
/// them are less work than one commit of a tenant may be.
const NETWORKS_PER_TURN: usize = 8;

/// An amount of work, by which requests are grouped.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Work {
    /// Rows that are written, or requests where rows do not matter.
    pub rows: usize,
    /// Content of the requests, in bytes.
    pub bytes: usize,
}

impl Work {
    fn plus(self, other: Self) -> Self {
        Self {
            rows: self.rows.saturating_add(other.rows),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn fits(self, bound: Self) -> bool {
        self.rows <= bound.rows && self.bytes <= bound.bytes
    }
}

/// A request in a [`FairQueue`].
pub trait Waiting {
    /// Returns the work that serving the request takes.
    fn work(&self) -> Work;

    /// Returns whether the caller has given up, so that the request need not be served.
    fn is_abandoned(&self) -> bool;
}

/// The bounds of one lane, and of all lanes together. An empty lane accepts a request of any size.
#[derive(Clone, Copy, Debug)]
pub struct LaneBound {
    /// Maximum number of requests that wait in a lane.
    pub requests: usize,
    /// Maximum content of the requests that wait in a lane, in bytes.
    pub bytes: usize,
    /// Maximum content of the requests that wait in all lanes, in bytes. Beyond it, the party with
    /// the most content loses its latest request that has content.
    pub all_bytes: usize,
}

impl LaneBound {
    /// Returns a bound that limits only the number of requests.
    pub const fn of_requests(requests: usize) -> Self {
        Self {
            requests,
            bytes: usize::MAX,
            all_bytes: usize::MAX,
        }
    }
}

/// A queue with lanes that are served in turn; see the module.
pub struct FairQueue<T> {
    /// The lanes with waiting requests: those in `turns` and `served`, and all in `networks` and
    /// `served_networks`. An empty lane is removed.
    lanes: HashMap<Lane, Queued<T>>,
    /// The parties that wait for a turn, next one first.
    turns: VecDeque<Party>,
    /// The parties that the last group served.
    served: Vec<Party>,
    /// The networks of strangers that wait, in the order in which they take turns among themselves.
    networks: VecDeque<Lane>,
    /// The networks that the last turns of strangers served.
    served_networks: Vec<Lane>,
    bound: LaneBound,
}

/// The requests that one call serves together, and their work so far.
struct Group<T> {
    requests: Vec<T>,
    work: Work,
    bound: Work,
}

/// The outcome of a party's turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Turn {
    Served,
    /// The group has no room left for the party's next request.
    NoRoom,
    /// The party has no waiting request.
    Nobody,
}

struct Queued<T> {
    requests: VecDeque<T>,
    bytes: usize,
}

impl<T: Waiting> Queued<T> {
    fn has_room(&self, bytes: usize, bound: LaneBound) -> bool {
        self.requests.is_empty()
            || (self.requests.len() < bound.requests
                && self.bytes.saturating_add(bytes) <= bound.bytes)
    }

    fn drop_abandoned(&mut self) {
        self.requests.retain(|request| !request.is_abandoned());
        self.bytes = self.requests.iter().map(|it| it.work().bytes).sum();
    }

    /// Drops abandoned requests at the front. Returns the work of the oldest request that still
    /// waits, which is then the first.
    fn next_work(&mut self) -> Option<Work> {
        while self.requests.front().is_some_and(Waiting::is_abandoned) {
            self.take_front();
        }
        self.requests.front().map(Waiting::work)
    }

    /// Takes the latest request that has content. Returns it with its position in the lane.
    fn take_latest(&mut self) -> Option<(usize, T)> {
        let has_content = |request: &T| request.work().bytes > 0;
        let place = self.requests.iter().rposition(has_content)?;
        let request = self.requests.remove(place)?;
        self.bytes -= request.work().bytes;
        Some((place, request))
    }

    fn put_back(&mut self, place: usize, request: T) {
        self.bytes += request.work().bytes;
        self.requests.insert(place, request);
    }

    fn take_front(&mut self) -> Option<T> {
        let request = self.requests.pop_front()?;
        self.bytes -= request.work().bytes;
        Some(request)
    }
}

impl<T: Waiting> FairQueue<T> {
    /// Creates an empty queue whose lanes have these bounds.
    pub fn new(bound: LaneBound) -> Self {
        Self {
            lanes: HashMap::new(),
            turns: VecDeque::new(),
            served: Vec::new(),
            networks: VecDeque::new(),
            served_networks: Vec::new(),
            bound,
        }
    }

    /// Adds a request at the end of its lane. Fails with `Busy` if the lane is full; the request is
    /// dropped then, and no other lane is affected. If all lanes together are full, requests of
    /// parties that have more content are dropped to make room; if that is not enough, it fails.
    pub fn push(&mut self, lane: Lane, request: T) -> Result<(), StoreError> {
        let bytes = request.work().bytes;
        // Check the lane first: no other request may be dropped for one that its own lane rejects.
        self.check_lane(&lane, bytes)?;
        self.make_room(&lane, bytes)?;
        let queued = match self.lanes.entry(lane) {
            Entry::Occupied(lane) => lane.into_mut(),
            Entry::Vacant(lane) => {
                let party = Party::of(lane.key());
                let mut has_turn = false;
                if party == Party::Strangers {
                    self.networks.push_back(lane.key().clone());
                    // Another network may have given the party its turn already.
                    has_turn = self.turns.contains(&party) || self.served.contains(&party);
                }
                if !has_turn {
                    self.turns.push_back(party);
                }
                lane.insert(Queued {
                    requests: VecDeque::new(),
                    bytes: 0,
                })
            }
        };
        queued.bytes += bytes;
        queued.requests.push_back(request);
        Ok(())
    }

    /// Fails with `Busy` if a lane has no room for a request with `bytes` bytes of content.
    fn check_lane(&mut self, lane: &Lane, bytes: usize) -> Result<(), StoreError> {
        let Some(queued) = self.lanes.get_mut(lane) else {
            return Ok(());
        };
        if !queued.has_room(bytes, self.bound) {
            // Drop abandoned requests only here, since that visits the whole lane.
            queued.drop_abandoned();
        }
        if !queued.has_room(bytes, self.bound) {
            return Err(StoreError::Busy);
        }
        Ok(())
    }

    /// Drops requests of parties with more content until a request of `lane` with `bytes` bytes
    /// fits. Fails with `Busy` if that would not be enough; then no request is dropped.
    fn make_room(&mut self, lane: &Lane, bytes: usize) -> Result<(), StoreError> {
        if self.bound.all_bytes == usize::MAX || self.has_content_room(bytes) {
            return Ok(());
        }
        for queued in self.lanes.values_mut() {
            queued.drop_abandoned();
        }
        let mut given_way = Vec::new();
        while !self.has_content_room(bytes) {
            let Some(largest) = self.find_larger_lane(lane, bytes) else {
                for (lane, place, request) in given_way.into_iter().rev() {
                    if let Some(queued) = self.lanes.get_mut(&lane) {
                        queued.put_back(place, request);
                    }
                }
                return Err(StoreError::Busy);
            };
            let queued = self.lanes.get_mut(&largest);
            let taken = queued.and_then(Queued::take_latest);
            given_way.extend(taken.map(|(place, request)| (largest, place, request)));
        }
        Ok(())
    }

    /// Returns the content of all waiting requests, in bytes.
    pub fn content(&self) -> usize {
        self.lanes.values().map(|queued| queued.bytes).sum()
    }

    fn has_content_room(&self, bytes: usize) -> bool {
        self.content().saturating_add(bytes) <= self.bound.all_bytes
    }

    /// Returns the lane from which a request is dropped to make room for `bytes` bytes in `lane`:
    /// the largest lane of the party with the most content, if that party has more than the party
    /// of `lane` would have. Otherwise it is the largest network of the same party that has more
    /// than `lane` would have.
    fn find_larger_lane(&self, lane: &Lane, bytes: usize) -> Option<Lane> {
        let mut contents = HashMap::<Party, usize>::new();
        for (lane, queued) in &self.lanes {
            *contents.entry(Party::of(lane)).or_default() += queued.bytes;
        }
        let own = Party::of(lane);
        let most = contents.get(&own).copied().unwrap_or(0) + bytes;
        let others = contents.into_iter().filter(|(party, _)| *party != own);
        let largest = others.max_by_key(|(_, bytes)| *bytes);
        let (party, most) = match largest.filter(|(_, bytes)| *bytes > most) {
            Some((party, _)) => (party, 0),
            None => {
                let held = self.lanes.get(lane).map_or(0, |queued| queued.bytes);
                (own, held + bytes)
            }
        };
        let lanes = self.lanes.iter();
        let lanes = lanes.filter(|(lane, queued)| Party::of(lane) == party && queued.bytes > most);
        let largest = lanes.max_by_key(|(_, queued)| queued.bytes);
        largest.map(|(lane, _)| lane.clone())
    }

    /// Takes the requests that are served next: one of each lane in turn, in several rounds while
    /// `bound` leaves room. The first is taken however much work it is. A request that does not fit
    /// keeps its turn for the next group and does not delay other lanes. The result is empty if
    /// none waits.
    pub fn take_group(&mut self, bound: Work) -> Vec<T> {
        let mut group = Group {
            requests: Vec::new(),
            work: Work::default(),
            bound,
        };
        let (mut kept, mut behind) = (VecDeque::new(), Vec::new());
        let mut is_first_round = true;
        self.requeue_served();
        loop {
            let Some(party) = self.turns.pop_front() else {
                // A round in which nothing fits ends the group.
                if self.served.is_empty() {
                    break;
                }
                self.requeue_served();
                is_first_round = false;
                continue;
            };
            match self.serve_party(&party, &mut group) {
                Turn::Served => self.served.push(party),
                Turn::Nobody => {}
                Turn::NoRoom if is_first_round => kept.push_back(party),
                // This group has served the party, so parties that arrive before the next group go
                // first.
                Turn::NoRoom => behind.push(party),
            }
        }
        self.turns = kept;
        self.served = behind;
        group.requests
    }

    /// Adds a party's next request to the group; for strangers, one request of each of a few
    /// networks.
    fn serve_party(&mut self, party: &Party, group: &mut Group<T>) -> Turn {
        if let Party::Lane(lane) = party {
            let turn = self.serve_lane(lane, group);
            if turn == Turn::Nobody {
                self.lanes.remove(lane);
            }
            return turn;
        }
        let mut served = 0;
        while served < NETWORKS_PER_TURN
            && let Some(network) = self.networks.pop_front()
        {
            match self.serve_lane(&network, group) {
                Turn::Served => {
                    served += 1;
                    self.served_networks.push(network);
                }
                Turn::Nobody => drop(self.lanes.remove(&network)),
                Turn::NoRoom => {
                    self.networks.push_front(network);
                    break;
                }
            }
        }
        match (served, self.networks.is_empty()) {
            (1.., _) => Turn::Served,
            (0, false) => Turn::NoRoom,
            (0, true) => Turn::Nobody,
        }
    }

    /// Adds the next request of a lane to the group.
    fn serve_lane(&mut self, lane: &Lane, group: &mut Group<T>) -> Turn {
        let Some(queued) = self.lanes.get_mut(lane) else {
            return Turn::Nobody;
        };
        let Some(next) = queued.next_work() else {
            return Turn::Nobody;
        };
        let work = group.work.plus(next);
        if !group.requests.is_empty() && !work.fits(group.bound) {
            return Turn::NoRoom;
        }
        group.work = work;
        group.requests.extend(queued.take_front());
        Turn::Served
    }

    /// Takes the next request of a party that `may_pass` accepts. Returns it with its party; `None`
    /// if no such party waits.
    pub fn take_next(&mut self, may_pass: impl Fn(&Party) -> bool) -> Option<(Party, T)> {
        self.requeue_served();
        let mut at = 0;
        while let Some(party) = self.turns.get(at) {
            if !may_pass(party) {
                at += 1;
                continue;
            }
            let party = self.turns.remove(at)?;
            let lane = match &party {
                Party::Lane(lane) => Some(lane.clone()),
                Party::Strangers => self.networks.pop_front(),
            };
            let Some(lane) = lane else { continue };
            if let Some(queued) = self.lanes.get_mut(&lane)
                && queued.next_work().is_some()
            {
                let request = queued.take_front()?;
                if party == Party::Strangers {
                    self.served_networks.push(lane);
                }
                self.served.push(party.clone());
                return Some((party, request));
            }
            self.lanes.remove(&lane);
            if party == Party::Strangers {
                // The party of strangers keeps its turn for the next network.
                self.turns.insert(at, party);
            }
        }
        None
    }

    /// Drops every request.
    pub fn clear(&mut self) {
        self.lanes.clear();
        self.turns.clear();
        self.served.clear();
        self.networks.clear();
        self.served_networks.clear();
    }

    /// Puts the parties that were served and still wait at the end of `turns`, and drops the others.
    fn requeue_served(&mut self) {
        for network in self.served_networks.drain(..) {
            match self.lanes.get(&network) {
                Some(queued) if !queued.requests.is_empty() => self.networks.push_back(network),
                _ => drop(self.lanes.remove(&network)),
            }
        }
        for party in self.served.drain(..) {
            let is_waiting = match &party {
                Party::Strangers => !self.networks.is_empty(),
                Party::Lane(lane) => {
                    let queued = self.lanes.get(lane);
                    queued.is_some_and(|queued| !queued.requests.is_empty())
                }
            };
            if is_waiting {
                self.turns.push_back(party);
            } else if let Party::Lane(lane) = party {
                self.lanes.remove(&lane);
            }
        }
    }
}

#[cfg(test)]
mod tests;
