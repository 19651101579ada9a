//! `GET /admin/audit`: paging, filters, bounded reading, one vault alone.

use serde_json::{Value, json};
use vault_service::model::audit::{self, Actor, Change};
use vault_service::model::user::{Role, Scopes};

use super::{ADA, BOB, Desk, empty_desk, reference, token};
use crate::common;
use crate::support::{Answer, SOURCE};

impl Desk {
    /// Writes entries past all routes, one a second.
    pub async fn happen(&self, actor: &str, action: &str, times: usize) {
        let app = &self.world.app;
        let actor = Actor {
            user: actor.into(),
            ..Actor::default()
        };
        let mut left = times;
        while left > 0 {
            let some = left.min(50);
            left -= some;
            let mut writes = Vec::new();
            for _ in 0..some {
                self.world.clock.advance(1);
                let namespace = Some(&self.acme.id);
                let entry = app.audit_entry(namespace, &actor, action, Change::default(), "done");
                writes.push(entry.unwrap());
            }
            assert!(app.records.commit_writes(writes).await.unwrap().is_done());
        }
    }

    /// Makes a member without rights of an owner, and returns a token of theirs.
    async fn member_token(&self) -> String {
        let (app, acme) = (&self.world.app, reference(&self.acme));
        common::member(app, BOB, &acme, Role::Member, Scopes::ALL).await;
        token(&self.world, BOB, "acme", Scopes::ALL).await
    }

    async fn delete_before(&self, before: &str) -> Answer {
        let path = format!("/admin/audit?before={before}");
        self.ask(&self.owner, "DELETE", &path, None).await
    }

    async fn page(&self, query: &str) -> (Vec<Value>, Option<String>) {
        let answer = self.get(&format!("/admin/audit?{query}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let mut page = answer.json();
        let Value::Array(items) = page["items"].take() else {
            panic!("{page}");
        };
        (items, page["next"].as_str().map(str::to_owned))
    }

    /// All pages of a query; the entries and how many requests it took.
    async fn all(&self, query: &str) -> (Vec<Value>, usize) {
        let (mut all, mut requests, mut after) = (Vec::new(), 0, String::new());
        loop {
            let (items, next) = self.page(&format!("{query}&after={after}")).await;
            requests += 1;
            all.extend(items);
            match next {
                Some(next) => after = next,
                None => return (all, requests),
            }
        }
    }
}

#[tokio::test]
async fn what_was_done_and_refused_is_read_back_whole() {
    let desk = empty_desk().await;
    let bob = common::member(
        &desk.world.app,
        BOB,
        &reference(&desk.acme),
        Role::Member,
        Scopes::ALL,
    )
    .await;
    let bobs = token(&desk.world, BOB, "acme", Scopes::ALL).await;
    desk.world.clock.advance(60);
    let since = desk.world.now();
    let path = format!("/admin/users/{}/scopes", bob.id);
    desk.post(&path, &json!({"revoke": ["write"]})).await;
    desk.world.clock.advance(1);
    desk.ask(&bobs, "GET", "/admin/audit", None).await;
    let (entries, next) = desk.page(&format!("since={since}")).await;
    assert_eq!((entries.len(), next), (2, None), "{entries:?}");
    let users = desk.get("/admin/users").await.json();
    let users = users["items"].as_array().unwrap();
    let ada = users.iter().find(|user| user["email"] == ADA).unwrap();
    let client = entries[0]["client"].clone();
    assert!(client.as_str().unwrap().starts_with("cli_"));
    assert_eq!(
        entries[0],
        json!({
            "id": entries[0]["id"],
            "at": "2026-11-21T02:01:10Z",
            "actor": ada["id"],
            "client": client,
            "source": SOURCE,
            "action": "user.scopes",
            "target": bob.id,
            "before": {"scopes": ["read", "write"]},
            "after": {"scopes": ["read"]},
            "outcome": "done",
        })
    );
    assert_eq!(
        (
            &entries[1]["action"],
            &entries[1]["outcome"],
            &entries[1]["actor"]
        ),
        (
            &json!("audit.list"),
            &json!("owner_required"),
            &json!(bob.id)
        )
    );
}

#[tokio::test]
async fn pages_go_on_where_the_last_one_ended() {
    let desk = empty_desk().await;
    desk.happen("usr_a", "device.admit", 7).await;
    let since = desk.world.now();
    desk.happen("usr_b", "device.deny", 5).await;
    desk.happen("usr_a", "user.scopes", 3).await;
    let (all, requests) = desk.all("limit=4").await;
    assert!(requests >= 4, "{requests}");
    let times: Vec<_> = all
        .iter()
        .map(|entry| entry["at"].as_str().unwrap())
        .collect();
    assert!(times.is_sorted(), "oldest first");
    for (query, wanted) in [
        ("actor=usr_a", 10),
        ("actor=usr_b", 5),
        ("actor=usr_c", 0),
        ("actor=usr_", 0),
        ("action=device.admit", 7),
        ("action=device", 12),
        ("action=dev", 0),
        ("action=device.", 0),
        ("action=user.scopes&actor=usr_a", 3),
        ("action=user.scopes&actor=usr_b", 0),
    ] {
        for limit in [1, 4, 100] {
            let (found, _) = desk.all(&format!("{query}&limit={limit}")).await;
            assert_eq!(found.len(), wanted, "{query} by {limit}");
        }
    }
    // The entry of that second belongs to it.
    let (later, _) = desk.all(&format!("since={since}&limit=3")).await;
    assert_eq!(later.len(), 9);
    let (later, _) = desk.all(&format!("since={since}&action=device")).await;
    assert_eq!(later.len(), 6);
    let (none, _) = desk.all("since=2030-01-01T00:00:00Z").await;
    assert!(none.is_empty());
}

/// One page of records a request, however rare the entries are that are asked for.
#[tokio::test]
async fn a_filter_reads_a_thousand_entries_and_no_more() {
    let desk = empty_desk().await;
    desk.happen("usr_a", "device.admit", 2500).await;
    desk.happen("usr_rare", "device.deny", 2).await;
    let (first, next) = desk.page("actor=usr_rare").await;
    assert!(
        first.is_empty() && next.is_some(),
        "a page may be empty and have a next"
    );
    let (found, requests) = desk.all("actor=usr_rare").await;
    assert_eq!((found.len(), requests), (2, 3));
    let (found, requests) = desk.all("actor=usr_a&limit=100").await;
    assert_eq!((found.len(), requests), (2500, 26));
}

#[tokio::test]
async fn odd_questions_are_422() {
    let desk = empty_desk().await;
    let long = "a".repeat(129);
    for query in [
        "since=",
        "since=yesterday",
        "since=2026-11-21",
        "since=2026-11-21T02:00:10%2B01:00",
        "since=0",
        "actor=a%20b",
        "actor=%00",
        "action=%C3%A9",
        "limit=0",
        "limit=1000",
        &format!("actor={long}"),
        &format!("after={long}"),
    ] {
        let answer = desk.get(&format!("/admin/audit?{query}")).await;
        assert_eq!(answer.short(), "422 parameter_invalid", "{query}");
    }
    // An empty one is none.
    assert_eq!(
        desk.get("/admin/audit?actor=&action=&after=").await.status,
        200
    );
}

#[tokio::test]
async fn the_log_of_another_vault_is_not_shown() {
    let desk = empty_desk().await;
    let stranger = desk.stranger().await;
    desk.happen("usr_a", "device.admit", 3).await;
    let theirs = desk
        .ask(&stranger, "GET", "/admin/audit", None)
        .await
        .json();
    assert!(!theirs.to_string().contains("device.admit"), "{theirs}");
    let adas = token(&desk.world, ADA, "acme", Scopes::READ).await;
    let read = desk
        .ask(&adas, "GET", "/admin/audit?actor=usr_a", None)
        .await;
    assert_eq!(
        read.json()["items"].as_array().unwrap().len(),
        3,
        "reading needs no write"
    );
}

/// A caller who goes away at once must not keep a refusal out of the log.
#[tokio::test]
async fn a_refusal_is_recorded_although_its_caller_has_gone() {
    let desk = empty_desk().await;
    let bobs = desk.member_token().await;
    // The first request also writes when the member was last seen.
    let asked = desk.ask(&bobs, "GET", "/admin/audit", None).await;
    assert_eq!(asked.short(), "403 owner_required");
    let pause = desk.commits.pause_next();
    tokio::select! {
        answer = desk.ask(&bobs, "POST", "/admin/vaults/acme/sign-out", None) => {
            panic!("it was not paused: {answer:?}");
        }
        () = pause.reached.notified() => {}
    }
    pause.go_on.notify_one();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let (entries, _) = desk.page("action=vault.sign-out").await;
    assert_eq!(entries.len(), 1, "{entries:?}");
}

/// A member who is refused without end causes one entry a minute, but changes of scopes have an
/// entry each.
#[tokio::test]
async fn equal_refusals_are_one_entry_a_minute() {
    let desk = empty_desk().await;
    let bobs = desk.member_token().await;
    let since = desk.world.now().plus_seconds(60);
    desk.world.clock.advance(60);
    for n in 0..40 {
        let asked = desk.ask(&bobs, "GET", "/admin/audit", None).await;
        assert_eq!(asked.short(), "403 owner_required");
        desk.world.clock.advance(i64::from(n % 10 == 0));
    }
    let scopes = json!({"revoke": ["write"]});
    for _ in 0..3 {
        let asked = desk.ask(&bobs, "POST", "/admin/users/usr_x/scopes", Some(&scopes));
        assert_eq!(asked.await.status, 403);
    }
    let (entries, _) = desk.page(&format!("since={since}")).await;
    let of = |action| {
        entries
            .iter()
            .filter(move |entry| entry["action"] == action)
    };
    assert_eq!(of("user.scopes").count(), 3);
    let refused: Vec<_> = of("audit.list").collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(refused[0]["count"], 32, "it has doubled five times");
    // The rest is written when the minute is over.
    desk.world.clock.advance(60);
    let app = &desk.world.app;
    app.refusals.write_counts(app, false).await.unwrap();
    let (entries, _) = desk.page(&format!("since={since}&action=audit.list")).await;
    assert_eq!(entries[0]["count"], 40);
    assert_eq!(entries[0]["at"], "2026-11-21T02:01:10Z");
    assert_eq!(entries[0]["last_at"], "2026-11-21T02:01:14Z");
}

/// Entries of one second are listed in the order in which they were written.
#[tokio::test]
async fn entries_of_one_moment_keep_their_order() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let actor = Actor {
        user: "usr_a".to_owned(),
        ..Actor::default()
    };
    for n in 0..30 {
        let log = Some(&desk.acme.id);
        let change = Change::about(&format!("{n:02}"));
        let entry = app.audit_entry(log, &actor, "device.admit", change, "done");
        let written = app.records.commit_writes(vec![entry.unwrap()]).await;
        assert!(written.unwrap().is_done());
    }
    let (entries, _) = desk.page("action=device.admit").await;
    let targets: Vec<_> = entries
        .iter()
        .map(|entry| entry["target"].clone())
        .collect();
    let written: Vec<_> = (0..30).map(|n| json!(format!("{n:02}"))).collect();
    assert_eq!(targets, written);
}

#[tokio::test]
async fn entries_end_after_400_days() {
    let desk = empty_desk().await;
    desk.happen("usr_a", "device.admit", 1).await;
    let log = audit::audit_partition(Some(&desk.acme.id));
    let listed = async || {
        let records = &desk.world.app.records;
        records.list_page(&log, "", None, 1000).await.unwrap().len()
    };
    desk.world.clock.advance(400 * 24 * 3600 - 1);
    assert_ne!(listed().await, 0);
    desk.world.clock.advance(1);
    assert_eq!(listed().await, 0);
}

#[tokio::test]
async fn the_log_is_exported_as_json_lines() {
    let desk = empty_desk().await;
    desk.happen("usr_a", "device.admit", 5_100).await;
    let query = "/admin/audit?format=jsonl&action=device&limit=1";
    let answer = desk.get(query).await;
    assert_eq!(answer.header("content-type"), "application/jsonl");
    let lines = |body: &[u8]| -> Vec<Value> {
        let text = String::from_utf8(body.to_vec()).unwrap();
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let mut first = lines(&answer.body);
    let next = first.pop().unwrap();
    assert!(first.iter().all(|entry| entry["action"] == "device.admit"));
    let next = next["next"].as_str().expect("more follows");
    let rest = desk.get(&format!("{query}&after={next}")).await;
    let rest = lines(&rest.body);
    assert_eq!(first.len() + rest.len(), 5_100);
    assert_ne!(first.last().unwrap()["id"], rest[0]["id"]);
    let other = desk.get("/admin/audit?format=csv").await;
    assert_eq!(other.short(), "422 parameter_invalid");
}

/// Entries older than 90 days may be deleted, and the deletion is an entry.
#[tokio::test]
async fn an_owner_deletes_old_entries() {
    let mut desk = empty_desk().await;
    desk.happen("usr_a", "device.admit", 1_100).await;
    let end = desk.world.now().plus_seconds(1);
    desk.world.clock.advance(24 * 3600);
    desk.happen("usr_a", "device.deny", 10).await;
    let age = 90 * 24 * 3600;
    desk.world.clock.set(end.plus_seconds(age - 1));
    desk.owner = token(&desk.world, ADA, "acme", Scopes::ALL).await;
    for before in [end.to_string(), String::new(), "yesterday".to_owned()] {
        let answer = desk.delete_before(&before).await;
        assert_eq!(answer.short(), "422 parameter_invalid", "{before}");
    }
    desk.world.clock.advance(1);
    let answer = desk.delete_before(&end.to_string()).await;
    assert_eq!(answer.json(), json!({ "deleted": 1000, "more": true }));
    let answer = desk.delete_before(&end.to_string()).await;
    assert_eq!(answer.json()["more"], false);
    let answer = desk.delete_before(&end.to_string()).await;
    assert_eq!(answer.json(), json!({ "deleted": 0, "more": false }));
    let (left, _) = desk.all("action=device").await;
    assert_eq!(left.len(), 10, "later ones stay");
    let (deletions, _) = desk.all("action=audit.delete").await;
    let done: Vec<_> = deletions
        .iter()
        .filter(|entry| entry["outcome"] == "done")
        .collect();
    assert_eq!(done.len(), 2, "{deletions:?}");
    let wanted = json!({ "before": end.to_string(), "entries": 1000 });
    assert_eq!(done[0]["after"], wanted);
}
