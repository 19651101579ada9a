//! Machines: what the pages show, and what their forms do.

use std::collections::BTreeSet;

use vault_format::keys::SecretKey;
use vault_format::name::Slug;
use vault_format::request::device_id;
use vault_format::root::KeyFingerprint;
use vault_service::model::device::{self, Device, DeviceStatus, LastSeen};
use vault_service::model::enrolment::Enrolment;
use vault_service::model::namespace::Subscription;
use vault_store::records::When;

use crate::admin::{ADA, Desk, desk};
use crate::common::{self, Reply};
use crate::support::key;

use super::{MAX_PAGE_BYTES, at, done, refused, send};

const LIST: &str = "/console/acme/machines";

fn slug() -> Slug {
    "acme".parse().unwrap()
}

fn page_of(machine: &SecretKey) -> String {
    format!("{LIST}/{}", device_id(&slug(), &machine.public()))
}

async fn read(desk: &Desk, machine: &SecretKey) -> Option<Device> {
    let at = device::device_key(&slug(), &machine.public().to_string());
    let found = desk.world.app.records.get_one(&at).await.unwrap();
    found.map(|record| record.read().unwrap())
}

/// The names of the machines in a list, in its order.
fn names(page: &Reply) -> Vec<String> {
    let rows = page.body.split("scope=\"row\">").skip(1);
    rows.map(|row| {
        let name = row.split("<bdi>").nth(1).unwrap();
        name.split("</bdi>").next().unwrap().to_owned()
    })
    .collect()
}

#[tokio::test]
async fn a_machine_without_a_name_is_shown_by_its_fingerprint() {
    let desk = desk().await;
    let body = serde_json::json!({ "public_key": key(9).public() }).to_string();
    desk.world.post_devices(&key(9), "acme", &body).await;
    let (_, list) = at(&desk, ADA, LIST).await;
    let fingerprint = KeyFingerprint::device(&key(9).public()).to_string();
    assert_eq!(names(&list), [fingerprint]);
}

#[tokio::test]
async fn an_owner_admits_revokes_and_forgets_a_machine() {
    let desk = desk().await;
    let machine = desk.world.device("acme", 7, DeviceStatus::Pending).await;
    let path = page_of(&machine);
    let (mut ada, list) = at(&desk, ADA, LIST).await;
    assert!(
        list.body.contains("One machine is waiting"),
        "{}",
        list.body
    );
    let page = ada.get(&path).await;
    let fingerprint = KeyFingerprint::device(&machine.public()).to_string();
    assert!(page.body.contains(&fingerprint), "{}", page.body);
    let list = send(&mut ada, &page, &path, &[("change", "admit")]).await;
    assert!(done(&list).starts_with("The machine is admitted."));
    let who = format!("decided by <bdi>{ADA}</bdi>");
    assert!(list.body.contains(&who), "{}", list.body);
    let device = read(&desk, &machine).await.unwrap();
    assert_eq!(device.status, DeviceStatus::Active);
    // Sent once more, it changes nothing and says the same.
    let page = ada.get(&path).await;
    assert!(!page.body.contains("value=\"admit\""));
    let step = ada.get(&format!("{path}?confirm=revoke")).await;
    let list = send(&mut ada, &step, &path, &[("change", "revoke")]).await;
    assert!(done(&list).contains("revoked"));
    let page = ada.get(&path).await;
    let list = send(&mut ada, &page, &path, &[("change", "forget")]).await;
    assert!(done(&list).contains("forgotten"));
    assert_eq!(read(&desk, &machine).await, None);
    assert_eq!(ada.get(&path).await.status, 404);
    // The log has what /admin writes, and no client.
    let entries = desk.entries(&desk.acme).await;
    let steps: BTreeSet<_> = entries
        .iter()
        .filter(|entry| entry.action.starts_with("device."))
        .map(|entry| (entry.action.as_str(), entry.client.is_none()))
        .collect();
    let wanted = ["device.admit", "device.forget", "device.revoke"];
    assert_eq!(steps, wanted.map(|action| (action, true)).into());
}

#[tokio::test]
async fn a_decision_that_came_too_late_is_refused_and_says_why() {
    let desk = desk().await;
    let machine = desk.world.device("acme", 7, DeviceStatus::Pending).await;
    let path = page_of(&machine);
    let (mut ada, page) = at(&desk, ADA, &path).await;
    let csrf = page.hidden(&path, "csrf");
    desk.world
        .set_status("acme", &machine, DeviceStatus::Revoked)
        .await;
    let fields = [("csrf", csrf.as_str()), ("change", "admit")];
    let answer = ada.post(&path, &fields).await;
    let page = ada.get(answer.header("location")).await;
    assert!(refused(&page).contains("decided about this machine"));
    desk.world.clock.advance(1);
    // Nothing is paid: a machine is denied, and not admitted.
    desk.world
        .set_status("acme", &machine, DeviceStatus::Pending)
        .await;
    desk.world
        .change("acme", |home| home.subscription = Subscription::Lapsed)
        .await;
    let answer = ada.post(&path, &fields).await;
    let page = ada.get(answer.header("location")).await;
    assert!(refused(&page).contains("lapsed"));
    assert!(!page.body.contains("value=\"admit\""), "{}", page.body);
    let device = read(&desk, &machine).await.unwrap();
    assert_eq!(device.status, DeviceStatus::Pending);
    // The log has the refusals under the action and the machine, as if a program had asked.
    let entries = desk.entries(&desk.acme).await;
    let refused: Vec<_> = entries
        .iter()
        .filter(|entry| entry.action == "device.admit" && entry.outcome != "done")
        .map(|entry| (entry.target.as_deref(), entry.outcome.as_str()))
        .collect();
    let id = Some(device.device_id.as_str());
    assert_eq!(refused, [(id, "device_state"), (id, "subscription_lapsed")]);
    // A decision that the page does not offer.
    let fields = [("csrf", csrf.as_str()), ("change", "promote")];
    assert_eq!(ada.post(&path, &fields).await.status, 400);
}

#[tokio::test]
async fn all_waiting_machines_are_denied_after_a_confirmation() {
    let desk = desk().await;
    let mut waiting = Vec::new();
    for n in 7..10 {
        waiting.push(desk.world.device("acme", n, DeviceStatus::Pending).await);
    }
    let admitted = desk.world.device("acme", 11, DeviceStatus::Active).await;
    let (mut ada, list) = at(&desk, ADA, LIST).await;
    assert!(list.body.contains("3 machines are waiting"));
    let step = ada.get(&format!("{LIST}?confirm=deny-pending")).await;
    assert_eq!(step.heading(), "Deny all waiting machines?");
    let shown = step.hidden(LIST, "machines");
    // Another machine asks for access before the form is sent: it is not denied unseen, and does not
    // keep the person from denying the others.
    let late = desk.world.device("acme", 12, DeviceStatus::Pending).await;
    let list = send(&mut ada, &step, LIST, &[("machines", &shown)]).await;
    let said = "The machines are denied. They cannot read anything from this vault.";
    assert_eq!(done(&list), said);
    for machine in &waiting {
        let device = read(&desk, machine).await.unwrap();
        assert_eq!(device.status, DeviceStatus::Revoked);
    }
    let device = read(&desk, &late).await.unwrap();
    assert_eq!(device.status, DeviceStatus::Pending);
    let list = send(&mut ada, &step, LIST, &[("machines", &shown)]).await;
    assert!(refused(&list).starts_with("Nothing was changed: none of these machines waits"));
    let step = ada.get(&format!("{LIST}?confirm=deny-pending")).await;
    let shown = step.hidden(LIST, "machines");
    assert_eq!(shown, device_id(&slug(), &late.public()));
    send(&mut ada, &step, LIST, &[("machines", &shown)]).await;
    let device = read(&desk, &late).await.unwrap();
    assert_eq!(device.status, DeviceStatus::Revoked);
    let device = read(&desk, &admitted).await.unwrap();
    assert_eq!(device.status, DeviceStatus::Active);
    // Where none waits there is nothing to confirm.
    let step = ada.get(&format!("{LIST}?confirm=deny-pending")).await;
    assert_eq!(step.heading(), "Machines");
}

#[tokio::test]
async fn waiting_machines_are_grouped_and_denied_by_network() {
    let desk = desk().await;
    for (n, network) in [
        (7, "192.0.2.0/24"),
        (8, "2001:db8:1::/48"),
        (9, "192.0.2.0/24"),
    ] {
        let device = desk.world.device("acme", n, DeviceStatus::Pending).await;
        let device = Device {
            network: Some(network.to_owned()),
            ..read(&desk, &device).await.unwrap()
        };
        let write = device.to_write(&slug(), When::Any).unwrap();
        common::commit(&desk.world.app, vec![write]).await;
    }
    let (mut ada, list) = at(&desk, ADA, LIST).await;
    assert!(
        list.body.contains("Waiting machines by network"),
        "{}",
        list.body
    );
    let address = format!("{LIST}?confirm=deny-pending&network=192.0.2.0%2F24");
    assert!(
        list.body.contains(&address.replace('&', "&#38;")),
        "{}",
        list.body
    );
    let step = ada.get(&address).await;
    assert_eq!(
        step.heading(),
        "Deny the waiting machines from 192.0.2.0/24?"
    );
    let shown = step.hidden(LIST, "machines");
    assert_eq!(shown.split(' ').count(), 2);
    send(&mut ada, &step, LIST, &[("machines", &shown)]).await;
    let list = ada.get(&format!("{LIST}?status=pending")).await;
    assert!(list.body.contains("from 2001:db8:1::/48"), "{}", list.body);
    assert!(!list.body.contains("from 192.0.2.0/24"), "{}", list.body);
    assert!(
        !list.body.contains("Waiting machines by network"),
        "one network is no list"
    );
    let gone = ada.get(&address).await;
    assert_eq!(gone.heading(), "Machines");
}

#[tokio::test]
async fn enrolment_codes_are_made_shown_once_used_and_ended() {
    let desk = desk().await;
    let path = "/console/acme/machines/codes";
    let (mut ada, page) = at(&desk, ADA, path).await;
    let csrf = page.hidden(path, "csrf");
    let create = [
        ("csrf", csrf.as_str()),
        ("change", "create"),
        ("uses", "2"),
        ("life", "3600"),
        ("name", "ci-*"),
    ];
    let made = ada.post(path, &create).await;
    assert_eq!(made.status, 200, "{}", made.body);
    let code = made.body.split(" --code ").nth(1).unwrap();
    let code = code.split('<').next().unwrap();
    assert!(code.starts_with("vec_"), "{code}");
    // Showing the page anew sends the form again, which makes no second code.
    let again = ada.post(path, &create).await;
    let page = ada.get(again.header("location")).await;
    assert!(refused(&page).contains("this form has already made a code"));
    assert_eq!(page.body.matches("name=\"code\"").count(), 1);
    let csrf = page.hidden(path, "csrf");
    let page = ada.get(path).await;
    assert!(!page.body.contains(code), "shown once");
    assert!(page.body.contains("0 of 2") && page.body.contains("ci-*"));
    // A machine that has it is admitted, and the list says by what.
    let machine = key(21);
    let body = serde_json::json!({
        "public_key": machine.public(), "hostname": "ci-1", "code": code,
    });
    let answer = desk
        .world
        .post_devices(&machine, "acme", &body.to_string())
        .await;
    assert_eq!(answer.status, 201);
    let list = ada.get(LIST).await;
    assert!(
        list.body.contains("the enrolment code enc_"),
        "{}",
        list.body
    );
    // Out of bounds.
    for (uses, life, name) in [
        ("0", "3600", ""),
        ("x", "3600", ""),
        ("10001", "3600", ""),
        ("1", "1", ""),
        ("1", "99999999", ""),
        ("1", "3600", "a\u{202e}b"),
    ] {
        let fields = [
            ("csrf", csrf.as_str()),
            ("change", "create"),
            ("uses", uses),
            ("life", life),
            ("name", name),
        ];
        let answer = ada.post(path, &fields).await;
        assert_eq!(answer.status, 303, "{uses} {life} {name}");
        let page = ada.get(answer.header("location")).await;
        assert!(refused(&page).starts_with("Nothing was changed:"));
    }
    let page = ada.get(path).await;
    let id = page.body.split("name=\"code\" value=\"").nth(1).unwrap();
    let id = id.split('"').next().unwrap().to_owned();
    let end = [("change", "end"), ("code", id.as_str())];
    let page = send(&mut ada, &page, path, &end).await;
    assert!(done(&page).contains("no longer works"));
    assert!(page.body.contains("There is no enrolment code."));
    let page = send(&mut ada, &page, path, &end).await;
    assert_eq!(refused(&page), "This code has already ended.");
    let page = send(&mut ada, &page, path, &[("change", "require")]).await;
    assert!(done(&page).contains("needs an enrolment code"));
    let home = desk.world.read_namespace("acme").await;
    assert_eq!(home.enrolment, Enrolment::Codes);
    let page = send(&mut ada, &page, path, &[("change", "open")]).await;
    assert!(done(&page).contains("any machine may ask"));
}

#[tokio::test]
async fn names_of_machines_are_text_and_nothing_else() {
    let desk = desk().await;
    let long = "W".repeat(64);
    let hostile = [
        "<script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "&lt;b&gt; ' \" </bdi></th>",
        "👩 лаптоп",
        "{{ csrf }}",
        "חשבון",
        long.as_str(),
    ];
    for (n, name) in (30..).zip(hostile) {
        let machine = key(n);
        let answer = desk.world.enrol(&machine, "acme", name).await;
        assert_eq!(answer.status, 201, "{name}");
    }
    let (mut ada, list) = at(&desk, ADA, LIST).await;
    for (n, name) in (30..).zip(hostile) {
        let page = ada.get(&page_of(&key(n))).await;
        for page in [&list, &page] {
            for tag in ["<script", "<img", "<b>"] {
                assert!(!page.body.contains(tag), "{name}: {tag}");
            }
        }
        assert!(page.heading().starts_with("<bdi>"), "{}", page.body);
    }
    // What was searched for is text, too.
    let search = "search=%22%3E%3Cscript%3Ealert(1)%3C/script%3E";
    let page = ada.get(&format!("{LIST}?{search}")).await;
    assert!(!page.body.contains("<script"), "{}", page.body);
    assert!(page.body.contains("No machine matches the search."));
}

#[tokio::test]
async fn a_thousand_machines_are_listed_in_pages_of_fifty() {
    let desk = desk().await;
    let (app, home) = (&desk.world.app, &desk.acme);
    let now = desk.world.now();
    for some in (0..1000_u32).collect::<Vec<_>>().chunks(40) {
        let mut writes = Vec::new();
        for n in some {
            let mut seed = [9; 32];
            seed[..4].copy_from_slice(&n.to_be_bytes());
            let key = SecretKey::from_seed(seed).public();
            let name = format!("{n:04}-{}", "W".repeat(59));
            let mut device = Device::new(&home.slug, home.id, key, name, now);
            device.status = DeviceStatus::Active;
            let release = Some(if n % 10 == 0 { 41 } else { 42 });
            let seen = LastSeen::after_visit(None, home.id, release, now).unwrap();
            writes.push(device.to_write(&home.slug, When::Absent).unwrap());
            writes.push(seen.to_write(&home.slug, &key.to_string(), now).unwrap());
        }
        common::commit(app, writes).await;
    }
    let (mut ada, page) = at(&desk, ADA, LIST).await;
    let mut all = names(&page);
    assert_eq!(all.len(), 50);
    assert!(page.body.len() < MAX_PAGE_BYTES, "{}", page.body.len());
    assert!(page.body.contains("1–50 of 1000 machines"));
    for number in 2..=20 {
        let page = ada.get(&format!("{LIST}?page={number}")).await;
        all.extend(names(&page));
    }
    assert_eq!(all.len(), 1000);
    assert!(all.is_sorted(), "by name");
    let behind = ada.get(&format!("{LIST}?status=behind")).await;
    assert!(behind.body.contains("1–50 of 100 machines"));
    assert!(behind.body.contains("release 41"));
    // The second page keeps the filter.
    assert!(
        behind.body.contains("status=behind&#38;page=2"),
        "{}",
        behind.body
    );
    let found = ada.get(&format!("{LIST}?search=0123-w")).await;
    assert_eq!(names(&found).len(), 1);
    let overview = ada.get("/console/acme").await;
    assert!(overview.body.contains("1000 admitted"), "{}", overview.body);
    assert!(overview.body.contains("100 without the current release"));
}
