//! The order in which requests are served, and the bounds of lanes.

use std::rc::Rc;

use super::*;
use crate::records::{RecordKey, When};

/// A request with a name. Its caller holds the other `Rc` while it waits.
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
            queue: FairQueue::new(LaneBound {
                requests,
                bytes,
                all_bytes: 100_000,
            }),
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
    // The small requests fill the group, and the large one is first in the next group.
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
    // This request arrives while the one before is served.
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
fn the_lane_with_most_content_gives_way_where_all_lanes_are_full() {
    let mut callers = Callers::new(99, 60_000);
    let of = |bytes| Work { rows: 1, bytes };
    for name in ["a", "b", "c"] {
        assert!(callers.push(1, name, of(20_000)));
    }
    assert!(callers.push(2, "x", of(20_000)) && callers.push(2, "y", of(20_000)));
    assert!(
        callers.push(3, "p", of(10_000)),
        "in place of the latest of the first lane"
    );
    assert!(
        !callers.push(2, "z", of(20_000)),
        "it would have most itself"
    );
    assert!(callers.push(3, "q", of(10_000)));
    assert_eq!(callers.take(9), "axpbyq");
    assert!(callers.queue.lanes.is_empty());
}

/// No request is dropped for one that is rejected anyway.
#[test]
fn nobody_gives_way_in_vain() {
    let of = |bytes| Work { rows: 1, bytes };
    let mut callers = Callers::new(2, 60_000);
    for (lane, name, bytes) in [
        (1, "a", 30_000),
        (1, "b", 30_000),
        (2, "x", 39_990),
        (3, "p", 1),
        (3, "q", 1),
    ] {
        assert!(callers.push(lane, name, of(bytes)));
    }
    assert!(!callers.push(3, "r", of(20_000)), "its own lane is full");
    assert!(
        !callers.push(4, "m", of(50_000)),
        "one of the first lane would not be enough"
    );
    assert!(callers.push(4, "n", of(8)), "there is room for no more");
    assert_eq!(callers.take(9), "axpnbq");
}

/// A request without content is never dropped, whatever else its lane holds.
#[test]
fn what_has_no_content_keeps_its_place() {
    let of = |bytes| Work { rows: 1, bytes };
    let mut callers = Callers::new(9, 99_000);
    for (name, bytes) in [("a", 0), ("b", 50_000), ("c", 49_000), ("d", 0)] {
        assert!(callers.push(1, name, of(bytes)));
    }
    assert!(callers.push(2, "x", of(40_000)));
    assert_eq!(callers.take(9), "axbd");
}

/// A stranger with many networks gets no more memory than one with a single network.
#[test]
fn networks_of_strangers_give_way_as_one_party() {
    let mut callers = Callers::new(99, 99_000);
    let mut push = |lane: Lane, name, bytes| {
        let caller = Rc::new(());
        callers.waiting.push(Rc::clone(&caller));
        let work = Work { rows: 1, bytes };
        callers
            .queue
            .push(lane, Request(name, work, caller))
            .is_ok()
    };
    assert!(push(lane_of(1), "a", 30_000));
    for n in 0..35 {
        assert!(push(network(n), "s", 2_000));
    }
    // The tenant has more than each network, but less than all of them together.
    assert!(push(lane_of(2), "x", 30_000));
    assert!(
        push(network(99), "n", 1_000),
        "a network with less than others"
    );
    assert!(
        !push(network(98), "o", 2_001),
        "one with more than each other"
    );
    let taken = callers.take(999);
    assert_eq!(taken.matches('a').count() + taken.matches('x').count(), 2);
    assert_eq!(taken.matches('n').count(), 1);
    assert_eq!(taken.matches('s').count(), 19);
}

/// Returns in which group a newcomer who signs in is served, while 200 networks of strangers have
/// queued ten requests each, and `tenants` have 50 requests of `rows` rows each.
fn group_of_newcomer(tenants: u8, rows: usize) -> Option<usize> {
    let mut callers = Callers::new(2_048, 99_000);
    let push = |callers: &mut Callers, lane, name| {
        let caller = Rc::new(());
        callers.waiting.push(Rc::clone(&caller));
        let pushed = callers.queue.push(lane, Request(name, ONE, caller));
        assert!(pushed.is_ok(), "{name}");
    };
    for _ in 0..10 {
        for n in 0..200 {
            push(&mut callers, network(n), "s");
        }
    }
    for tenant in 1..=tenants {
        for _ in 0..50 {
            assert!(callers.push(tenant, "P", Work { rows, bytes: 1 }));
        }
    }
    push(&mut callers, network(250), "n");
    (1..=200).find(|_| callers.take(100).contains('n'))
}

/// However many networks flood the queue, and however many requests each of them has queued, a
/// newcomer waits for one request of each of them, and the strangers for one turn of the tenants.
#[test]
fn a_newcomer_is_served_while_strangers_of_many_networks_flood() {
    for (tenants, rows, group) in [
        (0, 0, 3),
        // The pack of a tenant is a group of its own. What it leaves free is for strangers.
        (3, 100, 9),
        // 25 turns of 8 strangers come first, and one of 60 tenants after each of them.
        (60, 1, 18),
    ] {
        assert_eq!(group_of_newcomer(tenants, rows), Some(group), "{tenants}");
    }
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
        let taken = callers
            .queue
            .take_next(|party| *party != Party::Lane(lane_of(closed)));
        taken.map_or("-", |(_, request)| request.0)
    };
    let order = [take(1), take(1), take(1), take(0), take(0), take(0)];
    assert_eq!(order, ["x", "p", "-", "a", "b", "-"]);
    assert!(callers.queue.lanes.is_empty());
}

fn network(n: u8) -> Lane {
    Lane::Network(format!("192.0.{n}.0/24").into())
}

impl Callers {
    /// Adds one request of each of this many networks, and a second request of the first network.
    fn push_strangers(&mut self, networks: u8) {
        for n in (0..networks).chain([0]) {
            let caller = Rc::new(());
            self.waiting.push(Rc::clone(&caller));
            let request = Request("s", ONE, caller);
            assert!(self.queue.push(network(n), request).is_ok());
        }
    }
}

/// A stranger who has many networks gets no more turns than one with a single network.
#[test]
fn strangers_of_many_networks_share_one_turn() {
    let mut callers = Callers::new(999, 9999);
    callers.push_strangers(100);
    for name in ["a", "b", "c"] {
        callers.push(1, name, ONE);
    }
    callers.push(2, "x", ONE);
    // Each group has room for one turn of each party and a little more.
    assert_eq!(callers.take(11), "ssssssssax".to_owned() + "s");
    assert_eq!(callers.take(3), "bss");
    assert_eq!(callers.take(30), "c".to_owned() + &"s".repeat(29));
    let rest = callers.take(999);
    assert_eq!(rest.len(), 101 - 9 - 2 - 29);
    let queue = &callers.queue;
    assert!(queue.lanes.is_empty() && queue.networks.is_empty() && queue.turns.is_empty());
    // An emptied queue starts from the beginning.
    callers.push(1, "a", ONE);
    callers.push_strangers(1);
    assert_eq!(callers.take(9), "ass");
}

#[test]
fn networks_of_strangers_take_turns_among_themselves() {
    let mut callers = Callers::new(999, 9999);
    let mut push = |n: u8, name| {
        let caller = Rc::new(());
        callers.waiting.push(Rc::clone(&caller));
        assert!(
            callers
                .queue
                .push(network(n), Request(name, ONE, caller))
                .is_ok()
        );
    };
    for _ in 0..50 {
        push(1, "a");
    }
    push(2, "x");
    push(3, "p");
    assert_eq!(callers.take(2), "ax");
    assert_eq!(callers.take(3), "paa");
    let next = callers.queue.take_next(|_| true);
    assert_eq!(
        next.map(|(party, request)| (party, request.0)),
        Some((Party::Strangers, "a"))
    );
    assert!(
        callers
            .queue
            .take_next(|party| *party != Party::Strangers)
            .is_none()
    );
    callers.waiting.clear();
    assert_eq!(callers.take(9), "");
    assert!(callers.queue.take_next(|_| true).is_none());
    let queue = &callers.queue;
    assert!(queue.lanes.is_empty() && queue.networks.is_empty() && queue.turns.is_empty());
}

/// However many networks flood the queue, a tenant waits for only one turn of them.
#[test]
fn a_turn_of_strangers_that_does_not_fit_holds_up_nobody() {
    let mut callers = Callers::new(999, 9999);
    let pack = Work {
        rows: 100,
        bytes: 1,
    };
    callers.push(1, "P", pack);
    callers.push_strangers(20);
    callers.push(2, "x", ONE);
    assert_eq!(callers.take(100), "P");
    callers.push(1, "Q", pack);
    assert_eq!(
        callers.take(100),
        "ssssssss".to_owned() + "x" + &"s".repeat(13)
    );
    assert_eq!(callers.take(100), "Q");
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
        // A name that a stranger may have made up gets no lane.
        (&["reserved/acme"], Lane::Service),
        (&["acct/acct_1", "tok/1"], Lane::Service),
        (&[], Lane::Service),
        // A commit over two namespaces takes the turn of neither.
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
        // An upload removes the deletion marks of its objects.
        (&[doomed.as_str(), &kept], Lane::Namespace(id)),
    ] {
        assert_eq!(lane(partitions), expected, "{partitions:?}");
    }
}
