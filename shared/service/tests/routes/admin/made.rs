//! What an app made, and what of it ends with `DELETE /admin/clients/{id}`.

use serde_json::{Value, json};
use vault_format::hash::Digest;
use vault_service::model::client::{Connection, connection_key};
use vault_service::model::device::{Device, DeviceStatus};
use vault_service::model::enrolment::{EnrolmentCode, code_key, codes_partition};
use vault_service::model::kept;
use vault_service::model::user::{Role, Scopes};
use vault_store::records::{Document, Record, When, Write};

use super::{ADA, BOB, CY, Desk, desk, reference, token};
use crate::common::{self, PASSWORD, Tokens};
use crate::support::{Answer, key};

/// An app of a second owner, and the ids of what it made.
struct Maker {
    app: Tokens,
    code: Value,
    by_code: String,
    approved: String,
    invitation: String,
    webhook: String,
}

async fn maker(desk: &Desk) -> Maker {
    let home = reference(&desk.acme);
    common::member(&desk.world.app, BOB, &home, Role::Owner, Scopes::ALL).await;
    let app = common::tokens(&desk.world.app, (BOB, PASSWORD), "acme", Scopes::ALL).await;
    let post = async |path: &str, body: Value| {
        let answer = desk.ask(&app.access, "POST", path, Some(&body)).await;
        assert!(answer.status.is_success(), "{path}: {}", answer.short());
        answer.json()
    };
    let of = |path: &str| format!("/admin/vaults/acme{path}");
    let code = post(&of("/enrolment-codes"), json!({ "uses": 5 })).await;
    let body = json!({ "public_key": key(1).public(), "hostname": "ci", "code": code["code"] });
    let enrolled = desk
        .world
        .post_devices(&key(1), "acme", &body.to_string())
        .await;
    let by_code = id_in(&enrolled.json(), "device_id");
    let waiting = desk.world.enrol(&key(2), "acme", "laptop").await.json();
    let approved = id_in(&waiting, "device_id");
    post(&of(&format!("/devices/{approved}/admit")), json!({})).await;
    let invited = post("/admin/users", json!({ "email": "guest@example.org" })).await;
    let hook = json!({ "address": "https://hooks.example/vault" });
    let webhook = id_in(&post(&of("/notices"), hook).await, "id");
    // What another app made is not its own.
    let other = json!({ "email": "other@example.org" });
    desk.post("/admin/users", &other).await;
    let third = desk.world.enrol(&key(3), "acme", "desktop").await.json();
    let third = id_in(&third, "device_id");
    desk.post(&of(&format!("/devices/{third}/admit")), &json!({}))
        .await;
    Maker {
        code,
        by_code,
        approved,
        invitation: id_in(&invited, "id"),
        webhook,
        app,
    }
}

fn id_in(answer: &Value, member: &str) -> String {
    answer[member].as_str().unwrap().to_owned()
}

impl Maker {
    /// The short answer to a machine that enrols with the code.
    async fn enrol(&self, desk: &Desk, n: u8) -> String {
        let code = &self.code["code"];
        let body = json!({ "public_key": key(n).public(), "hostname": "ci", "code": code });
        let world = &desk.world;
        let answer = world.post_devices(&key(n), "acme", &body.to_string()).await;
        answer.short()
    }

    async fn end(&self, desk: &Desk, query: &str) -> Answer {
        let path = format!("/admin/clients/{}{query}", self.app.client);
        desk.ask(&desk.owner, "DELETE", &path, None).await
    }
}

#[tokio::test]
async fn lists_name_the_app_that_made_something() {
    let desk = desk().await;
    let made = maker(&desk).await;
    for (path, member, id) in [
        (
            "/admin/vaults/acme/enrolment-codes",
            "id",
            id_in(&made.code, "id"),
        ),
        (
            "/admin/vaults/acme/devices",
            "device_id",
            made.by_code.clone(),
        ),
        (
            "/admin/vaults/acme/devices",
            "device_id",
            made.approved.clone(),
        ),
        ("/admin/users", "id", made.invitation.clone()),
        ("/admin/vaults/acme/notices", "id", made.webhook.clone()),
    ] {
        let listed = desk.get(path).await.json();
        let items = listed.get("items").unwrap_or(&listed["webhooks"]);
        let items = items.as_array().unwrap();
        let item = items.iter().find(|item| item[member] == *id).unwrap();
        assert_eq!(item["client_id"], made.app.client, "{path}");
        let own = items
            .iter()
            .filter(|item| item["client_id"] == made.app.client);
        let wanted = 1 + usize::from(path.ends_with("/devices"));
        assert_eq!(own.count(), wanted, "{path}");
    }
}

#[tokio::test]
async fn the_end_of_an_app_tells_what_of_it_ended_and_what_goes_on() {
    let desk = desk().await;
    let made = maker(&desk).await;
    let mut machines = vec![made.by_code.clone(), made.approved.clone()];
    machines.sort();
    let ended = made.end(&desk, "").await.json();
    assert_eq!(ended["ended"], json!({ "codes": [made.code["id"]] }));
    let mut left = ended["left"].clone();
    let listed = left["machines"].as_array_mut().unwrap();
    listed.sort_by_key(ToString::to_string);
    let wanted = json!({
        "machines": machines, "invitations": [made.invitation], "webhooks": [made.webhook],
    });
    assert_eq!(left, wanted);
    // The app has no access any more, and what it made still ends by the same route.
    assert_eq!(made.end(&desk, "").await.short(), "404 client_not_found");
    let query = "?end=machines,invitations,webhooks";
    let ended = made.end(&desk, query).await;
    assert_eq!(ended.status, 200);
    let ended = ended.json();
    assert_eq!(ended.get("left"), None, "{ended}");
    assert_eq!(ended["ended"]["machines"].as_array().unwrap().len(), 2);
    for (path, status) in [
        (
            format!("/admin/vaults/acme/devices/{}/admit", made.approved),
            "409 device_state",
        ),
        (
            format!("/admin/vaults/acme/notices/{}/test", made.webhook),
            "404 not_found",
        ),
    ] {
        assert_eq!(desk.post(&path, &json!({})).await.short(), status, "{path}");
    }
    let users = desk.get("/admin/users").await.json().to_string();
    assert!(!users.contains("guest@example.org") && users.contains("other@example.org"));
    for (entry, count) in [
        ("client.revoke done", 1),
        ("device.revoke done", 2),
        ("user.remove done", 1),
        ("notice.remove done", 1),
    ] {
        assert_eq!(desk.count(entry).await, count, "{entry}");
    }
    // Again: nothing is left, and nothing fails.
    let again = made.end(&desk, query).await;
    assert_eq!(
        (again.status.as_u16(), again.json().get("ended")),
        (200, None)
    );
}

#[tokio::test]
async fn an_app_and_what_it_made_end_in_one_commit() {
    let desk = desk().await;
    let made = maker(&desk).await;
    desk.commits.clear();
    let ended = made.end(&desk, "?end=machines,webhooks").await;
    assert_eq!(
        ended.json()["left"]["invitations"],
        json!([made.invitation])
    );
    let commits = desk.commits.partitions();
    assert_eq!(commits, [["audit", "conn", "dev", "notices", "ns"]]);
}

/// A code that is kept depends on the app that keeps it: it can never outlive all of them.
#[tokio::test]
async fn a_kept_code_goes_on_with_the_app_that_keeps_it() {
    let desk = desk().await;
    let made = maker(&desk).await;
    let ended = made.end(&desk, "?keep=codes").await.json();
    assert_eq!(ended["left"]["codes"], json!([made.code["id"]]), "{ended}");
    assert_eq!(made.enrol(&desk, 7).await, "201");
    assert_eq!(desk.count("enrolment.keep done").await, 1);
    let clients = desk.get("/admin/clients").await.json();
    let own = clients["items"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/admin/clients/{own}");
    assert_eq!(
        desk.ask(&desk.owner, "DELETE", &path, None).await.status,
        200
    );
    assert_eq!(made.enrol(&desk, 8).await, "403 enrolment_code_invalid");
}

/// A request of an app that is ended before its commit makes nothing.
#[tokio::test]
async fn an_app_that_is_ended_meanwhile_makes_nothing() {
    let desk = desk().await;
    let made = maker(&desk).await;
    let client = made.app.client.parse().unwrap();
    let waiting = desk.world.enrol(&key(9), "acme", "late").await.json();
    let admit = format!(
        "/admin/vaults/acme/devices/{}/admit",
        id_in(&waiting, "device_id")
    );
    for (path, body) in [
        (
            "/admin/vaults/acme/notices",
            json!({ "address": "https://late.example/" }),
        ),
        ("/admin/users", json!({ "email": "late@example.org" })),
        (admit.as_str(), json!({})),
    ] {
        let key = connection_key(&desk.acme.id, &client);
        let held: Connection = common::read(&desk.world.app, &key).await;
        let ended = Connection {
            revoked_at: Some(desk.world.now()),
            ..held.clone()
        };
        let document = Document::from_value(&ended).unwrap();
        let end = Write::put(key.clone(), document, When::Any);
        desk.commits.write_before_next(vec![end]);
        let answer = desk.ask(&made.app.access, "POST", path, Some(&body)).await;
        assert_eq!(answer.short(), "401 token_invalid", "{path}");
        common::put(&desk.world.app, key, &held).await;
    }
}

/// A machine that comes in while its app is ended is not among what ended, and is told as left.
#[tokio::test]
async fn a_machine_that_came_in_meanwhile_is_left() {
    let desk = desk().await;
    let made = maker(&desk).await;
    let (home, machine) = (&desk.acme, key(9).public());
    let mut device = Device::new(
        &home.slug,
        home.id,
        machine,
        "late".into(),
        desk.world.now(),
    );
    device.status = DeviceStatus::Active;
    device.client = Some(made.app.client.parse().unwrap());
    let enrolled = device.to_write(&home.slug, When::Absent).unwrap();
    desk.commits.write_before_next(vec![enrolled]);
    let ended = made.end(&desk, "?end=machines").await.json();
    assert_eq!(ended["ended"]["machines"].as_array().unwrap().len(), 2);
    assert_eq!(
        ended["left"]["machines"],
        json!([device.device_id]),
        "{ended}"
    );
    let again = made.end(&desk, "?end=machines").await.json();
    assert_eq!(
        again["ended"]["machines"],
        json!([device.device_id]),
        "{again}"
    );
}

/// A code that was kept depends on the app that made it no more, so its next end deletes it.
#[tokio::test]
async fn a_kept_code_ends_when_its_app_is_ended_again() {
    let desk = desk().await;
    let (made, app) = (maker(&desk).await, &desk.world.app);
    made.end(&desk, "?keep=codes").await;
    desk.world.clock.advance(1);
    let client = &made.app.client;
    let fixed = [("scope", "read write"), ("vault_namespace", "acme")];
    let address = common::authorize(client, common::CALLBACK, &fixed);
    let back = common::Visitor::new(app)
        .approve(&address, (BOB, PASSWORD), "acme", Scopes::ALL)
        .await;
    let code = back.returned("code").unwrap();
    assert_eq!(common::exchange(app, client, &code).await.status, 200);
    let ended = made.end(&desk, "").await.json();
    assert_eq!(ended["ended"]["codes"], json!([made.code["id"]]), "{ended}");
    assert_eq!(made.enrol(&desk, 7).await, "403 enrolment_code_invalid");
}

/// A code that was kept goes on while the rest of what the app made ends.
#[tokio::test]
async fn a_kept_code_goes_on_when_the_rest_ends_later() {
    let desk = desk().await;
    let made = maker(&desk).await;
    made.end(&desk, "?keep=codes").await;
    let ended = made.end(&desk, "?end=invitations,webhooks").await.json();
    let wanted = json!({ "invitations": [made.invitation], "webhooks": [made.webhook] });
    assert_eq!(ended["ended"], wanted, "{ended}");
    assert_eq!(ended["left"]["codes"], json!([made.code["id"]]), "{ended}");
    assert_eq!(made.enrol(&desk, 7).await, "201");
    // A code that is named ends.
    let id = id_in(&made.code, "id");
    let path = format!("/admin/vaults/acme/enrolment-codes/{id}");
    assert_eq!(
        desk.ask(&desk.owner, "DELETE", &path, None).await.status,
        200
    );
    assert_eq!(made.enrol(&desk, 8).await, "403 enrolment_code_invalid");
}

/// Codes depend on the app that keeps them, so one that ends itself cannot keep any, and is told.
#[tokio::test]
async fn an_app_keeps_no_code_beyond_its_own_end() {
    let desk = desk().await;
    let made = maker(&desk).await;
    let path = format!("/admin/clients/{}", made.app.client);
    let keeping = format!("{path}?keep=codes");
    let refused = desk.ask(&made.app.access, "DELETE", &keeping, None).await;
    assert_eq!(refused.short(), "422 parameter_invalid");
    assert_eq!(made.enrol(&desk, 6).await, "201");
    let ended = desk.ask(&made.app.access, "DELETE", &path, None).await;
    assert_eq!(ended.status, 200);
    assert_eq!(made.enrol(&desk, 7).await, "403 enrolment_code_invalid");
}

/// One commit has room for 45 codes. None is lost beyond that: the access ends only when all are
/// kept.
#[tokio::test]
async fn an_app_ends_only_when_all_codes_that_go_on_are_kept() {
    for (count, requests) in [(60, 1), (600, 2)] {
        let desk = desk().await;
        let made = maker(&desk).await;
        let app = &desk.world.app;
        let partition = codes_partition(&desk.acme.id);
        let codes = async || {
            let records = kept::all_records(app, &partition).await.unwrap();
            let codes = records.iter().map(Record::read::<EnrolmentCode>);
            codes.collect::<Result<Vec<_>, _>>().unwrap()
        };
        let first = codes().await.remove(0);
        for n in 1..count {
            let hash = Digest::of(format!("{n}").as_bytes());
            common::put(app, code_key(&desk.acme.id, &hash), &first).await;
        }
        let still_depend = async || {
            let codes = codes().await.into_iter();
            let mut consents = codes.filter_map(|code| code.consent);
            consents.any(|consent| consent.client.to_string() == made.app.client)
        };
        for request in 1..=requests {
            let ended = made.end(&desk, "?keep=codes").await;
            if request < requests {
                assert_eq!(ended.short(), "503 unavailable");
                assert!(
                    ended.json()["detail"]
                        .to_string()
                        .contains("still has access")
                );
                let path = "/admin/vaults/acme";
                let works = desk.ask(&made.app.access, "GET", path, None).await;
                assert_eq!(works.status, 200);
            } else {
                assert_eq!(ended.status, 200);
                assert_eq!(ended.json()["ended"].get("codes"), None);
            }
            assert_eq!(still_depend().await, request < requests);
        }
        assert_eq!(codes().await.len(), count);
        let path = "/admin/vaults/acme";
        let dead = desk.ask(&made.app.access, "GET", path, None).await;
        assert_eq!(dead.short(), "401 token_invalid");
        assert_eq!(made.enrol(&desk, 7).await, "201");
    }
}

#[tokio::test]
async fn to_end_or_keep_what_an_app_made_takes_the_right_to_write() {
    let desk = desk().await;
    let made = maker(&desk).await;
    let reader = token(&desk.world, ADA, "acme", Scopes::READ).await;
    let home = reference(&desk.acme);
    common::member(&desk.world.app, CY, &home, Role::Publisher, Scopes::ALL).await;
    let publisher = token(&desk.world, CY, "acme", Scopes::ALL).await;
    for (who, query, wanted) in [
        (&reader, "?end=machines", "403 insufficient_scope"),
        (&reader, "?keep=codes", "403 insufficient_scope"),
        (&publisher, "?end=machines", "403 owner_required"),
        (&desk.owner, "?end=people", "422 parameter_invalid"),
        (&desk.owner, "?keep=machines", "422 parameter_invalid"),
        (&reader, "", "200"),
    ] {
        let path = format!("/admin/clients/{}{query}", made.app.client);
        let answer = desk.ask(who, "DELETE", &path, None).await;
        assert_eq!(answer.short(), wanted, "{query}");
    }
}

/// A membership ends by its own route, since the person confirms it.
#[tokio::test]
async fn a_member_whom_an_app_invited_is_only_named() {
    let desk = desk().await;
    let made = maker(&desk).await;
    common::proven(&desk.world.app, "guest@example.org").await;
    common::answer_invitation(&desk.world.app, "guest@example.org", "acme", "accept").await;
    let ended = made
        .end(&desk, "?end=machines,invitations,webhooks")
        .await
        .json();
    assert_eq!(ended["left"], json!({ "users": [made.invitation] }));
    let users = desk.get("/admin/users").await.json().to_string();
    assert!(users.contains("guest@example.org"));
}

/// More than a commit holds ends by the same request, sent again.
#[tokio::test]
async fn many_machines_end_commit_by_commit() {
    let desk = desk().await;
    let owner = common::tokens(&desk.world.app, (ADA, PASSWORD), "acme", Scopes::ALL).await;
    let body = json!({ "uses": 60 });
    let code = desk.ask(
        &owner.access,
        "POST",
        "/admin/vaults/acme/enrolment-codes",
        Some(&body),
    );
    let code = code.await.json()["code"].clone();
    for n in 0..60 {
        let key = key(n);
        let body = json!({ "public_key": key.public(), "hostname": "ci", "code": code });
        let enrolled = desk
            .world
            .post_devices(&key, "acme", &body.to_string())
            .await;
        assert_eq!(enrolled.status, 201);
    }
    let path = format!("/admin/clients/{}?end=machines", owner.client);
    let mut rounds = Vec::new();
    loop {
        let ended = desk.ask(&desk.owner, "DELETE", &path, None).await.json();
        let ids = |member: &str| ended[member]["machines"].as_array().map_or(0, Vec::len);
        rounds.push((ids("ended"), ids("left")));
        if ids("left") == 0 {
            break;
        }
    }
    assert_eq!(rounds, [(45, 15), (15, 0)]);
}

/// An app may serve several vaults: the end in one of them reaches nothing of another.
#[tokio::test]
async fn what_the_same_app_made_in_another_vault_goes_on() {
    let desk = desk().await;
    let made = maker(&desk).await;
    desk.stranger().await;
    let app = &desk.world.app;
    let address = common::authorize(&made.app.client, common::CALLBACK, &[]);
    let back = common::Visitor::new(app)
        .approve(&address, (super::EVE, PASSWORD), "other", Scopes::ALL)
        .await;
    let code = back.returned("code").unwrap();
    let eves = common::exchange(app, &made.app.client, &code).await;
    let eves = Tokens::of(&made.app.client, &eves).access;
    let codes = "/admin/vaults/other/enrolment-codes";
    let uses = json!({ "uses": 2 });
    let code = desk.ask(&eves, "POST", codes, Some(&uses)).await.json();
    let body = json!({ "public_key": key(7).public(), "code": code["code"] }).to_string();
    let first = desk.world.post_devices(&key(7), "other", &body).await;
    assert_eq!(first.status, 201);
    let ended = made.end(&desk, "?end=machines,invitations,webhooks").await;
    assert_eq!(
        ended.json()["ended"]["machines"].as_array().unwrap().len(),
        2
    );
    let body = json!({ "public_key": key(8).public(), "code": code["code"] }).to_string();
    let second = desk.world.post_devices(&key(8), "other", &body).await;
    assert_eq!(second.status, 201);
    let devices = "/admin/vaults/other/devices";
    let devices = desk.ask(&eves, "GET", devices, None).await.json();
    let active = devices["items"].as_array().unwrap().iter();
    assert_eq!(active.filter(|it| it["status"] == "active").count(), 2);
}
