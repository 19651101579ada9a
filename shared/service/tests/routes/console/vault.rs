//! The vault as a whole in a browser: what it shows, and the two changes that cannot be undone.

use serde_json::json;
use vault_format::keys::SecretKey;
use vault_service::model::audit::{Actor, Change};
use vault_service::model::device::{self, Device, DeviceStatus, LastSeen};
use vault_service::model::namespace::{Status, Subscription};
use vault_service::model::user::{Role, Scopes};
use vault_store::records::When;

use super::{below, open, signed_in, submit, submit_confirmed};
use crate::admin::{ADA, BOB, desk};
use crate::common::{self, PASSWORD};

const VAULT: &str = "/console/acme/namespace";

#[tokio::test]
async fn it_says_what_is_paid_stored_and_pinned() {
    let desk = desk().await;
    desk.world
        .change("acme", |namespace| {
            namespace.quota.bytes = Some(1 << 30);
            namespace.subscription = Subscription::Lapsed;
        })
        .await;
    let mut owner = signed_in(&desk, ADA).await;
    let page = open(&mut owner, VAULT).await;
    let acme = desk.world.read_namespace("acme").await;
    let fingerprint = acme.current.unwrap().fingerprint.unwrap().to_string();
    for text in [
        "lapsed: machines get no skills",
        "% of 1.0 GiB, which it may store",
        "% of 200000 objects, which it may store",
        &acme.pin.vault_pin().unwrap().vault_id.to_string(),
        &fingerprint,
    ] {
        assert!(page.body.contains(text), "{text}: {}", page.body);
    }
}

#[tokio::test]
async fn the_overview_names_a_webhook_that_fails_to_owners() {
    let mut desk = desk().await;
    let endpoints = desk.sending(false);
    let (id, _) = desk.webhook("hooks.example", &[]).await;
    endpoints.answer("hooks.example", 500);
    let mut owner = signed_in(&desk, ADA).await;
    let page = open(&mut owner, "/console/acme").await;
    assert!(!page.body.contains("hooks.example"), "{}", page.body);
    let path = format!("/admin/vaults/acme/notices/{id}/test");
    assert_eq!(desk.post(&path, &json!({})).await.status, 200);
    let page = open(&mut owner, "/console/acme").await;
    for text in ["https://hooks.example/hook", "the notice did not arrive"] {
        assert!(page.body.contains(text), "{text}: {}", page.body);
    }
}

#[tokio::test]
async fn deletion_needs_the_name_and_a_confirmation_and_then_ends_everything() {
    let desk = desk().await;
    let other = crate::admin::reference(&desk.other);
    common::member(&desk.world.app, ADA, &other, Role::Member, Scopes::READ).await;
    let mut owner = signed_in(&desk, ADA).await;
    let page = open(&mut owner, VAULT).await;
    for typed in ["", "acm", "ACME", "other"] {
        let fields = [("change", "delete"), ("slug", typed)];
        let back = submit(&mut owner, &page, VAULT, &fields).await;
        assert_eq!(
            back.header("location"),
            format!("{VAULT}?refused=confirmation_mismatch")
        );
    }
    let delete = [("change", "delete"), ("slug", "acme")];
    desk.world.clock.advance(301);
    let page = open(&mut owner, VAULT).await;
    let asked = submit(&mut owner, &page, VAULT, &delete).await;
    let confirm = asked.header("location").to_owned();
    let asked = owner.get(&confirm).await;
    assert_eq!(asked.page(), "200 Sign in");
    assert_eq!(desk.count("vault.delete done").await, 0);
    let back = owner.log_in(&asked, ADA, PASSWORD).await;
    assert_eq!(back.header("location"), confirm);
    let page = open(&mut owner, &confirm).await;
    assert_eq!(desk.count("vault.delete done").await, 0);
    let back = submit(
        &mut owner,
        &page,
        &confirm,
        &[("decision", "confirm"), ("sure", "yes")],
    )
    .await;
    let choice = "/console?done=vault-deleted";
    assert_eq!((back.status, back.header("location")), (303, choice));
    assert_eq!(owner.get(VAULT).await.status, 404);
    // The page says what was done, where it leads on to the only vault otherwise.
    let page = open(&mut owner, choice).await;
    assert_eq!(page.heading(), "Your vaults");
    assert!(
        page.body
            .contains("The vault is deleted. No one can open it any more."),
        "{}",
        page.body
    );
    assert!(
        page.body.contains("href=\"/console/other\""),
        "{}",
        page.body
    );
    assert!(!page.body.contains("/console/acme"), "{}", page.body);
    let only = owner.get("/console").await;
    assert_eq!(only.header("location"), "/console/other");
    let answer = desk.get("/admin/vaults/acme").await;
    assert_eq!(answer.short(), "401 token_invalid");
}

/// A request that is interrupted leaves either nothing or all of it: no confirmed permit without
/// its act.
#[tokio::test]
async fn a_confirmation_in_the_console_and_its_act_are_one_commit() {
    let desk = desk().await;
    let mut owner = signed_in(&desk, ADA).await;
    let page = open(&mut owner, VAULT).await;
    let fields = [("change", "reset-pin"), ("slug", "acme")];
    let asked = submit(&mut owner, &page, VAULT, &fields).await;
    let confirm = asked.header("location").to_owned();
    let page = open(&mut owner, &confirm).await;
    desk.commits.clear();
    let fields = [("decision", "confirm"), ("sure", "yes")];
    submit(&mut owner, &page, &confirm, &fields).await;
    let mut commits = desk.commits.partitions();
    commits.retain(|partitions| partitions.contains(&"permit".to_owned()));
    assert_eq!(commits.len(), 1, "{commits:?}");
    assert!(commits[0].contains(&"ns".to_owned()), "{commits:?}");
    for action in ["confirmation.confirm", "confirmation.use", "pin.reset"] {
        assert_eq!(desk.count(&format!("{action} done")).await, 1, "{action}");
    }
}

#[tokio::test]
async fn a_reset_of_the_pin_is_asked_for_as_a_deletion_is() {
    let desk = desk().await;
    let mut owner = signed_in(&desk, ADA).await;
    let page = open(&mut owner, VAULT).await;
    let fields = [("change", "reset-pin"), ("slug", "acme")];
    let back = submit_confirmed(&mut owner, &page, VAULT, &fields).await;
    assert_eq!(back.header("location"), format!("{VAULT}?done=pin-reset"));
    assert!(
        desk.world
            .read_namespace("acme")
            .await
            .pin
            .vault_pin()
            .is_none()
    );
    assert_eq!(desk.count("pin.reset done").await, 1);
}

/// A page reads 5,000 machines at most, and those that wait.
#[tokio::test]
async fn the_overview_says_nothing_of_machines_that_it_did_not_count() {
    let desk = desk().await;
    let (home, now) = (&desk.acme, desk.world.now());
    let machine = |number: u32| {
        let mut seed = [9; 32];
        seed[..4].copy_from_slice(&number.to_be_bytes());
        SecretKey::from_seed(seed)
    };
    let mut machines: Vec<_> = (0..5002).map(machine).collect();
    machines.sort_by_cached_key(|machine| machine.public().to_string());
    // The last one of the list waits.
    let waiting = machines.pop().unwrap();
    assert_eq!(desk.world.enrol(&waiting, "acme", "late").await.status, 201);
    for some in machines.chunks(40) {
        let mut writes = Vec::new();
        for key in some.iter().map(SecretKey::public) {
            let mut device = Device::new(&home.slug, home.id, key, "runner".to_owned(), now);
            device.status = DeviceStatus::Active;
            let seen = LastSeen::after_visit(None, home.id, Some(42), now).unwrap();
            writes.push(device.to_write(&home.slug, When::Absent).unwrap());
            writes.push(seen.to_write(&home.slug, &key.to_string(), now).unwrap());
        }
        common::commit(&desk.world.app, writes).await;
    }
    let mut owner = signed_in(&desk, ADA).await;
    let page = open(&mut owner, "/console/acme").await;
    for text in ["5000 admitted", "Only 5001 machines were counted."] {
        assert!(page.body.contains(text), "{text}: {}", page.body);
    }
    assert!(
        !page.body.contains("all have the current release"),
        "{}",
        page.body
    );
    let page = open(&mut owner, "/console/acme/machines?status=pending").await;
    assert!(page.body.contains(">late<"), "{}", page.body);
}

/// An operator who stops a vault does not keep its owners from their own data.
#[tokio::test]
async fn an_owner_exports_a_vault_that_is_suspended_or_lapsed() {
    let desk = desk().await;
    let acme = crate::admin::reference(&desk.acme);
    common::member(&desk.world.app, BOB, &acme, Role::Publisher, Scopes::ALL).await;
    let mut owner = signed_in(&desk, ADA).await;
    let mut publisher = signed_in(&desk, BOB).await;
    let export = "/console/acme/export.jsonl";
    for (status, subscription, wanted) in [
        (Status::Suspended, Subscription::Active, 403),
        (Status::Active, Subscription::Lapsed, 200),
        (Status::Suspended, Subscription::Lapsed, 403),
    ] {
        desk.world
            .change("acme", |namespace| {
                namespace.status = status;
                namespace.subscription = subscription;
            })
            .await;
        let part = owner.get(export).await;
        assert_eq!(part.status, 200, "{status:?}: {}", part.body);
        assert!(part.body.contains("\"kind\":\"release\""), "{}", part.body);
        assert_eq!(publisher.get(export).await.status, 403);
        for page in [VAULT, "/console/acme", "/console/acme/machines"] {
            let shown = owner.get(page).await;
            assert_eq!(shown.status, wanted, "{page}");
            assert_eq!(
                shown.body.contains("/export.jsonl at its end"),
                wanted == 403
            );
        }
    }
}

/// The records of machines stand under the slug, which may have been another vault's.
#[tokio::test]
async fn the_export_has_no_machine_of_another_vault_of_the_same_name() {
    let desk = desk().await;
    for (number, home) in [(61, None), (62, Some(desk.other.id))] {
        let key = desk
            .world
            .device("acme", number, DeviceStatus::Active)
            .await;
        let key = device::device_key(&desk.acme.slug, &key.public().to_string());
        let mut device: Device = common::read(&desk.world.app, &key).await;
        device.namespace_id = home.unwrap_or(device.namespace_id);
        let write = device.to_write(&desk.acme.slug, When::Any).unwrap();
        common::commit(&desk.world.app, vec![write]).await;
    }
    let mut owner = signed_in(&desk, ADA).await;
    let part = owner.get("/console/acme/export.jsonl").await;
    let machines = part.body.matches("\"kind\":\"machine\"").count();
    assert_eq!(machines, 1, "{}", part.body);
}

#[tokio::test]
async fn the_export_has_what_only_the_service_has_and_no_secret() {
    let desk = desk().await;
    let home = crate::admin::reference(&desk.acme);
    let app = &desk.world.app;
    common::member(app, BOB, &home, Role::Member, Scopes::ALL).await;
    let held = common::tokens(app, (BOB, PASSWORD), "acme", Scopes::ALL).await;
    desk.world.device("acme", 61, DeviceStatus::Active).await;
    let codes = "/admin/vaults/acme/enrolment-codes";
    let made = desk.post(codes, &json!({ "uses": 1 })).await.json();
    for number in 0..12 {
        let change = Change {
            target: Some("x".repeat(200 * 1024)),
            ..Change::default()
        };
        let actor = Actor::server();
        let entry = app.audit_entry(Some(&desk.acme.id), &actor, "test.entry", change, "done");
        common::commit(app, vec![entry.unwrap()]).await;
        desk.world.clock.advance(number);
    }
    let mut owner = signed_in(&desk, ADA).await;
    let (mut path, mut kinds, mut parts) = ("/console/acme/export.jsonl".to_owned(), Vec::new(), 0);
    loop {
        let part = owner.get(&path).await;
        assert_eq!(part.status, 200, "{path}");
        assert!(part.body.len() < 5_000_000, "{}", part.body.len());
        parts += 1;
        for secret in [
            &held.access,
            &held.refresh,
            made["code"].as_str().unwrap(),
            PASSWORD,
        ] {
            assert!(!part.body.contains(secret), "{secret}");
        }
        let lines = part
            .body
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<serde_json::Value> = lines.collect();
        kinds.extend(
            lines
                .iter()
                .filter_map(|line| line["kind"].as_str().map(str::to_owned)),
        );
        match lines.last().unwrap()["next"].as_str() {
            Some(next) => path = below(&desk, next).to_owned(),
            None => break,
        }
        assert!(parts < 9, "{path}");
    }
    assert_eq!(parts, 2);
    let log = kinds.iter().filter(|kind| *kind == "log").count();
    assert_eq!(log, desk.entries(&desk.acme).await.len());
    kinds.dedup();
    assert_eq!(kinds.join(" "), "vault person app machine release log");
    for after in ["x", "1", "0.a%00"] {
        let path = format!("/console/acme/export.jsonl?after={after}");
        assert_eq!(owner.get(&path).await.status, 400, "{after}");
    }
}
