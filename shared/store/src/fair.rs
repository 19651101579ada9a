//! A queue that serves its lanes in turn, so that nobody waits behind the backlog of somebody else.
//!
//! The stores put it in front of whatever takes one request at a time: the writer of SQLite, the
//! connections of PostgreSQL, the memory for request bodies. A lane is first in, first out. Between
//! lanes, each that waits gets one request served in turn, and a lane that was just served goes
//! behind those that arrived meanwhile. So a request waits for at most one request of each other
//! lane, however many those have queued. A lane that is full rejects requests of its own alone.
//!
//! The networks of strangers share one turn, since a stranger may have any number of networks. A few
//! of them are served in it, and they take turns among themselves.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr};

use vault_format::name::{NamespaceId, Slug};

use crate::StoreError;
use crate::records::Write;

/// First parts of the partitions that are named by a vault's name instead of its id: what machines,
/// and strangers who ask to enrol, write.
const NAMED_BY_SLUG: [&str; 6] = ["dev", "devid", "ns", "pend", "seen", "withdrawn"];

/// First parts of the partitions that only background work writes by commits of its own: marks of
/// objects that are collected, visits of the collection, and the state of the work.
const UPKEEP: [&str; 3] = ["collected", "doomed", "work"];

/// The party for which a request is made.
///
/// A namespace has two lanes. So a flood of its machines, or of strangers who ask to enrol there,
/// does not delay its owner, who could end the flood. Strangers have one for each of their networks.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Lane {
    /// People and apps of this namespace.
    Namespace(NamespaceId),
    /// Machines of the namespace with this name.
    Machines(Slug),
    /// Callers from this network who are not known yet: an IPv4 /24 or an IPv6 /56, as limits name
    /// it.
    Network(Box<str>),
    /// Background work. No tenant and no stranger can fill its lane.
    Upkeep,
    /// Other work of no namespace, and of several.
    Service,
}

impl Lane {
    /// Returns the lane of a commit: that of the namespace whose records it changes, or else that of
    /// the network for which it counts.
    pub fn for_writes(writes: &[Write]) -> Self {
        let partitions = || writes.iter().map(|write| write.key().partition.as_str());
        if !writes.is_empty() && partitions().all(is_upkeep) {
            return Self::Upkeep;
        }
        find_only(partitions().filter_map(namespace_of))
            .or_else(|| find_only(partitions().filter_map(machines_of)))
            .or_else(|| partitions().find_map(network_of))
            .unwrap_or(Self::Service)
    }
}

/// Returns the lane that all of these are; `None` if there are several, since work over several
/// namespaces must not take the turn of one of them.
fn find_only(lanes: impl Iterator<Item = Lane>) -> Option<Lane> {
    let mut lanes: BTreeSet<_> = lanes.collect();
    lanes.pop_first().filter(|_| lanes.is_empty())
}

fn is_upkeep(partition: &str) -> bool {
    let (first, _) = partition.split_once('/').unwrap_or((partition, ""));
    UPKEEP.contains(&first)
}

/// Returns the lane of the network that a counter of a limit names at its end.
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
    // Only these: a name in another partition may be one that a stranger made up, and a lane for
    // each would be a turn for each.
    NAMED_BY_SLUG.contains(&first).then_some(())?;
    slug.parse().ok().map(Lane::Machines)
}

/// A party that has turns: a lane, or all networks of strangers together.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Party {
    /// The one party of this lane.
    Lane(Lane),
    /// Callers who are not known yet, from all networks.
    Strangers,
}

impl Party {
    /// Returns the party of a lane.
    pub fn of(lane: &Lane) -> Self {
        match lane {
            Lane::Network(_) => Self::Strangers,
            _ => Self::Lane(lane.clone()),
        }
    }
}

/// Most networks that one turn of strangers serves. Their commits have a few rows each, so all of
/// them are less than one commit of a tenant may be.
const NETWORKS_PER_TURN: usize = 8;

/// An amount of work.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Work {
    /// Rows that are written, or requests where rows do not matter.
    pub rows: usize,
    /// Content, in bytes.
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
    /// Returns the work that it takes.
    fn work(&self) -> Work;

    /// Returns whether its caller has given up, so that it need not be served.
    fn is_abandoned(&self) -> bool;
}

/// The size of one lane, which takes any request while it is empty, and of all lanes together.
#[derive(Clone, Copy, Debug)]
pub struct LaneBound {
    /// Maximum number of requests that wait in a lane.
    pub requests: usize,
    /// Maximum content of the requests that wait in a lane, in bytes.
    pub bytes: usize,
    /// Maximum content of the requests that wait in all lanes, in bytes. Beyond it, the latest
    /// request with content of the party with most gives way.
    pub all_bytes: usize,
}

impl LaneBound {
    /// Returns a bound of the number of requests alone.
    pub const fn of_requests(requests: usize) -> Self {
        Self {
            requests,
            bytes: usize::MAX,
            all_bytes: usize::MAX,
        }
    }
}

/// A queue with lanes; see the module.
pub struct FairQueue<T> {
    /// The lanes in which somebody waits: those of `turns` and `served`, and all of `networks` and
    /// `served_networks`. A lane that is empty is forgotten.
    lanes: HashMap<Lane, Queued<T>>,
    /// The parties that wait, in the order of their turns.
    turns: VecDeque<Party>,
    /// The parties that the last group served.
    served: Vec<Party>,
    /// The networks of strangers, in the order of their turns among themselves.
    networks: VecDeque<Lane>,
    /// The networks that the last turns of strangers served.
    served_networks: Vec<Lane>,
    bound: LaneBound,
}

/// Requests that are served together.
struct Group<T> {
    requests: Vec<T>,
    work: Work,
    bound: Work,
}

/// Outcome of a turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Turn {
    Served,
    /// The group has no room for the next request of the party.
    NoRoom,
    /// Nobody of the party waits.
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

    /// Returns the work of the oldest request whose caller still waits, which is then in front.
    fn next_work(&mut self) -> Option<Work> {
        while self.requests.front().is_some_and(Waiting::is_abandoned) {
            self.take_front();
        }
        self.requests.front().map(Waiting::work)
    }

    /// Takes the latest request that has content, and its place in the lane.
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
    /// Creates an empty queue whose lanes have this size.
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
    /// dropped then, and no other lane is affected. If all lanes together are full, it fails unless
    /// requests of parties that have more can give way to it.
    pub fn push(&mut self, lane: Lane, request: T) -> Result<(), StoreError> {
        let bytes = request.work().bytes;
        // In this order: nobody gives way to a request that its own lane has no room for.
        self.check_lane(&lane, bytes)?;
        self.make_room(&lane, bytes)?;
        let queued = match self.lanes.entry(lane) {
            Entry::Occupied(lane) => lane.into_mut(),
            Entry::Vacant(lane) => {
                let party = Party::of(lane.key());
                let mut has_turn = false;
                if party == Party::Strangers {
                    self.networks.push_back(lane.key().clone());
                    // Another network may wait already.
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

    /// Fails with `Busy` if a lane has no room for a request with so many bytes.
    fn check_lane(&mut self, lane: &Lane, bytes: usize) -> Result<(), StoreError> {
        let Some(queued) = self.lanes.get_mut(lane) else {
            return Ok(());
        };
        if !queued.has_room(bytes, self.bound) {
            // Only here, since it visits the whole lane.
            queued.drop_abandoned();
        }
        if !queued.has_room(bytes, self.bound) {
            return Err(StoreError::Busy);
        }
        Ok(())
    }

    /// Lets requests of parties with more content give way to one of `lane` with so many bytes. Fails
    /// with `Busy` if that would not be enough; then nobody gives way.
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

    /// Returns the content of the requests that wait, in bytes.
    pub fn content(&self) -> usize {
        self.lanes.values().map(|queued| queued.bytes).sum()
    }

    fn has_content_room(&self, bytes: usize) -> bool {
        self.content().saturating_add(bytes) <= self.bound.all_bytes
    }

    /// Returns the lane with most content of the party with most, if that is more than the party of
    /// `lane` would have with so many bytes more; or else of the other networks of its party, one that
    /// has more than `lane` would have.
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

    /// Takes the requests that are served next, one of each lane in turn, and again while there is
    /// work left of `bound`. The first is taken however much work it is. A request that does not fit
    /// keeps its turn for the next group and holds up no other lane. Empty if nobody waits.
    pub fn take_group(&mut self, bound: Work) -> Vec<T> {
        let mut group = Group {
            requests: Vec::new(),
            work: Work::default(),
            bound,
        };
        let (mut kept, mut behind) = (VecDeque::new(), Vec::new());
        let mut is_first_round = true;
        self.end_turns();
        loop {
            let Some(party) = self.turns.pop_front() else {
                // A round in which nothing fits ends the group.
                if self.served.is_empty() {
                    break;
                }
                self.end_turns();
                is_first_round = false;
                continue;
            };
            match self.serve_party(&party, &mut group) {
                Turn::Served => self.served.push(party),
                Turn::Nobody => {}
                Turn::NoRoom if is_first_round => kept.push_back(party),
                // The group has served this party, so those that arrive before the next group go
                // first.
                Turn::NoRoom => behind.push(party),
            }
        }
        self.turns = kept;
        self.served = behind;
        group.requests
    }

    /// Adds the next requests of a party to the group: that of a lane, or those of a few networks.
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

    /// Takes the next request of a party that `may_pass`. Returns it with its party; `None` if none of
    /// these parties waits.
    pub fn take_next(&mut self, may_pass: impl Fn(&Party) -> bool) -> Option<(Party, T)> {
        self.end_turns();
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
                // The next network has the turn.
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

    /// Puts the parties that were served behind those that wait.
    fn end_turns(&mut self) {
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
