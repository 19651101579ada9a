//! How queued notices are sent: attempts, their bounds, and what keeps nothing of another recipient
//! or vault.

use std::collections::BTreeSet;

use serde_json::json;
use tokio::time::Instant;
use vault_service::model::namespace::{Namespace, Status};
use vault_service::model::notice::{Destinations, Due, due_key};
use vault_service::model::user::Scopes;
use vault_service::notices::{Delivered, deliver_due};
use vault_service::senders::WebhookMessage;
use vault_store::records::{RecordKey, When, Write};

use super::{A_PASS, draft, payment, quota_near, replaced_key};
use crate::admin::{ADA, empty_desk, token};
use crate::common::{self, commit};

#[tokio::test]
async fn a_notice_is_retried_with_the_same_id_and_then_given_up() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    let (id, _) = desk.webhook("dead.example", &[]).await;
    endpoints.answer("dead.example", 500);
    desk.queue_notice(&desk.acme, payment()).await;
    let mut ids = BTreeSet::new();
    for wait in [0, 60, 300, 1800, 7200, 28_800, 86_400] {
        if wait > 0 {
            desk.world.clock.advance(wait - 1);
            assert_eq!(desk.send_due().await, (0, 0), "{wait}");
            desk.world.clock.advance(1);
        }
        assert_eq!(desk.send_due().await, (0, 1), "{wait}");
        let now = desk.world.now();
        let message = endpoints.got().remove(0);
        assert_eq!(message.at, now, "each attempt is signed anew");
        ids.insert((message.id, message.body));
    }
    assert_eq!(ids.len(), 1);
    assert_eq!(
        (desk.unsent(&desk.acme).await.len(), desk.due().await),
        (0, 0)
    );
    desk.owner = token(&desk.world, ADA, "acme", Scopes::ALL).await;
    let shown = &desk.destinations().await["webhooks"][0];
    assert_eq!(shown["state"], "failing");
    let failure = shown["last_failure"].as_str().unwrap();
    assert!(
        failure.starts_with("the notice did not arrive: the endpoint must be on a public host and the port 443 or 8443, have"),
        "{failure}"
    );

    // A week in which everything failed switches it off; a test that arrives switches it on.
    desk.world.clock.advance(7 * 24 * 3600);
    desk.queue_notice(&desk.acme, payment()).await;
    assert_eq!(desk.send_due().await, (0, 1));
    desk.owner = token(&desk.world, ADA, "acme", Scopes::ALL).await;
    assert_eq!(desk.destinations().await["webhooks"][0]["state"], "off");
    assert_eq!(desk.count("notice.off done").await, 1);
    assert_eq!(desk.queue_notice(&desk.acme, payment()).await, 0);
    endpoints.answer("dead.example", 200);
    let path = format!("/admin/vaults/acme/notices/{id}/test");
    assert_eq!(
        desk.post(&path, &json!({})).await.json(),
        json!({ "id": id, "arrived": true, "failure": null })
    );
    assert_eq!(desk.destinations().await["webhooks"][0]["state"], "on");
}

#[tokio::test]
async fn an_outbox_that_an_earlier_version_listed_is_sent_and_listed_anew() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &[]).await;
    for event_meanwhile in [false, true] {
        desk.queue_notice(&desk.acme, payment()).await;
        // As version 0.5 listed it.
        let key = due_key(&desk.acme.id);
        let listed = desk.world.app.records.get_one(&key).await.unwrap();
        let earlier = RecordKey::new("outbox-due", desk.acme.id.to_string());
        let document = listed.unwrap().document;
        let mut writes = vec![Write::put(earlier, document, When::Absent)];
        if !event_meanwhile {
            writes.push(Write::delete(key.clone(), When::Any));
        }
        commit(&desk.world.app, writes).await;
        endpoints.answer("a.example", 500);
        assert_eq!(desk.send_due().await, (0, 1));
        assert_eq!(desk.records_of("outbox-due").await.len(), 0);
        assert_eq!(desk.records_of(&key.partition).await.len(), 1);
        endpoints.answer("a.example", 200);
        desk.world.clock.advance(60);
        assert_eq!(desk.send_due().await, (1, 0));
        assert_eq!(
            (desk.unsent(&desk.acme).await.len(), desk.due().await),
            (0, 0)
        );
    }
}

/// Other writers may get in the way of the commit that moves the record. The outbox is still listed
/// then, and visited again.
#[tokio::test]
async fn an_outbox_whose_move_fails_stays_listed() {
    let mut desk = empty_desk().await;
    let _endpoints = desk.sending(false);
    desk.webhook("a.example", &[]).await;
    desk.queue_notice(&desk.acme, payment()).await;
    let key = due_key(&desk.acme.id);
    let listed = desk.world.app.records.get_one(&key).await.unwrap();
    let earlier = RecordKey::new("outbox-due", desk.acme.id.to_string());
    let document = listed.unwrap().document;
    let writes = vec![
        Write::put(earlier, document, When::Absent),
        Write::delete(key.clone(), When::Any),
    ];
    commit(&desk.world.app, writes).await;
    // A visit of a suspended vault makes this one commit.
    let suspend = |vault: &mut Namespace| vault.status = Status::Suspended;
    desk.world.change("acme", suspend).await;
    desk.commits.interfere(1);
    assert_eq!(desk.send_due().await, (0, 0));
    assert_eq!(desk.records_of("outbox-due").await.len(), 1);
    assert_eq!(desk.records_of(&key.partition).await.len(), 0);
    assert_eq!(desk.send_due().await, (0, 0));
    assert_eq!(desk.records_of("outbox-due").await.len(), 0);
    assert_eq!(desk.records_of(&key.partition).await.len(), 1);
}

#[tokio::test]
async fn a_slow_endpoint_of_one_tenant_keeps_no_notice_of_another() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("slow.example", &[]).await;
    let other = desk.stranger().await;
    let body = json!({ "address": "https://quick.example/" });
    let made = desk.ask(&other, "POST", "/admin/vaults/other/notices", Some(&body));
    assert_eq!(made.await.status, 201);
    endpoints
        .slow
        .lock()
        .unwrap()
        .insert("slow.example".to_owned());
    desk.queue_notice(&desk.acme, payment()).await;
    desk.world.clock.advance(1);
    desk.queue_notice(&desk.other, payment()).await;
    let app = desk.world.app.clone();
    let until = Instant::now() + A_PASS;
    let pass = tokio::spawn(async move { deliver_due(&app, until).await.unwrap() });
    endpoints.arrived.notified().await;
    let quick = endpoints.got().remove(0);
    assert_eq!(quick.address.as_str(), "https://quick.example/");
    endpoints.go_on.notify_one();
    let done = Delivered {
        arrived: 2,
        failed: 0,
    };
    assert_eq!(pass.await.unwrap(), done);
}

#[tokio::test]
async fn a_dead_endpoint_keeps_nothing_from_another_of_the_same_vault() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("dead.example", &[]).await;
    desk.webhook("good.example", &[]).await;
    endpoints.answer("dead.example", 503);
    for n in 0..5 {
        desk.world.clock.advance(1);
        desk.queue_notice(&desk.acme, draft(n)).await;
    }
    // The dead one is tried once a visit, the good one gets everything, in order.
    assert_eq!(desk.send_due().await, (5, 1));
    let good = |message: &WebhookMessage| message.address.as_str().contains("good");
    let bodies: Vec<_> = endpoints.got().into_iter().filter(good).collect();
    for (n, message) in bodies.iter().enumerate() {
        assert!(message.body.contains(&format!("drf_{n}")), "{message:?}");
    }
    assert_eq!(desk.unsent(&desk.acme).await.len(), 5);
}

#[tokio::test]
async fn a_recipient_gets_a_bounded_number_of_notices_an_hour() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &["payment_failed"]).await;
    for _ in 0..70 {
        desk.queue_notice(&desk.acme, payment()).await;
    }
    assert_eq!(desk.send_due().await, (60, 0));
    assert_eq!(desk.send_due().await, (0, 0));
    desk.world.clock.advance(3600);
    assert_eq!(desk.send_due().await, (10, 0));
    assert_eq!(endpoints.got().len(), 70);
    assert_eq!(
        (desk.unsent(&desk.acme).await.len(), desk.due().await),
        (0, 0)
    );
}

#[tokio::test]
async fn two_processes_send_a_notice_once() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("slow.example", &[]).await;
    endpoints
        .slow
        .lock()
        .unwrap()
        .insert("slow.example".to_owned());
    desk.queue_notice(&desk.acme, payment()).await;
    let pass = || {
        let app = desk.world.app.clone();
        let until = Instant::now() + A_PASS;
        async move { deliver_due(&app, until).await.unwrap() }
    };
    let first = tokio::spawn(pass());
    // The second pass begins while the first one waits for the endpoint.
    while desk.unsent(&desk.acme).await[0]
        .document
        .as_str()
        .contains("\"attempts\":0")
        || desk.unsent(&desk.acme).await[0]
            .document
            .as_str()
            .contains("\"deliveries\":null")
    {
        tokio::task::yield_now().await;
    }
    assert_eq!(pass().await, Delivered::default());
    endpoints.go_on.notify_one();
    assert_eq!(first.await.unwrap().arrived, 1);
    assert_eq!(endpoints.got().len(), 1);
}

#[tokio::test]
async fn a_process_that_dies_during_an_attempt_loses_nothing() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("slow.example", &[]).await;
    endpoints
        .slow
        .lock()
        .unwrap()
        .insert("slow.example".to_owned());
    desk.queue_notice(&desk.acme, payment()).await;
    let app = desk.world.app.clone();
    let until = Instant::now() + A_PASS;
    let dying = tokio::spawn(async move { deliver_due(&app, until).await });
    while !desk.unsent(&desk.acme).await[0]
        .document
        .as_str()
        .contains("\"attempts\":1")
    {
        tokio::task::yield_now().await;
    }
    dying.abort();
    assert!(dying.await.unwrap_err().is_cancelled());
    endpoints.slow.lock().unwrap().clear();
    desk.world.clock.advance(60);
    assert_eq!(desk.send_due().await, (1, 0));
}

/// What an earlier version of vault or another hand wrote is skipped, and keeps nothing of others.
#[tokio::test]
async fn an_outbox_that_cannot_be_read_keeps_no_notice_of_another() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &[]).await;
    let (acme, other) = (desk.acme.clone(), desk.other.clone());
    desk.queue_notice(&acme, payment()).await;
    let key = desk.unsent(&acme).await[0].key.clone();
    common::put(&desk.world.app, key, &json!({ "event": "?" })).await;
    let destinations = Destinations::find(&desk.world.app, &acme.id).await;
    let (destinations, when) = destinations.unwrap();
    let writes: Vec<Write> = vec![
        destinations
            .to_write(&other.id, vault_store::records::When::Any)
            .unwrap(),
    ];
    assert!(matches!(when, vault_store::records::When::At(_)));
    commit(&desk.world.app, writes).await;
    desk.queue_notice(&other, payment()).await;
    assert_eq!(desk.send_due().await, (1, 0));
    assert_eq!(endpoints.events()[0].1["vault"], "other");
}

#[tokio::test]
async fn an_entry_of_the_list_of_outboxes_that_cannot_be_read_keeps_no_notice() {
    let mut desk = empty_desk().await;
    desk.sending(false);
    desk.webhook("a.example", &[]).await;
    desk.queue_notice(&desk.acme, payment()).await;
    for partition in Due::partitions() {
        let key = RecordKey::new(partition, "0");
        common::put(&desk.world.app, key, &json!({ "due": "?" })).await;
    }
    assert_eq!(desk.send_due().await, (1, 0));
}

/// A firewall lets an endpoint accept and never answer.
#[tokio::test]
async fn a_hanging_webhook_does_not_delay_the_mail_about_a_replaced_key() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(true);
    desk.webhook("slow.example", &[]).await;
    let path = "/admin/vaults/acme/notices/mail";
    let on = json!({ "mail": true });
    assert_eq!(
        desk.ask(&desk.owner, "PUT", path, Some(&on)).await.status,
        200
    );
    endpoints
        .slow
        .lock()
        .unwrap()
        .insert("slow.example".to_owned());
    for n in 0..3 {
        desk.queue_notice(&desk.acme, draft(n)).await;
    }
    for _ in 0..2 {
        desk.queue_notice(&desk.acme, replaced_key()).await;
    }
    let app = desk.world.app.clone();
    let until = Instant::now() + A_PASS;
    let pass = tokio::spawn(async move { deliver_due(&app, until).await.unwrap() });
    // The first attempt at the webhook waits for its answer.
    endpoints.asked.notified().await;
    let mails = endpoints.mails();
    let subjects: Vec<_> = mails.iter().map(|mail| mail.subject.to_string()).collect();
    assert_eq!(subjects.len(), 2, "{subjects:?}");
    for subject in subjects {
        assert!(subject.contains("the keys have changed"), "{subject}");
    }
    endpoints.slow.lock().unwrap().clear();
    endpoints.go_on.notify_one();
    assert_eq!(pass.await.unwrap().arrived, 10);
}

/// Members cause the others.
#[tokio::test]
async fn notices_about_replaced_keys_have_an_hourly_limit_of_their_own() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &[]).await;
    for n in 0..50 {
        desk.queue_notice(&desk.acme, draft(n)).await;
    }
    for n in 0..10 {
        desk.queue_notice(&desk.acme, quota_near(n)).await;
    }
    assert_eq!(desk.send_due().await, (60, 0));
    desk.queue_notice(&desk.acme, payment()).await;
    for _ in 0..20 {
        desk.queue_notice(&desk.acme, replaced_key()).await;
    }
    endpoints.events();
    assert_eq!(desk.send_due().await, (20, 0));
    assert!(
        endpoints
            .events()
            .iter()
            .all(|(kind, _)| kind == "key_replaced")
    );
    desk.queue_notice(&desk.acme, replaced_key()).await;
    assert_eq!(desk.send_due().await, (0, 0));
    desk.world.clock.advance(3600);
    assert_eq!(desk.send_due().await, (2, 0));
}

/// A version that is newer writes notices that this one does not know.
#[tokio::test]
async fn a_notice_that_cannot_be_read_keeps_no_other_of_its_vault() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &[]).await;
    desk.queue_notice(&desk.acme, payment()).await;
    let key = desk.unsent(&desk.acme).await[0].key.clone();
    common::put(&desk.world.app, key, &json!({ "event": "?" })).await;
    desk.world.clock.advance(1);
    for event in [draft(1), quota_near(1), replaced_key()] {
        assert_ne!(desk.queue_notice(&desk.acme, event).await, 0);
    }
    assert_eq!(desk.send_due().await, (3, 0));
    assert_eq!(endpoints.events()[0].0, "key_replaced");
    // It is looked at again, and the outbox is not forgotten.
    assert_eq!(
        (desk.unsent(&desk.acme).await.len(), desk.due().await),
        (1, 1)
    );
}
