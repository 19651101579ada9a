//! A queue that serves its lanes in turn, so that nobody waits behind the backlog of somebody else.
//!
//! The stores put it in front of whatever takes one request at a time: the writer of SQLite, the
//! connections of PostgreSQL, the memory for request bodies. A lane is first in, first out. Between
//! lanes, each that waits gets one request served in turn, and a lane that was just served goes
//! behind those that arrived meanwhile. So a request waits for at most one request of each other
//! lane, however many those have queued. A lane that is full rejects requests of its own alone.

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

/// The size of one lane. An empty lane takes any request.
#[derive(Clone, Copy, Debug)]
pub struct LaneBound {
    /// Maximum number of requests that wait.
    pub requests: usize,
    /// Maximum content of the requests that wait, in bytes.
    pub bytes: usize,
}

/// A queue with a lane for each party; see the module.
pub struct FairQueue<T> {
    /// The lanes that are in `turns` or `served`, and no others: a lane that is empty is forgotten.
    lanes: HashMap<Lane, Queued<T>>,
    /// The lanes that wait, in the order of their turns.
    turns: VecDeque<Lane>,
    /// The lanes that the last group served.
    served: Vec<Lane>,
    bound: LaneBound,
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
            bound,
        }
    }

    /// Adds a request at the end of its lane. Fails with `Busy` if the lane is full; the request is
    /// dropped then, and no other lane is affected.
    pub fn push(&mut self, lane: Lane, request: T) -> Result<(), StoreError> {
        let bytes = request.work().bytes;
        let queued = match self.lanes.entry(lane) {
            Entry::Occupied(lane) => lane.into_mut(),
            Entry::Vacant(lane) => {
                self.turns.push_back(lane.key().clone());
                lane.insert(Queued {
                    requests: VecDeque::new(),
                    bytes: 0,
                })
            }
        };
        if !queued.has_room(bytes, self.bound) {
            // Only here, since it visits the whole lane.
            queued.drop_abandoned();
        }
        if !queued.has_room(bytes, self.bound) {
            return Err(StoreError::Busy);
        }
        queued.bytes += bytes;
        queued.requests.push_back(request);
        Ok(())
    }

    /// Takes the requests that are served next, one of each lane in turn, and again while there is
    /// work left of `bound`. The first is taken however much work it is. A request that does not fit
    /// keeps its turn for the next group and holds up no other lane. Empty if nobody waits.
    pub fn take_group(&mut self, bound: Work) -> Vec<T> {
        let mut group = Vec::new();
        let mut work = Work::default();
        let (mut kept, mut behind) = (VecDeque::new(), Vec::new());
        let mut is_first_round = true;
        self.end_turns();
        loop {
            let Some(lane) = self.turns.pop_front() else {
                // A round in which nothing fits ends the group.
                if self.served.is_empty() {
                    break;
                }
                self.end_turns();
                is_first_round = false;
                continue;
            };
            let next = self.lanes.get_mut(&lane).and_then(Queued::next_work);
            let Some(next) = next else {
                self.lanes.remove(&lane);
                continue;
            };
            if !group.is_empty() && !work.plus(next).fits(bound) {
                if is_first_round {
                    kept.push_back(lane);
                } else {
                    // The group has served this lane, so those that arrive before the next group go
                    // first.
                    behind.push(lane);
                }
                continue;
            }
            work = work.plus(next);
            group.extend(self.lanes.get_mut(&lane).and_then(Queued::take_front));
            self.served.push(lane);
        }
        self.turns = kept;
        self.served = behind;
        group
    }

    /// Takes the next request of a lane that `may_pass`. Returns it with its lane; `None` if none of
    /// these lanes waits.
    pub fn take_next(&mut self, may_pass: impl Fn(&Lane) -> bool) -> Option<(Lane, T)> {
        self.end_turns();
        let mut at = 0;
        while let Some(lane) = self.turns.get(at) {
            if !may_pass(lane) {
                at += 1;
                continue;
            }
            let lane = self.turns.remove(at)?;
            if let Some(queued) = self.lanes.get_mut(&lane)
                && queued.next_work().is_some()
            {
                let request = queued.take_front()?;
                self.served.push(lane.clone());
                return Some((lane, request));
            }
            self.lanes.remove(&lane);
        }
        None
    }

    /// Drops every request.
    pub fn clear(&mut self) {
        self.lanes.clear();
        self.turns.clear();
        self.served.clear();
    }

    /// Puts the lanes that were served behind those that wait.
    fn end_turns(&mut self) {
        for lane in self.served.drain(..) {
            match self.lanes.get(&lane) {
                Some(queued) if !queued.requests.is_empty() => self.turns.push_back(lane),
                _ => drop(self.lanes.remove(&lane)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::records::{RecordKey, When};

    /// A request with a name, whose caller holds the other `Rc` while it waits.
    struct Request(&'static str, Work, Rc<()>);

    impl Waiting for Request {
        fn work(&self) -> Work {
            self.1
        }

        fn is_abandoned(&self) -> bool {
            Rc::strong_count(&self.2) == 1
        }
    }

    struct Callers {
        queue: FairQueue<Request>,
        waiting: Vec<Rc<()>>,
    }

    const ONE: Work = Work { rows: 1, bytes: 1 };

    impl Callers {
        fn new(requests: usize, bytes: usize) -> Self {
            Self {
                queue: FairQueue::new(LaneBound { requests, bytes }),
                waiting: Vec::new(),
            }
        }

        fn push(&mut self, lane: u8, name: &'static str, work: Work) -> bool {
            let caller = Rc::new(());
            self.waiting.push(Rc::clone(&caller));
            let request = Request(name, work, caller);
            self.queue.push(lane_of(lane), request).is_ok()
        }

        fn take(&mut self, rows: usize) -> String {
            let bytes = usize::MAX;
            let group = self.queue.take_group(Work { rows, bytes });
            group.iter().map(|request| request.0).collect()
        }
    }

    fn lane_of(lane: u8) -> Lane {
        Lane::Namespace(NamespaceId::from_parts(u64::from(lane), 0))
    }

    #[test]
    fn lanes_are_served_in_turn_and_each_in_order() {
        let mut callers = Callers::new(9, 99);
        for (lane, name) in [(1, "a"), (1, "b"), (1, "c"), (2, "x"), (3, "p"), (2, "y")] {
            assert!(callers.push(lane, name, ONE));
        }
        assert_eq!(callers.take(4), "axpb");
        assert_eq!(callers.take(4), "yc");
        assert_eq!(callers.take(4), "");
        assert!(callers.queue.lanes.is_empty());
    }

    #[test]
    fn a_request_that_does_not_fit_keeps_its_turn_and_holds_up_nobody() {
        let large = Work { rows: 9, bytes: 1 };
        let mut callers = Callers::new(9, 99);
        for (lane, name, work) in [
            (1, "a", ONE),
            (2, "L", large),
            (1, "b", ONE),
            (2, "M", large),
            (1, "c", ONE),
            (3, "x", ONE),
        ] {
            assert!(callers.push(lane, name, work));
        }
        // The small ones fill the group, and the large one is first in the next.
        assert_eq!(callers.take(9), "axbc");
        assert!(callers.push(1, "d", ONE));
        assert_eq!(callers.take(9), "L");
        assert_eq!(callers.take(9), "d");
        assert_eq!(callers.take(9), "M");
        assert!(callers.queue.lanes.is_empty());
    }

    #[test]
    fn a_request_waits_for_at_most_one_of_another_lane() {
        let mut callers = Callers::new(999, 9999);
        for _ in 0..100 {
            callers.push(
                1,
                "a",
                Work {
                    rows: 100,
                    bytes: 1,
                },
            );
        }
        assert_eq!(callers.take(100), "a");
        // It comes while that one is served.
        callers.push(2, "x", ONE);
        assert_eq!(callers.take(100), "x");
        assert_eq!(callers.take(100), "a");
        callers.push(2, "y", ONE);
        callers.push(3, "p", ONE);
        assert_eq!(callers.take(100), "yp");
    }

    #[test]
    fn a_group_ends_at_its_bound_and_has_at_least_one_request() {
        let mut callers = Callers::new(9, 99);
        let work = |rows, bytes| Work { rows, bytes };
        callers.push(1, "a", work(500, 50));
        callers.push(1, "b", work(60, 1));
        callers.push(2, "x", work(60, 1));
        callers.push(2, "y", work(40, 1));
        assert_eq!(callers.take(100), "a");
        assert_eq!(callers.take(100), "xy");
        assert_eq!(callers.take(100), "b");
        callers.push(1, "c", work(1, 7));
        callers.push(2, "z", work(1, 4));
        let group = callers.queue.take_group(work(9, 10));
        assert_eq!(group.len(), 1, "by bytes too");
    }

    #[test]
    fn a_full_lane_rejects_its_own_requests_alone() {
        let mut callers = Callers::new(2, 10);
        assert!(callers.push(1, "a", ONE) && callers.push(1, "b", ONE));
        assert!(!callers.push(1, "c", ONE));
        let large = Work { rows: 1, bytes: 99 };
        assert!(callers.push(2, "x", large), "an empty lane takes anything");
        assert!(!callers.push(2, "y", ONE), "full by its bytes");
        assert!(callers.push(3, "p", ONE));
        assert_eq!(callers.take(9), "axpb");
        assert!(callers.push(2, "y", ONE) && callers.push(1, "d", ONE));
        assert_eq!(callers.take(9), "yd");
    }

    #[test]
    fn a_caller_who_leaves_frees_the_place() {
        let mut callers = Callers::new(2, 10);
        callers.push(1, "a", ONE);
        callers.push(1, "b", ONE);
        callers.push(2, "x", ONE);
        callers.waiting.remove(1);
        assert!(callers.push(1, "c", ONE));
        callers.waiting.remove(0);
        assert_eq!(callers.take(9), "cx");
        assert!(callers.queue.lanes.is_empty());
    }

    #[test]
    fn a_lane_whose_callers_all_left_is_forgotten() {
        let mut callers = Callers::new(2, 10);
        callers.push(1, "a", ONE);
        callers.push(2, "x", ONE);
        callers.push(2, "y", ONE);
        callers.waiting.truncate(1);
        assert_eq!(callers.take(9), "a");
        assert_eq!(callers.take(9), "");
        assert!(callers.queue.lanes.is_empty() && callers.queue.turns.is_empty());
    }

    #[test]
    fn a_lane_that_may_not_pass_keeps_its_turn() {
        let mut callers = Callers::new(9, 99);
        for (lane, name) in [(1, "a"), (1, "b"), (2, "x"), (3, "p")] {
            callers.push(lane, name, ONE);
        }
        let mut take = |closed: u8| {
            let taken = callers.queue.take_next(|lane| *lane != lane_of(closed));
            taken.map_or("-", |(_, request)| request.0)
        };
        let order = [take(1), take(1), take(1), take(0), take(0), take(0)];
        assert_eq!(order, ["x", "p", "-", "a", "b", "-"]);
        assert!(callers.queue.lanes.is_empty());
    }

    #[test]
    fn the_records_of_a_commit_name_its_lane() {
        let id = NamespaceId::from_parts(1_795_219_200_000, 7);
        let lane = |partitions: &[&str]| {
            let writes: Vec<_> = partitions
                .iter()
                .map(|partition| Write::delete(RecordKey::new(*partition, "k"), When::Any))
                .collect();
            Lane::for_writes(&writes)
        };
        let named = Lane::Machines("acme".parse().unwrap());
        let (kept, user) = (format!("kept/{id}"), format!("user/{id}"));
        let doomed = format!("doomed/{id}");
        let other = format!("user/{}", NamespaceId::from_parts(1_795_219_200_000, 8));
        let network = |name: &str| Lane::Network(name.into());
        for (partitions, expected) in [
            (&[kept.as_str()][..], Lane::Namespace(id)),
            (&["ns/acme", &user], Lane::Namespace(id)),
            (&["dev/acme", "limit/enrol"], named.clone()),
            (&["limit/x", "seen/acme"], named),
            // Names that strangers make up get no lane.
            (&["reserved/acme"], Lane::Service),
            (&["acct/acct_1", "tok/1"], Lane::Service),
            (&[], Lane::Service),
            // Nobody takes the turn of another by a commit over both.
            (&[kept.as_str(), &other], Lane::Service),
            (&["dev/acme", "dev/other"], Lane::Service),
            (
                &["sess/1", "limit/a/192.0.2.7", "limit/a/192.0.2.0/24"],
                network("192.0.2.0/24"),
            ),
            (&["limit/a/x/192.0.2.0/24"], network("192.0.2.0/24")),
            (
                &["limit/a/2001:db8:1:ab00::/56", "limit/a/2001:db8:1::/48"],
                network("2001:db8:1:ab00::/56"),
            ),
            (&["limit/a/unknown"], Lane::Service),
            (&["limit/a/x/24"], Lane::Service),
            (&["limit/192.0.2.0/24"], Lane::Service),
            (&["seen/192.0.2.0/24"], Lane::Service),
            (&["work"], Lane::Upkeep),
            (&["collected"], Lane::Upkeep),
            (&[doomed.as_str(), "work"], Lane::Upkeep),
            // An upload, which takes the marks of its objects away.
            (&[doomed.as_str(), &kept], Lane::Namespace(id)),
        ] {
            assert_eq!(lane(partitions), expected, "{partitions:?}");
        }
    }
}
