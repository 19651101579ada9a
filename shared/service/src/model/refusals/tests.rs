//! Tests of the counts of refusals, with a store in memory and a clock that the test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use vault_testing::TestClock;
use vault_testing::memory::Memory;
use vault_testing::memory::hooked::{Call, Hook, Hooked};

use super::*;

/// Counts commits, and makes them fail while the store is down.
#[derive(Default)]
struct Commits(AtomicUsize, AtomicBool);

#[async_trait]
impl Hook for Commits {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        if matches!(call, Call::Commit(_)) {
            self.0.fetch_add(1, Ordering::Relaxed);
            if self.1.load(Ordering::Relaxed) {
                return Err(StoreError::unavailable("down"));
            }
        }
        Ok(())
    }
}

struct Place {
    clock: Arc<TestClock>,
    commits: Arc<Commits>,
    ports: Ports,
}

impl Place {
    fn new() -> Self {
        let at: Timestamp = "2026-11-21T02:00:10Z".parse().unwrap();
        let clock = Arc::new(TestClock::new(at));
        let memory = Arc::new(Memory::new(clock.clone()));
        let commits = Arc::new(Commits::default());
        let mut ports = Ports::in_memory(clock.clone());
        ports.records = Hooked::new(&memory, commits.clone());
        Self {
            clock,
            commits,
            ports,
        }
    }

    /// Returns the entries of the service's log: action, count, and seconds from the first refusal
    /// to the last.
    async fn entries(&self) -> Vec<(String, Option<u64>, Option<i64>)> {
        let listed = self
            .ports
            .records
            .list_page("audit/service", "", None, 1000);
        let listed = listed.await.unwrap();
        let entries = listed.iter().map(|record| record.read::<Entry>().unwrap());
        entries
            .map(|entry| {
                let last = entry.last_at.map(|last| last.unix() - entry.at.unix());
                (entry.action, entry.count, last)
            })
            .collect()
    }
}

fn vault() -> NamespaceRef {
    NamespaceRef {
        slug: "acme".parse().unwrap(),
        id: NamespaceId::from_parts(1_795_219_200_000, 1),
    }
}

fn refused(action: &str) -> RefusedRequest {
    RefusedRequest {
        namespace: None,
        actor: Actor {
            user: "usr_1".to_owned(),
            ..Actor::default()
        },
        action: action.to_owned(),
        change: Change::about("usr_2"),
        named_by: NamedBy::Caller(None),
        outcome: "role_insufficient".to_owned(),
    }
}

/// However many targets an actor makes up, its refused attempts on people, machines, apps, drafts,
/// codes and webhooks that exist are logged by name.
#[tokio::test]
async fn a_target_that_exists_is_named_behind_any_number_of_made_up_ones() {
    let place = Place::new();
    let counts = RefusalCounts::default();
    let vault = vault();
    let (namespace, slug) = (vault.id, &vault.slug);
    let ending = "a".repeat(26);
    let id = |prefix: &str, letter: &str| format!("{prefix}_{}", letter.repeat(26));
    let (user, device, client) = (id("usr", "b"), id("dev", "b"), id("cli", "b"));
    let hash = Digest::of(b"code");
    let draft_id = vault_format::name::DraftId::from_parts(1_795_219_200_000, 1);
    let draft = draft_id.to_string();
    let client_id: crate::model::client::ClientId = client.parse().unwrap();
    let empty = || Document::from_value(&serde_json::json!({})).unwrap();
    let keys = [
        crate::model::user::user_key(&namespace, &user),
        crate::model::device::id_key(slug, &device),
        crate::model::client::connection_key(&namespace, &client_id),
        crate::model::draft::ended_key(&namespace, &draft_id),
        crate::model::enrolment::code_key(&namespace, &hash),
    ];
    let writes = keys.map(|key| Write::put(key, empty(), When::Absent));
    let commit = place.ports.records.commit_writes(writes.into()).await;
    assert!(commit.unwrap().is_done());
    let about = |action: &str, target: &str| RefusedRequest {
        namespace: Some(namespace),
        change: Change::about(&target),
        named_by: NamedBy::Caller(Some(vault.clone())),
        ..refused(action)
    };
    for n in 0..100 {
        let made_up = about("user.remove", &format!("usr_{n:026}"));
        counts.record(&place.ports, &made_up).await.unwrap();
    }
    let code = format!("enc_{}", &hash.to_string()[..26]);
    let real = [
        ("user.remove", user.as_str()),
        ("device.revoke", &device),
        ("client.revoke", &client),
        ("draft.accept", &draft),
        ("enrolment.end", &code),
    ];
    for (action, target) in real.into_iter().cycle().take(15) {
        let refused = about(action, target);
        counts.record(&place.ports, &refused).await.unwrap();
    }
    // Targets of another kind, and targets without a record, are counted together.
    let unknown = id("usr", "c");
    for (action, target) in [
        ("user.remove", unknown.as_str()),
        ("user.remove", &device),
        ("device.revoke", &format!("dev_{ending}")),
        ("notice.remove", "whk_1"),
        ("draft.accept", "x"),
    ] {
        let refused = about(action, target);
        counts.record(&place.ports, &refused).await.unwrap();
    }
    counts.write_counts(&place.ports, true).await.unwrap();
    let log = audit::audit_partition(Some(&namespace));
    let records = place.ports.records.list_page(&log, "", None, 1000).await;
    let named: Vec<_> = records
        .unwrap()
        .iter()
        .map(|record| record.read::<Entry>().unwrap())
        .map(|entry| {
            (
                entry.action,
                entry.target.unwrap(),
                entry.count.unwrap_or(1),
            )
        })
        .collect();
    for (action, target) in real {
        let entry = (action.to_owned(), target.to_owned(), 3);
        assert!(named.contains(&entry), "{action} {target}: {named:?}");
    }
    let sum: u64 = named.iter().map(|(_, _, count)| count).sum();
    assert_eq!(sum, 100 + 15 + 5);
    // The first made-up targets, the real ones, and one entry for the others of each action.
    assert_eq!(named.len(), MAX_OF_ACTOR + real.len() + 4);
}

/// Refusals with a target from the service itself, without a target, or about a confirmation that
/// the actor was asked for.
#[tokio::test]
async fn what_no_caller_can_make_up_is_named_behind_any_number_of_made_up_targets() {
    let place = Place::new();
    let counts = RefusalCounts::default();
    let vault = vault();
    let act = |action: &str, target: Option<&str>| RefusedRequest {
        namespace: Some(vault.id),
        action: action.to_owned(),
        change: target.map_or_else(Change::default, Change::about),
        named_by: NamedBy::Caller(Some(vault.clone())),
        ..refused(action)
    };
    let now = place.ports.now();
    let account = crate::model::account::AccountId::fresh(now, &*place.ports.random);
    let actor = Actor::default();
    let permit = crate::model::permit::Permit::ask_for(Vec::new(), None, &actor, &place.ports);
    let confirmation = permit.id.clone();
    let permits = crate::model::permit::Permits {
        permits: vec![permit],
    };
    let person = crate::model::user::User {
        id: "usr_1".to_owned(),
        email: "ana@example.org".parse().unwrap(),
        account: Some(account.clone()),
        invited_at: None,
        invited_by: None,
        client: None,
        namespace: vault.clone(),
        role: crate::model::user::Role::Owner,
        scopes: crate::model::user::Scopes::ALL,
        profile: None,
        created_at: now,
        last_seen_at: None,
    };
    let partition = crate::model::permit::permits_partition(&account);
    let of_person = RecordKey::new(partition, "console");
    let writes = [
        (
            crate::model::user::user_key(&vault.id, "usr_1"),
            Document::from_value(&person).unwrap(),
        ),
        (of_person, Document::from_value(&permits).unwrap()),
    ];
    let writes = writes.map(|(key, document)| Write::put(key, document, When::Absent));
    let commit = place.ports.records.commit_writes(writes.into()).await;
    assert!(commit.unwrap().is_done());
    for n in 0..100 {
        let id = format!("cnf_{n:026}");
        let made_up = act("confirmation.decide", Some(&id));
        counts.record(&place.ports, &made_up).await.unwrap();
    }
    let tool = RefusedRequest {
        named_by: NamedBy::Service,
        ..act("mcp.call", Some("remove_skill"))
    };
    let acts = [
        tool,
        act("vault.delete", None),
        act("confirmation.decide", Some(&confirmation)),
    ];
    for refused in &acts {
        counts.record(&place.ports, refused).await.unwrap();
    }
    let log = audit::audit_partition(Some(&vault.id));
    let records = place.ports.records.list_page(&log, "", None, 1000).await;
    let entries = records.unwrap();
    let named: Vec<_> = entries
        .iter()
        .map(|record| record.read::<Entry>().unwrap())
        .map(|entry| (entry.action, entry.target))
        .collect();
    for refused in acts {
        let entry = (refused.action, refused.change.target);
        assert!(named.contains(&entry), "{entry:?}: {named:?}");
    }
    // The first made-up targets, one entry for all others, and the three refusals above.
    assert_eq!(named.len(), MAX_OF_ACTOR + 1 + 3);
}

#[test]
fn a_late_refusal_does_not_begin_the_count_of_an_actor_anew() {
    let mut entries = ActorEntries::default();
    let actor = Digest::of(b"a");
    for number in 0..=MAX_OF_ACTOR {
        assert_eq!(entries.count_entry(actor, 120), number < MAX_OF_ACTOR);
    }
    assert!(!entries.count_entry(actor, 60), "late");
    assert!(!entries.count_entry(actor, 120));
    assert!(entries.count_entry(actor, 180), "the next minute");
}

/// Made-up targets create only a bounded number of entries, and the sum of the counts is right.
#[tokio::test]
async fn refusals_about_ever_new_targets_are_a_bounded_number_of_entries() {
    let place = Place::new();
    let counts = RefusalCounts::default();
    let about = |actor: &str, target: usize| {
        let mut refused = refused("skill.read");
        refused.actor.user = actor.to_owned();
        refused.change = Change::about(&target);
        refused
    };
    for target in 0..500 {
        let refused = about("usr_1", target);
        counts.record(&place.ports, &refused).await.unwrap();
    }
    // A refusal about one of the first targets is counted in its entry, and another actor has
    // entries of its own.
    for refused in [about("usr_1", 3), about("usr_3", 900)] {
        counts.record(&place.ports, &refused).await.unwrap();
    }
    counts.write_counts(&place.ports, true).await.unwrap();
    let entries = place.entries().await;
    assert_eq!(entries.len(), MAX_OF_ACTOR + 2);
    let sum: u64 = entries.iter().map(|(_, count, _)| count.unwrap_or(1)).sum();
    assert_eq!(sum, 502);
    place.clock.advance(60);
    counts
        .record(&place.ports, &about("usr_1", 7))
        .await
        .unwrap();
    let entries = place.entries().await;
    assert_eq!(
        entries.len(),
        MAX_OF_ACTOR + 3,
        "the next minute begins anew"
    );
}

fn one(action: &str, count: u64, last: i64) -> (String, Option<u64>, Option<i64>) {
    (action.to_owned(), Some(count), Some(last))
}

fn single(action: &str) -> (String, Option<u64>, Option<i64>) {
    (action.to_owned(), None, None)
}

#[tokio::test]
async fn a_hundred_thousand_equal_refusals_are_one_entry_and_few_writes() {
    let place = Place::new();
    let counts = RefusalCounts::default();
    let refused = refused("audit.list");
    for n in 0..100_000 {
        if n % 10_000 == 0 {
            place.clock.advance(1);
        }
        counts.record(&place.ports, &refused).await.unwrap();
    }
    assert!(place.commits.0.load(Ordering::Relaxed) <= 20);
    place.clock.advance(60);
    counts.write_counts(&place.ports, false).await.unwrap();
    assert_eq!(place.entries().await, [one("audit.list", 100_000, 9)]);
    counts.record(&place.ports, &refused).await.unwrap();
    let next_minute = [one("audit.list", 100_000, 9), single("audit.list")];
    assert_eq!(place.entries().await, next_minute);
}

/// Without any later call at least half of a count is in the log.
#[tokio::test]
async fn a_process_that_ends_early_loses_at_most_half_of_a_count() {
    for number in [1, 2, 3, 7, 8, 1000] {
        let place = Place::new();
        let counts = RefusalCounts::default();
        for _ in 0..number {
            counts.record(&place.ports, &refused("x.y")).await.unwrap();
        }
        drop(counts);
        let entries = place.entries().await;
        let count = entries[0].1.unwrap_or(1);
        assert!(entries.len() == 1 && count * 2 > number, "{count} {number}");
    }
}

#[tokio::test]
async fn what_differs_has_an_entry_of_its_own() {
    let place = Place::new();
    let counts = RefusalCounts::default();
    let first = refused("x.y");
    let mut others = vec![first.clone(); 4];
    others[0].actor.user = "usr_3".to_owned();
    others[1].actor.client = Some("cli_1".to_owned());
    others[2].change.target = None;
    others[3].outcome = "not_found".to_owned();
    let mut elsewhere = first.clone();
    elsewhere.actor.source = "192.0.2.1".parse().ok();
    for refused in std::iter::once(&first).chain(&others).chain([&elsewhere]) {
        counts.record(&place.ports, refused).await.unwrap();
    }
    let entries = place.entries().await;
    assert_eq!(entries.len(), 5);
    let counted = entries.iter().filter(|(_, count, _)| *count == Some(2));
    assert_eq!(counted.count(), 1);
    // Changes of scopes are recorded one by one.
    for _ in 0..3 {
        let refused = refused("user.scopes");
        counts.record(&place.ports, &refused).await.unwrap();
    }
    assert_eq!(place.entries().await.len(), 8);
}

#[tokio::test]
async fn several_processes_write_one_entry() {
    let place = Place::new();
    let processes = [(); 3].map(|()| RefusalCounts::default());
    for counts in processes.iter().cycle().take(30) {
        counts.record(&place.ports, &refused("x.y")).await.unwrap();
    }
    for counts in &processes {
        counts.write_counts(&place.ports, true).await.unwrap();
    }
    assert_eq!(place.entries().await, [one("x.y", 30, 0)]);
}

#[tokio::test]
async fn an_entry_that_could_not_be_written_is_written_by_the_next_refusal() {
    let place = Place::new();
    let counts = RefusalCounts::default();
    place.commits.1.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        let recorded = counts.record(&place.ports, &refused("x.y")).await;
        assert!(recorded.is_err());
    }
    place.commits.1.store(false, Ordering::Relaxed);
    counts.record(&place.ports, &refused("x.y")).await.unwrap();
    assert_eq!(place.entries().await, [single("x.y")]);
    counts.write_counts(&place.ports, true).await.unwrap();
    assert_eq!(place.entries().await, [one("x.y", 4, 0)]);
}

/// No request waits for the log of another namespace.
#[tokio::test]
async fn a_refusal_writes_what_is_left_in_its_own_log_alone() {
    let place = Place::new();
    let counts = RefusalCounts::default();
    for _ in 0..7 {
        counts.record(&place.ports, &refused("x.y")).await.unwrap();
    }
    place.clock.advance(60);
    let mut elsewhere = refused("a.b");
    elsewhere.namespace = Some(vault().id);
    counts.record(&place.ports, &elsewhere).await.unwrap();
    assert_eq!(place.entries().await, [one("x.y", 4, 0)]);
    counts.write_counts(&place.ports, false).await.unwrap();
    assert_eq!(place.entries().await, [one("x.y", 7, 0)]);
}

/// A remaining count is written with the next refusal in the same log.
#[tokio::test]
async fn a_later_refusal_writes_what_is_left() {
    let place = Place::new();
    let counts = RefusalCounts::default();
    for _ in 0..7 {
        counts.record(&place.ports, &refused("x.y")).await.unwrap();
    }
    assert_eq!(place.entries().await, [one("x.y", 4, 0)]);
    place.clock.advance(60);
    counts.record(&place.ports, &refused("a.b")).await.unwrap();
    assert_eq!(place.entries().await, [one("x.y", 7, 0), single("a.b")]);
    assert_eq!(counts.lock_counts().len(), 1);
}
