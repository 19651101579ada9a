//! `…/devices`: the owner's decisions.

use serde_json::{Value, json};
use vault_format::keys::SecretKey;
use vault_format::root::KeyFingerprint;
use vault_service::model::device::{self, DeviceStatus};
use vault_service::model::namespace::{self, Namespace, Queue, Subscription};
use vault_store::records::RecordKey;

use super::{Desk, desk};
use crate::common;
use crate::support::key;

fn id(key: &SecretKey) -> String {
    vault_format::request::device_id(&"acme".parse().unwrap(), &key.public())
}

impl Desk {
    async fn decide(&self, key: &SecretKey, decision: &str) -> crate::support::Answer {
        let path = format!("/admin/vaults/acme/devices/{}/{decision}", id(key));
        self.post(&path, &Value::Null).await
    }

    /// The counter, and the records that say who waits.
    async fn waiting(&self) -> (i64, usize) {
        let slug = "acme".parse().unwrap();
        let records = &self.world.app.records;
        let queue = records
            .get_one(&namespace::device_queue_key(&slug))
            .await
            .unwrap();
        let queue: Queue = queue.map_or_else(Queue::default, |record| record.read().unwrap());
        let partition = device::pending_partition(&slug);
        let listed = records.list_page(&partition, "", None, 100).await.unwrap();
        (queue.pending, listed.len())
    }

    /// Enrols a device and brings it into this state by the owner's decisions.
    async fn device_in(&self, n: u8, status: &str) -> SecretKey {
        let key = key(n);
        let enrolled = self
            .world
            .enrol(&key, "acme", &format!("machine {n}"))
            .await;
        assert_eq!(enrolled.status, 201);
        for decision in match status {
            "pending" => &[][..],
            "active" => &["admit"],
            "revoked" => &["deny"],
            _ => &["deny", "forget"],
        } {
            assert_eq!(self.decide(&key, decision).await.short(), "200");
        }
        key
    }
}

#[tokio::test]
async fn a_device_is_shown_with_the_fingerprint_that_the_machine_prints() {
    let desk = desk().await;
    desk.world.enrol(&key(1), "acme", "laptop").await;
    let listed = desk.get("/admin/vaults/acme/devices").await;
    insta::assert_json_snapshot!(listed.json(), @r#"
    {
      "items": [
        {
          "decided_at": null,
          "device_id": "dev_h6gu4wwjvta4a46wtephq336xx",
          "enrolled_at": "2026-11-21T02:00:10Z",
          "fingerprint": "dev:gr2q-7gf5-lh6p-zfdn-urnk-vput-hpqv-jjfv",
          "hostname": "laptop",
          "last_seen": null,
          "network": "unknown",
          "public_key": "iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w",
          "release": null,
          "status": "pending"
        }
      ],
      "next": null
    }
    "#);
    assert_eq!(
        listed.json()["items"][0]["fingerprint"],
        json!(KeyFingerprint::device(&key(1).public()))
    );
}

/// Every decision in every state: answer, state after it, who waits.
#[tokio::test]
async fn decisions_lead_where_the_table_says() {
    let table = [
        ("pending", "admit", "200", "active"),
        ("pending", "deny", "200", "revoked"),
        ("pending", "revoke", "409 device_state", "pending"),
        ("pending", "forget", "409 device_state", "pending"),
        ("active", "admit", "200", "active"),
        ("active", "deny", "409 device_state", "active"),
        ("active", "revoke", "200", "revoked"),
        ("active", "forget", "409 device_state", "active"),
        ("revoked", "admit", "409 device_state", "revoked"),
        ("revoked", "deny", "200", "revoked"),
        ("revoked", "revoke", "200", "revoked"),
        ("revoked", "forget", "200", "unknown"),
        ("forgotten", "admit", "404 not_found", "unknown"),
        ("forgotten", "deny", "404 not_found", "unknown"),
        ("forgotten", "revoke", "404 not_found", "unknown"),
        ("forgotten", "forget", "200", "unknown"),
    ];
    let desk = desk().await;
    for (n, (from, decision, wanted, after)) in (1..).zip(table) {
        let device = desk.device_in(n, from).await;
        let answer = desk.decide(&device, decision).await;
        assert_eq!(answer.short(), wanted, "{from} {decision}");
        let current = desk
            .world
            .ask(&device, "GET", "/v/acme/devices/current")
            .await;
        let state = match current.status.as_u16() {
            200 => current.json()["status"].as_str().unwrap().to_owned(),
            _ => "unknown".to_owned(),
        };
        assert_eq!(state, after, "{from} {decision}");
        if answer.status == 200 && after != "unknown" {
            assert_eq!(answer.json()["status"], after, "{from} {decision}");
        }
        let waits = i64::from(after == "pending");
        assert_eq!(
            desk.waiting().await,
            (waits, usize::try_from(waits).unwrap()),
            "{from} {decision}"
        );
        if after == "pending" {
            assert_eq!(desk.decide(&device, "deny").await.short(), "200");
        }
    }
}

/// A repeated decision answers as the first and changes nothing: no second entry, no counter.
#[tokio::test]
async fn repeats_are_answered_alike() {
    let desk = desk().await;
    let device = desk.device_in(1, "pending").await;
    for (decision, action) in [
        ("admit", "device.admit"),
        ("revoke", "device.revoke"),
        ("forget", "device.forget"),
    ] {
        desk.world.clock.advance(60);
        let first = desk.decide(&device, decision).await;
        desk.world.clock.advance(60);
        desk.commits.clear();
        let again = desk.decide(&device, decision).await;
        assert_eq!(
            (first.short(), first.json()),
            (again.short(), again.json()),
            "{decision}"
        );
        assert_eq!(desk.count(&format!("{action} done")).await, 1);
        assert!(desk.commits.partitions().is_empty(), "{decision}");
    }
    assert_eq!(desk.waiting().await, (0, 0));
    let again = desk.world.enrol(&device, "acme", "another name").await;
    assert_eq!(
        (again.status.as_u16(), &again.json()["hostname"]),
        (201, &json!("another name"))
    );
    assert_eq!(
        desk.decide(&device, "forget").await.short(),
        "409 device_state"
    );
}

/// Device, index, counter and audit entry change together or not at all.
#[tokio::test]
async fn each_change_is_one_commit_with_its_audit_entry() {
    let desk = desk().await;
    // The first admission of a vault also stores the number of machines, in a commit before it.
    let first = desk.device_in(9, "pending").await;
    assert_eq!(desk.decide(&first, "admit").await.short(), "200");
    let device = desk.device_in(1, "pending").await;
    for (decision, partitions) in [
        (
            "admit",
            &[
                "audit",
                "conn",
                "dev",
                "enrol-app",
                "enrol-hour",
                "grant",
                "ns",
                "pend",
            ][..],
        ),
        ("revoke", &["audit", "dev", "ns"]),
        ("forget", &["audit", "dev", "devid", "seen"]),
    ] {
        desk.commits.clear();
        assert_eq!(desk.decide(&device, decision).await.short(), "200");
        assert_eq!(desk.commits.partitions(), [partitions], "{decision}");
    }
    desk.device_in(2, "pending").await;
    desk.commits.clear();
    desk.post("/admin/vaults/acme/devices/deny-pending", &json!({}))
        .await;
    let together = ["audit", "dev", "devid", "ns", "pend"];
    assert_eq!(desk.commits.partitions(), [together]);
    let entries = desk.entries(&desk.acme).await;
    let admitted = entries
        .iter()
        .rfind(|entry| entry.action == "device.admit")
        .unwrap();
    assert_eq!(admitted.target.as_deref(), Some(id(&device).as_str()));
    assert_eq!(admitted.before, Some(json!({"status": "pending"})));
    assert_eq!(admitted.after, Some(json!({"status": "active"})));
    let text = format!("{entries:?}");
    assert!(!text.contains(&desk.owner), "an entry names no token");
}

/// Admitting needs a live subscription; shutting out never does.
#[tokio::test]
async fn a_lapsed_subscription_stops_admission_alone() {
    let desk = desk().await;
    let (waiting, denied) = (
        desk.device_in(1, "pending").await,
        desk.device_in(2, "pending").await,
    );
    let active = desk.device_in(3, "active").await;
    let change = |namespace: &mut Namespace| namespace.subscription = Subscription::Lapsed;
    desk.world.change("acme", change).await;
    assert_eq!(
        desk.decide(&waiting, "admit").await.short(),
        "402 subscription_lapsed"
    );
    assert_eq!(desk.decide(&denied, "deny").await.short(), "200");
    assert_eq!(desk.decide(&active, "revoke").await.short(), "200");
    assert_eq!(desk.decide(&active, "forget").await.short(), "200");
    assert_eq!(desk.waiting().await, (1, 1));
    assert_eq!(desk.count("device.admit subscription_lapsed").await, 1);
}

#[tokio::test]
async fn ids_of_nobody_and_of_others_are_404() {
    let desk = desk().await;
    desk.world.enrol(&key(1), "other", "theirs").await;
    let theirs = vault_format::request::device_id(&"other".parse().unwrap(), &key(1).public());
    let ours = desk.device_in(2, "pending").await;
    for odd in [
        theirs,
        id(&ours).to_uppercase(),
        id(&ours)[..29].to_owned(),
        format!("{}a", id(&ours)),
        id(&ours).replace("dev_", "dev-"),
        "dev_".into(),
        "%00".into(),
        "dev_%FF".into(),
        "..".into(),
        ours.public().to_string(),
    ] {
        for decision in ["admit", "deny", "revoke", "forget"] {
            let path = format!("/admin/vaults/acme/devices/{odd}/{decision}");
            assert_eq!(
                desk.post(&path, &Value::Null).await.short(),
                "404 not_found",
                "{path}"
            );
        }
    }
    assert_eq!(desk.waiting().await, (1, 1));
}

#[tokio::test]
async fn lists_are_cut_into_pages() {
    let desk = desk().await;
    for n in 1..=7 {
        desk.device_in(n, if n <= 3 { "pending" } else { "active" })
            .await;
    }
    for (query, count, limit) in [
        ("", 7usize, 3usize),
        ("status=pending&", 3, 2),
        ("", 7, 7),
        ("", 7, 1),
        ("", 7, 100),
    ] {
        let (mut ids, mut after, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let path = format!("/admin/vaults/acme/devices?{query}limit={limit}&after={after}");
            let page = desk.get(&path).await.json();
            let items = page["items"].as_array().unwrap().clone();
            assert!(items.len() <= limit);
            ids.extend(
                items
                    .iter()
                    .map(|item| item["device_id"].as_str().unwrap().to_owned()),
            );
            pages += 1;
            match page["next"].as_str() {
                Some(next) => next.clone_into(&mut after),
                None => break,
            }
        }
        assert_eq!(
            (ids.len(), pages),
            (count, count.div_ceil(limit)),
            "{query} {limit}"
        );
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }
    for (query, wanted) in [
        ("limit=0", "422 parameter_invalid"),
        ("limit=101", "422 parameter_invalid"),
        ("limit=-1", "422 parameter_invalid"),
        ("limit=ten", "422 parameter_invalid"),
        ("limit=", "422 parameter_invalid"),
        ("after=%00", "422 parameter_invalid"),
        ("status=active", "422 parameter_invalid"),
        ("limit=100", "200"),
        ("after=", "200"),
        ("after=%F0%9F%98%80", "200"),
        ("unknown=1", "200"),
    ] {
        let answer = desk
            .get(&format!("/admin/vaults/acme/devices?{query}"))
            .await;
        assert_eq!(answer.short(), wanted, "{query}");
    }
    let long = "a".repeat(129);
    let answer = desk
        .get(&format!("/admin/vaults/acme/devices?after={long}"))
        .await;
    assert_eq!(answer.short(), "422 parameter_invalid");
}

#[tokio::test]
async fn all_that_wait_are_denied_at_once() {
    let desk = desk().await;
    for n in 1..=20 {
        desk.device_in(n, "pending").await;
    }
    let admitted = key(1);
    assert_eq!(desk.decide(&admitted, "admit").await.short(), "200");
    assert_eq!(desk.waiting().await, (19, 19));
    let denied = desk
        .post("/admin/vaults/acme/devices/deny-pending", &json!({}))
        .await;
    assert_eq!(denied.short(), "200");
    let items = denied.json()["items"].as_array().unwrap().clone();
    assert_eq!(items.len(), 19);
    assert!(items.iter().all(|item| item["status"] == "revoked"));
    assert_eq!(desk.waiting().await, (0, 0));
    let again = desk
        .post("/admin/vaults/acme/devices/deny-pending", &json!({}))
        .await;
    assert_eq!(again.json(), json!({"items": [], "next": null}));
    assert_eq!(desk.count("device.deny-pending done").await, 1);
    let current = desk
        .world
        .ask(&admitted, "GET", "/v/acme/devices/current")
        .await;
    assert_eq!(current.json()["status"], "active");
    assert_eq!(
        desk.world.enrol(&key(40), "acme", "next").await.status,
        201,
        "the slots are free"
    );
}

/// A member that has no value is a mistake of the caller and does not deny everybody.
#[tokio::test]
async fn a_network_or_a_list_that_is_null_denies_nobody() {
    let desk = desk().await;
    desk.device_in(1, "pending").await;
    for body in [json!({"network": null}), json!({"devices": null})] {
        let denied = desk
            .post("/admin/vaults/acme/devices/deny-pending", &body)
            .await;
        assert_eq!(denied.short(), "400 json_invalid", "{body}");
    }
    assert_eq!(desk.waiting().await, (1, 1));
}

/// Owners who decide about one device at once: one decision holds, the counter stays right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_decisions_leave_one() {
    let desk = desk().await;
    for n in 1..=12 {
        let device = desk.device_in(n, "pending").await;
        let everyone = json!({});
        let (admitted, denied, all, same) = tokio::join!(
            desk.decide(&device, "admit"),
            desk.decide(&device, "deny"),
            desk.post("/admin/vaults/acme/devices/deny-pending", &everyone),
            desk.decide(&device, "admit"),
        );
        let state = desk
            .world
            .ask(&device, "GET", "/v/acme/devices/current")
            .await
            .json();
        let (won, lost) = if state["status"] == "active" {
            (&admitted, &denied)
        } else {
            (&denied, &admitted)
        };
        assert_eq!(won.short(), "200");
        assert_eq!(lost.short(), "409 device_state");
        assert_eq!(admitted.short(), same.short());
        assert_eq!(all.short(), "200");
        assert_eq!(desk.waiting().await, (0, 0));
    }
}

/// What an owner decides acts on the device's next request.
#[tokio::test]
async fn a_decision_acts_at_once() {
    let desk = desk().await;
    let device = desk.device_in(1, "pending").await;
    let bundle =
        "/v/acme/bundles/f34de946eb91e82374337096f2a8c220746748d3625f3065a4149f19d414b703.json";
    for (decision, bundles, catalog) in [
        ("", "403 device_pending", "200"),
        ("admit", "200", "200"),
        ("revoke", "403 device_revoked", "403 device_revoked"),
        ("forget", "401 device_unknown", "401 device_unknown"),
    ] {
        if !decision.is_empty() {
            desk.decide(&device, decision).await;
        }
        assert_eq!(
            desk.world.ask(&device, "GET", bundle).await.short(),
            bundles,
            "{decision}"
        );
        assert_eq!(
            desk.world
                .ask(&device, "GET", "/v/acme/catalog.json")
                .await
                .short(),
            catalog,
            "{decision}"
        );
    }
}

#[tokio::test]
async fn the_list_shows_the_day_of_a_devices_last_visit_and_the_release_that_it_has() {
    let desk = desk().await;
    let slug = "acme".parse().unwrap();
    let laptop = desk.device_in(1, "active").await;
    desk.device_in(2, "active").await;
    let seen = device::seen_key(&slug, &laptop.public().to_string());
    let ask = async |path: &str| {
        let answer = desk.world.ask(&laptop, "GET", path).await;
        assert_eq!(answer.status, 200, "{path}");
    };
    let revision = async || {
        let record = desk.world.app.records.get_one(&seen).await.unwrap();
        record.map(|record| record.revision)
    };
    let listed = async || {
        let answer = desk.get("/admin/vaults/acme/devices").await.json();
        let mut items = answer["items"].as_array().unwrap().clone();
        items.sort_by_key(|item| item["hostname"].to_string());
        json!(
            items
                .iter()
                .map(|item| json!([item["last_seen"], item["release"]]))
                .collect::<Vec<_>>()
        )
    };
    assert_eq!(listed().await, json!([[null, null], [null, null]]));
    // Asking for its state is a visit; the release counts once the catalog is fetched.
    ask("/v/acme/devices/current").await;
    assert_eq!(listed().await, json!([["2026-11-21", null], [null, null]]));
    ask("/v/acme/catalog.json").await;
    assert_eq!(listed().await, json!([["2026-11-21", 42], [null, null]]));
    // No further write on that day.
    let written = revision().await;
    for _ in 0..3 {
        ask("/v/acme/devices/current").await;
        ask("/v/acme/catalog.json").await;
    }
    assert_eq!(revision().await, written);
    // Nothing stays of a forgotten device.
    for decision in ["revoke", "forget"] {
        assert_eq!(desk.decide(&laptop, decision).await.short(), "200");
    }
    assert_eq!(revision().await, None);
}

#[tokio::test]
async fn machines_beyond_the_quota_are_not_admitted_and_wait_on() {
    let desk = desk().await;
    // Admitted by a version that counted none.
    desk.world.device("acme", 9, DeviceStatus::Active).await;
    let limit =
        |machines| move |namespace: &mut Namespace| namespace.quota.machines = Some(machines);
    desk.world.change("acme", limit(2)).await;
    let mut keys = Vec::new();
    for n in 1..=3 {
        keys.push(desk.device_in(n, "pending").await);
    }
    assert_eq!(desk.decide(&keys[0], "admit").await.short(), "200");
    let full = desk.decide(&keys[1], "admit").await;
    assert_eq!(full.short(), "409 quota_full");
    let numbers = json!({ "name": "machines", "used": 2, "asked": 1, "limit": 2 });
    assert_eq!(full.json()["quota"], numbers);
    let waiting = desk.get("/admin/vaults/acme/devices?status=pending").await;
    assert!(waiting.json().to_string().contains(&id(&keys[1])));
    // A repeated admission takes no further place, and a revocation frees one, once.
    assert_eq!(desk.decide(&keys[0], "admit").await.short(), "200");
    for _ in 0..2 {
        assert_eq!(desk.decide(&key(9), "revoke").await.short(), "200");
    }
    assert_eq!(desk.decide(&keys[1], "admit").await.short(), "200");
    assert_eq!(
        desk.decide(&keys[2], "admit").await.short(),
        "409 quota_full"
    );
    // A lower quota takes nothing away, and denials and revocations go on.
    desk.world.change("acme", limit(1)).await;
    assert_eq!(desk.decide(&keys[2], "deny").await.short(), "200");
    assert_eq!(desk.decide(&keys[1], "revoke").await.short(), "200");
    let shown = desk.get("/admin/vaults/acme").await.json();
    assert_eq!(
        (&shown["quota"]["machines"], &shown["usage"]["machines"]),
        (&json!(1), &json!(1))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_admissions_for_the_last_place_one_passes() {
    for _ in 0..20 {
        let desk = desk().await;
        let limit = |namespace: &mut Namespace| namespace.quota.machines = Some(1);
        desk.world.change("acme", limit).await;
        let one = desk.device_in(1, "pending").await;
        let other = desk.device_in(2, "pending").await;
        let (one, other) = tokio::join!(desk.decide(&one, "admit"), desk.decide(&other, "admit"));
        let mut answers = [one.short(), other.short()];
        answers.sort();
        assert_eq!(answers, ["200", "409 quota_full"]);
    }
}

/// A process of an earlier version decides without counting.
#[tokio::test]
async fn machines_are_counted_again_before_one_is_refused() {
    let desk = desk().await;
    let limit = |namespace: &mut Namespace| namespace.quota.machines = Some(2);
    desk.world.change("acme", limit).await;
    let mut keys = Vec::new();
    for n in 1..=3 {
        keys.push(desk.device_in(n, "pending").await);
    }
    assert_eq!(desk.decide(&keys[0], "admit").await.short(), "200");
    let counter = RecordKey::new("ns/acme", "machines");
    common::put(&desk.world.app, counter, &json!({ "admitted": 9 })).await;
    assert_eq!(desk.decide(&keys[1], "admit").await.short(), "200");
    let full = desk.decide(&keys[2], "admit").await;
    assert_eq!(full.short(), "409 quota_full");
    assert_eq!(full.json()["quota"]["used"], 2);
}
