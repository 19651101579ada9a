//! What is queued for owners, and when: each event in the commit that makes it, within the bounds
//! of the outbox.

use serde_json::json;
use vault_service::model::namespace::Kind;
use vault_service::model::notice::{Event, Outgoing};
use vault_service::notices;
use vault_store::records::When;

use super::{draft, payment, quota_near, replaced_key};
use crate::admin::{desk, empty_desk};
use crate::common::commit;
use crate::quota::bytes;
use crate::support::key;
use crate::team::{Team, propose_skill};

#[tokio::test]
async fn machines_that_wait_make_one_notice_each_quarter_of_an_hour() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &[]).await;
    for n in 1..=7 {
        assert_eq!(desk.ask_in(n, &format!("machine {n}")).await, "201");
    }
    assert_eq!(desk.unsent(&desk.acme).await.len(), 1);
    assert_eq!(desk.send_due().await, (1, 0));
    let (topic, data) = endpoints.events().remove(0);
    assert_eq!(topic, "machine_waiting");
    assert_eq!(
        (&data["vault"], &data["waiting"]),
        (&json!("acme"), &json!(7))
    );
    let machines = data["machines"].as_array().unwrap();
    assert_eq!(machines.len(), 5);
    for machine in machines {
        let fingerprint = machine["fingerprint"].as_str().unwrap();
        assert!(fingerprint.starts_with("dev:"), "{machine}");
        assert!(machine["name"].as_str().unwrap().starts_with("machine "));
    }
    // The next machines are announced when the quarter of an hour is over.
    assert_eq!(desk.ask_in(8, "late").await, "201");
    desk.world.clock.advance(15 * 60 - 1);
    assert_eq!(desk.send_due().await, (0, 0));
    desk.world.clock.advance(1);
    assert_eq!(desk.send_due().await, (1, 0));
    assert_eq!(endpoints.events()[0].1["waiting"], 8);
    assert_eq!(
        (desk.unsent(&desk.acme).await.len(), desk.due().await),
        (0, 0)
    );
}

#[tokio::test]
async fn machines_that_no_longer_wait_make_no_notice() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &[]).await;
    assert_eq!(desk.ask_in(1, "laptop").await, "201");
    let path = "/admin/vaults/acme/devices/deny-pending";
    assert_eq!(desk.post(path, &json!({})).await.status, 200);
    assert_eq!(desk.send_due().await, (0, 0));
    assert!(endpoints.got().is_empty());
    assert_eq!(
        (desk.unsent(&desk.acme).await.len(), desk.due().await),
        (0, 0)
    );
}

#[tokio::test]
async fn nothing_is_written_where_nothing_is_sent() {
    let mut desk = empty_desk().await;
    desk.sending(true);
    assert_eq!(desk.ask_in(1, "laptop").await, "201");
    assert_eq!(desk.queue_notice(&desk.acme, draft(1)).await, 0);
    desk.webhook("a.example", &["payment_failed"]).await;
    assert_eq!(desk.ask_in(2, "laptop").await, "201");
    assert_eq!(desk.queue_notice(&desk.acme, draft(1)).await, 0);
    assert_eq!(
        (desk.unsent(&desk.acme).await.len(), desk.due().await),
        (0, 0)
    );
    assert_eq!(desk.queue_notice(&desk.acme, payment()).await, 3);
}

#[tokio::test]
async fn an_event_whose_commit_fails_leaves_no_notice() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &[]).await;
    for n in 1..=20 {
        assert_eq!(desk.ask_in(n, "machine").await, "201");
    }
    assert_eq!(desk.send_due().await, (1, 0));
    assert_eq!(desk.ask_in(21, "machine").await, "409 pending_queue_full");
    assert!(desk.unsent(&desk.acme).await.is_empty());
    // A commit that another writer got in the way of is made again, with one notice.
    endpoints.got();
    desk.commits.interfere(1);
    let proposed = propose_skill(&desk.world, &desk.owner, "acme", "alpha").await;
    assert_eq!(proposed.status, 201, "{:?}", proposed.json());
    assert_eq!(desk.unsent(&desk.acme).await.len(), 1);
    assert_eq!(desk.send_due().await, (1, 0));
    let (topic, data) = endpoints.events().remove(0);
    assert_eq!(topic, "draft_waiting");
    assert_eq!(data["draft"], proposed.json()["id"]);
    assert_eq!(
        (&data["kind"], &data["skill"]),
        (&json!("propose"), &json!("alpha"))
    );
}

#[tokio::test]
async fn drafts_of_members_leave_room_for_other_notices() {
    let mut desk = empty_desk().await;
    desk.sending(false);
    desk.webhook("a.example", &[]).await;
    for n in 0..60 {
        let queued = desk.queue_notice(&desk.acme, draft(n)).await;
        assert_eq!(queued, if n < 50 { 3 } else { 0 }, "{n}");
    }
    for n in 0..60 {
        let queued = desk.queue_notice(&desk.acme, payment()).await;
        assert_eq!(queued, if n < 30 { 3 } else { 0 }, "{n}");
    }
}

/// Two processes have read the outbox when each of them commits an event.
#[tokio::test]
async fn two_commits_at_once_do_not_pass_the_bounds_of_the_outbox() {
    let mut desk = empty_desk().await;
    desk.sending(false);
    desk.webhook("a.example", &[]).await;
    for (event, room) in [(quota_near(0), 10), (draft(0), 50), (payment(), 20)] {
        for _ in 1..room {
            desk.queue_notice(&desk.acme, event.clone()).await;
        }
        let mut commits = Vec::new();
        for _ in 0..2 {
            let queued = notices::queue_notice(&desk.world.app, &desk.acme, event.clone());
            commits.push(queued.await.unwrap());
        }
        let mut committed = Vec::new();
        for writes in commits {
            committed.push(desk.world.app.try_commit(writes).await.unwrap());
        }
        assert_eq!(committed, [true, false], "{event:?}");
    }
}

/// Anybody may enrol machines, and the owner's endpoint does not answer for some hours.
#[tokio::test]
async fn machines_that_ask_leave_room_for_other_notices() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &[]).await;
    endpoints.answer("a.example", 500);
    for n in 1..=13 {
        assert_eq!(desk.ask_in(n, "machine").await, "201");
        desk.send_due().await;
        desk.world.clock.advance(15 * 60);
    }
    let unsent = desk.unsent(&desk.acme).await;
    let notices = unsent
        .iter()
        .filter_map(|record| record.read::<Outgoing>().ok());
    let is_about_machines =
        |notice: &Outgoing| matches!(notice.event, Event::MachineWaiting { .. });
    assert_eq!(notices.filter(is_about_machines).count(), 10);
    // The machines of the other rounds are announced later.
    assert_eq!(unsent.len(), 11);
}

#[tokio::test]
async fn a_warning_without_room_in_the_outbox_comes_later() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &["quota_near"]).await;
    desk.limit(1000, 0).await;
    for n in 0..10 {
        desk.queue_notice(&desk.acme, quota_near(n)).await;
    }
    desk.put_bytes("bundles", &bytes(1, 850)).await;
    assert_eq!(desk.unsent(&desk.acme).await.len(), 10);
    assert_eq!(desk.send_due().await, (10, 0));
    endpoints.events();
    desk.put_bytes("bundles", &bytes(2, 8)).await;
    desk.send_due().await;
    let warning = json!({ "vault": "acme", "quota": "bytes", "used": 858, "limit": 1000 });
    assert_eq!(endpoints.events(), [("quota_near".to_owned(), warning)]);
    // Given once, it is not repeated.
    desk.put_bytes("bundles", &bytes(3, 8)).await;
    assert_eq!(desk.send_due().await, (0, 0));
}

#[tokio::test]
async fn no_flood_of_notices_hides_a_replaced_key() {
    let mut desk = empty_desk().await;
    desk.sending(false);
    desk.webhook("a.example", &[]).await;
    for n in 0..20 {
        let queued = desk.queue_notice(&desk.acme, quota_near(n)).await;
        assert_eq!(queued, if n < 10 { 3 } else { 0 }, "{n}");
    }
    for _ in 0..90 {
        desk.queue_notice(&desk.acme, payment()).await;
    }
    assert_eq!(desk.unsent(&desk.acme).await.len(), 80);
    for n in 0..25 {
        let queued = desk.queue_notice(&desk.acme, replaced_key()).await;
        assert_eq!(queued, if n < 20 { 2 } else { 0 }, "{n}");
    }
}

#[tokio::test]
async fn the_end_of_a_release_is_announced_once_14_days_before() {
    let mut desk = desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &[]).await;
    let vault_service::maintenance::Report { sent, .. } = desk.world.work().await;
    assert_eq!(sent, 0);
    let bytes = crate::support::vector("catalog-42.json");
    let ends_at = crate::support::read_file(&bytes).0.expires_at;
    desk.world
        .clock
        .set(ends_at.plus_days(-14).plus_seconds(-1));
    desk.world.work().await;
    desk.world.clock.advance(6 * 3600);
    desk.world.work().await;
    // The round that finds it and the pass that sends it run side by side.
    desk.send_due().await;
    let data = json!({ "vault": "acme", "release": 42, "ends_at": ends_at });
    assert_eq!(endpoints.events(), [("release_ends".to_owned(), data)]);
    for _ in 0..3 {
        desk.world.clock.advance(6 * 3600);
        desk.world.work().await;
        desk.send_due().await;
    }
    assert!(endpoints.got().is_empty());
}

#[tokio::test]
async fn a_replaced_key_is_announced_and_an_added_one_is_not() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &[]).await;
    let team = Team::new("acme", 3, 1);
    team.publish(&desk.world, &[team.skill("alpha", "one")])
        .await;
    desk.send_due().await;
    assert!(
        endpoints.got().is_empty(),
        "the first release replaces nothing"
    );
    let added = team.changed(|edit| {
        edit.add_publisher(crate::team::entry(&key(9))).unwrap();
    });
    added
        .publish(&desk.world, &[added.skill("alpha", "two")])
        .await;
    desk.send_due().await;
    assert!(endpoints.got().is_empty(), "an added key replaces nothing");
    let removed = added.changed(|edit| {
        edit.remove_publisher(&team.key(2).public()).unwrap();
    });
    removed
        .publish(&desk.world, &[removed.skill("alpha", "three")])
        .await;
    assert_eq!(desk.send_due().await, (1, 0));
    let (topic, mut data) = endpoints.events().remove(0);
    assert_eq!(topic, "key_replaced");
    let changes = data.as_object_mut().unwrap().remove("changes").unwrap();
    let changed = changes[0].as_str().unwrap();
    assert!(changed.starts_with("key removed: \""), "{changes}");
    let fingerprint = removed.chain().fingerprint().to_string();
    let wanted = json!({ "vault": "acme", "root_version": 3, "fingerprint": fingerprint });
    assert_eq!(data, wanted);
    // More signatures are no news. Fewer are: with them one stolen key is enough again.
    let raised = removed.changed(|edit| {
        edit.set_release_threshold(2);
    });
    let lowered = raised.changed(|edit| {
        edit.set_release_threshold(1);
    });
    for (team, body, notices) in [(&raised, "four", 0), (&lowered, "five", 1)] {
        team.publish(&desk.world, &[team.skill("alpha", body)])
            .await;
        assert_eq!(desk.send_due().await, (notices, 0), "{body}");
    }
    let told = json!(["a release needs 1 signature instead of 2"]);
    let (_, data) = endpoints.events().pop().unwrap();
    assert_eq!(data["changes"], told);
    let log = desk
        .get("/admin/audit?action=catalog.publish&limit=100")
        .await;
    let log = log.json();
    let mut entries = log["items"].as_array().unwrap().iter();
    let is_told = entries.any(|entry| entry["after"]["keys"] == told);
    assert!(is_told, "{log}");
    // After a reset of the pin another vault takes the place of this one.
    let (path, slug) = ("/admin/vaults/acme/pin/reset", json!({ "slug": "acme" }));
    assert_eq!(desk.post(path, &slug).await.status, 200);
    let stranger = Team::new("acme", 1, 1);
    stranger
        .publish(&desk.world, &[stranger.skill("beta", "one")])
        .await;
    desk.send_due().await;
    assert_eq!(endpoints.events()[0].0, "key_replaced");
}

#[tokio::test]
async fn a_vault_that_signs_itself_has_notices_too() {
    let mut desk = crate::admin::desk_of(Kind::SelfSigned, |_| {}).await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &["machine_waiting"]).await;
    assert_eq!(desk.ask_in(1, "laptop").await, "201");
    assert_eq!(desk.send_due().await, (1, 0));
    assert_eq!(endpoints.events()[0].0, "machine_waiting");
}

/// Notices of a version that did not count those about machines.
#[tokio::test]
async fn no_other_notices_take_the_places_of_replaced_keys() {
    let mut desk = empty_desk().await;
    desk.sending(false);
    desk.webhook("a.example", &[]).await;
    let event = Event::MachineWaiting {
        waiting: 1,
        machines: Vec::new(),
    };
    let now = desk.world.now();
    for n in 0..110 {
        let notice = Outgoing::new(event.clone(), now);
        let id = format!("01A{n:023}");
        let write = notice.to_write(&desk.acme.id, &id, When::Absent).unwrap();
        commit(&desk.world.app, vec![write]).await;
    }
    for n in 0..22 {
        let queued = desk.queue_notice(&desk.acme, replaced_key()).await;
        assert_eq!(queued, if n < 20 { 2 } else { 0 }, "{n}");
    }
}

#[tokio::test]
async fn machines_that_wait_are_announced_when_the_outbox_has_room() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &[]).await;
    for _ in 0..80 {
        desk.queue_notice(&desk.acme, payment()).await;
    }
    assert_eq!(desk.ask_in(1, "laptop").await, "201");
    endpoints.answer("a.example", 500);
    desk.send_due().await;
    // The mark stays, and no notice is queued in its place.
    let unsent = desk.unsent(&desk.acme).await;
    assert_eq!(unsent.len(), 81);
    for record in unsent {
        let notice = record.read::<Outgoing>();
        let is_about_machines =
            notice.is_ok_and(|notice| matches!(notice.event, Event::MachineWaiting { .. }));
        assert!(!is_about_machines, "a notice about machines took a place");
    }
    endpoints.answer("a.example", 200);
    endpoints.got();
    for _ in 0..3 {
        desk.world.clock.advance(3600);
        desk.send_due().await;
    }
    let events = endpoints.events();
    let about_machines = events.iter().filter(|(kind, _)| kind == "machine_waiting");
    assert_eq!((about_machines.count(), events.len()), (1, 81));
}
