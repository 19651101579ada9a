//! Enrolment with a code of the owner.

use serde_json::{Value, json};
use vault_format::keys::SecretKey;
use vault_service::config::Limits;
use vault_service::model::namespace::{Kind, Namespace, Status, Subscription};

use crate::admin::{Desk, desk, desk_of};
use crate::support::{Answer, World, key};

const CODES: &str = "/admin/vaults/acme/enrolment-codes";

async fn invite(desk: &Desk, asked: &Value) -> Value {
    let made = desk.post(CODES, asked).await;
    assert_eq!(made.status, 201, "{asked}");
    made.json()
}

async fn enrol(world: &World, key: &SecretKey, name: &str, code: &Value) -> Answer {
    let body = json!({ "public_key": key.public(), "hostname": name, "code": code });
    world.post_devices(key, "acme", &body.to_string()).await
}

/// Short answer and status of the machine.
async fn enrolled(world: &World, key: &SecretKey, name: &str, code: &Value) -> (String, Value) {
    let answer = enrol(world, key, name, code).await;
    (answer.short(), answer.json()["status"].clone())
}

fn active(status: u16) -> (String, Value) {
    (status.to_string(), json!("active"))
}

fn invalid() -> (String, Value) {
    ("403 enrolment_code_invalid".to_owned(), json!(403))
}

/// Another key than those of [`key`].
fn laptop(n: u16) -> SecretKey {
    let mut seed = [7; 32];
    seed[..2].copy_from_slice(&n.to_be_bytes());
    SecretKey::from_seed(seed)
}

#[tokio::test]
async fn two_hundred_laptops_of_one_office_enrol_with_one_code() {
    let desk = desk_of(Kind::Hosted, |config| config.limits = Limits::default()).await;
    let made = invite(&desk, &json!({ "uses": 200 })).await;
    for n in 0..200 {
        let found = enrolled(&desk.world, &laptop(n), "laptop", &made["code"]).await;
        assert_eq!(found, active(201), "{n}");
    }
    let one_more = enrolled(&desk.world, &laptop(200), "laptop", &made["code"]).await;
    assert_eq!(one_more, invalid());
    let shown = desk.get("/admin/vaults/acme").await;
    assert_eq!(shown.json()["counts"]["devices_pending"], 0);
    let listed = desk.get(CODES).await;
    assert_eq!(listed.json()["items"][0]["used"], 200);
    assert_eq!(listed.json()["items"][0]["code"], Value::Null, "shown once");
    let entries = desk.entries(&desk.acme).await;
    let entries = entries
        .iter()
        .filter(|entry| entry.action == "device.enrol");
    let by: Vec<_> = entries
        .map(|entry| entry.after.as_ref().unwrap()["code"].clone())
        .collect();
    assert_eq!(by, vec![made["id"].clone(); 200]);
}

/// `names` for `name` would make a code that admits any machine.
#[tokio::test]
async fn a_misspelt_member_makes_no_code_and_no_vault() {
    let desk = desk().await;
    let operator = desk.operator().await;
    let namespace = json!({ "slug": "new", "owner": "new@example.org", "quota": 1 });
    let setting = json!({ "enrolment": "codes", "code": true });
    for (token, method, path, body) in [
        (&desk.owner, "POST", CODES, json!({ "names": "ci-*" })),
        (&desk.owner, "PUT", "/admin/vaults/acme/enrolment", setting),
        (&operator, "POST", "/admin/operator/namespaces", namespace),
    ] {
        let refused = desk.ask(token, method, path, Some(&body)).await;
        assert_eq!(refused.short(), "400 json_invalid", "{path}");
    }
    assert_eq!(desk.get(CODES).await.json()["items"], json!([]));
    let shown = desk.get("/admin/vaults/acme").await.json();
    assert_eq!(shown["enrolment"], "open");
}

#[tokio::test]
async fn of_many_at_once_as_many_are_admitted_as_a_code_has_uses() {
    let desk = desk().await;
    let made = invite(&desk, &json!({ "uses": 3 })).await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 1..=8 {
        let body = json!({ "public_key": key(n).public(), "hostname": "ci", "code": made["code"] });
        let mut request = desk.world.signed(&key(n), "POST", "/v/acme/devices");
        let media = "application/json".parse().unwrap();
        request.headers_mut().insert("content-type", media);
        *request.body_mut() = body.to_string().into();
        let router = desk.world.router.clone();
        tasks.spawn(async move {
            let answer = tower::ServiceExt::oneshot(router, request).await.unwrap();
            answer.status().as_u16()
        });
    }
    let mut statuses = tasks.join_all().await;
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![201; 3], vec![403; 5]].concat());
}

#[tokio::test]
async fn a_code_that_is_wrong_over_ended_or_for_others_enrols_nobody() {
    let desk = desk().await;
    let world = &desk.world;
    let made = invite(
        &desk,
        &json!({ "uses": 5, "name": "ci-*", "expires_in": 60 }),
    )
    .await;
    let other = desk.world.namespace("another", Kind::Hosted).await;
    for (name, code) in [
        ("ci-1", json!("")),
        ("ci-1", json!("vec_x")),
        ("ci-1", json!(format!("vec_{}", "A".repeat(22)))),
        ("laptop", made["code"].clone()),
    ] {
        assert_eq!(
            enrolled(world, &key(1), name, &code).await,
            invalid(),
            "{name} {code}"
        );
    }
    let body = json!({ "public_key": key(1).public(), "hostname": "ci-1", "code": made["code"] });
    let elsewhere = world
        .post_devices(&key(1), other.slug.as_str(), &body.to_string())
        .await;
    assert_eq!(
        elsewhere.short(),
        "403 enrolment_code_invalid",
        "another vault"
    );
    let unknown = world.ask(&key(1), "GET", "/v/acme/devices/current").await;
    assert_eq!(
        unknown.short(),
        "401 device_unknown",
        "nothing was enrolled"
    );
    assert_eq!(
        enrolled(world, &key(1), "ci-1", &made["code"]).await,
        active(201)
    );
    world.clock.advance(60);
    assert_eq!(
        enrolled(world, &key(2), "ci-2", &made["code"]).await,
        invalid(),
        "over"
    );
    let made = invite(&desk, &json!({ "uses": 5 })).await;
    let path = format!("{CODES}/{}", made["id"].as_str().unwrap());
    let ended = desk.ask(&desk.owner, "DELETE", &path, None).await;
    assert_eq!(ended.short(), "200");
    assert_eq!(
        enrolled(world, &key(2), "ci-2", &made["code"]).await,
        invalid(),
        "ended"
    );
    let again = desk.ask(&desk.owner, "DELETE", &path, None).await;
    assert_eq!(again.short(), "404 not_found");
}

#[tokio::test]
async fn an_enrolled_key_keeps_its_state_whatever_code_it_sends() {
    let desk = desk().await;
    let world = &desk.world;
    let made = invite(&desk, &json!({ "uses": 1 })).await;
    let waiting = world.enrol(&key(1), "acme", "laptop").await;
    assert_eq!(waiting.status, 201);
    let wrong = json!(format!("vec_{}", "A".repeat(22)));
    let decide = async |verdict: &str| {
        let device = waiting.json()["device_id"].clone();
        let path = format!("/admin/vaults/acme/devices/{}", device.as_str().unwrap());
        let decided = desk.post(&format!("{path}/{verdict}"), &json!({})).await;
        assert_eq!(decided.short(), "200");
    };
    for status in ["pending", "active", "revoked"] {
        match status {
            "active" => decide("admit").await,
            "revoked" => decide("revoke").await,
            _ => {}
        }
        for code in [&wrong, &made["code"], &json!("")] {
            let answer = enrol(world, &key(1), "laptop", code).await;
            assert_eq!(answer.short(), "200", "{status} {code}");
            assert_eq!(answer.json()["status"], status, "{code}");
            assert_eq!(answer.json()["device_id"], waiting.json()["device_id"]);
        }
        let shown = desk.get("/admin/vaults/acme").await;
        let pending = u8::from(status == "pending");
        assert_eq!(shown.json()["counts"]["devices_pending"], pending);
    }
    // None of them used the code up, so it admits a key that is new.
    assert_eq!(
        enrolled(world, &key(2), "laptop", &made["code"]).await,
        active(201)
    );
}

#[tokio::test]
async fn where_codes_are_needed_nobody_waits() {
    let desk = desk().await;
    let world = &desk.world;
    let mode = |mode: &'static str| {
        let body = json!({ "enrolment": mode });
        let desk = &desk;
        async move {
            let path = "/admin/vaults/acme/enrolment";
            desk.ask(&desk.owner, "PUT", path, Some(&body))
                .await
                .short()
        }
    };
    assert_eq!(world.enrol(&key(1), "acme", "laptop").await.status, 201);
    assert_eq!(mode("codes").await, "200");
    let shown = desk.get("/admin/vaults/acme").await;
    assert_eq!(shown.json()["enrolment"], "codes");
    let refused = world.enrol(&key(2), "acme", "laptop").await;
    assert_eq!(refused.short(), "403 enrolment_needs_code");
    assert_eq!(
        world.enrol(&key(1), "acme", "laptop").await.status,
        200,
        "it waits already"
    );
    let made = invite(&desk, &json!({})).await;
    assert_eq!(
        enrolled(world, &key(2), "laptop", &made["code"]).await,
        active(201)
    );
    assert_eq!(mode("open").await, "200");
    assert_eq!(world.enrol(&key(3), "acme", "laptop").await.status, 201);
    assert_eq!(mode("closed").await, "400 json_invalid");
    let actions: Vec<_> = desk.outcomes().await;
    assert_eq!(
        actions
            .iter()
            .filter(|action| action.contains("enrolment.set"))
            .count(),
        2 + 1
    );
}

#[tokio::test]
async fn a_suspended_vault_is_unknown_to_strangers_and_a_lapsed_one_admits_nobody() {
    let desk = desk().await;
    let world = &desk.world;
    let made = invite(&desk, &json!({ "uses": 2 })).await;
    assert_eq!(world.enrol(&key(1), "acme", "laptop").await.status, 201);
    world
        .change("acme", |namespace| {
            namespace.subscription = Subscription::Lapsed;
        })
        .await;
    let lapsed = enrol(world, &key(2), "laptop", &made["code"]).await;
    assert_eq!(lapsed.short(), "402 subscription_lapsed");
    world
        .change("acme", |namespace| namespace.status = Status::Suspended)
        .await;
    let stranger = world.enrol(&key(3), "acme", "laptop").await;
    let unknown = world.enrol(&key(3), "nobody", "laptop").await;
    assert_eq!(stranger.blotted(), unknown.blotted());
    let with_code = enrol(world, &key(3), "laptop", &made["code"]).await;
    assert_eq!(with_code.blotted(), unknown.blotted());
    let known = world.enrol(&key(1), "acme", "laptop").await;
    assert_eq!(known.short(), "403 vault_suspended");
}

#[tokio::test]
async fn a_code_admits_no_machine_beyond_the_quota_and_is_not_used() {
    let desk = desk().await;
    let limit =
        |machines| move |namespace: &mut Namespace| namespace.quota.machines = Some(machines);
    desk.world.change("acme", limit(1)).await;
    let made = invite(&desk, &json!({ "uses": 5 })).await;
    let code = &made["code"];
    assert_eq!(
        enrolled(&desk.world, &laptop(1), "one", code).await,
        active(201)
    );
    let full = enrol(&desk.world, &laptop(2), "two", code).await;
    assert_eq!(full.short(), "409 quota_full");
    // Whoever has a code learns no numbers.
    assert_eq!(full.json()["quota"], Value::Null);
    // The machine is not enrolled, the code was not used for it, and a wrong code still is one.
    let shown = desk.get("/admin/vaults/acme").await.json();
    assert_eq!(shown["counts"]["devices_pending"], 0);
    assert_eq!(desk.get(CODES).await.json()["items"][0]["used"], 1);
    let wrong = json!("venrol_wrong");
    assert_eq!(
        enrolled(&desk.world, &laptop(3), "three", &wrong).await,
        invalid()
    );
    desk.world.change("acme", limit(2)).await;
    assert_eq!(
        enrolled(&desk.world, &laptop(2), "two", code).await,
        active(201)
    );
}

#[tokio::test]
async fn a_code_that_is_used_up_is_invalid_in_a_full_vault_too() {
    let desk = desk().await;
    let limit = |namespace: &mut Namespace| namespace.quota.machines = Some(1);
    desk.world.change("acme", limit).await;
    let once = invite(&desk, &json!({ "uses": 1 })).await;
    let twice = invite(&desk, &json!({ "uses": 2 })).await;
    let first = enrolled(&desk.world, &laptop(1), "one", &once["code"]).await;
    assert_eq!(first, active(201));
    let used_up = enrolled(&desk.world, &laptop(2), "two", &once["code"]).await;
    assert_eq!(used_up, invalid());
    for _ in 0..3 {
        let full = enrol(&desk.world, &laptop(2), "two", &twice["code"]).await;
        assert_eq!(full.short(), "409 quota_full");
    }
    assert_eq!(
        desk.get(CODES).await.json()["items"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let used = desk.get(CODES).await.json();
    let mut used: Vec<_> = used["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|code| code["used"].as_u64())
        .collect();
    used.sort_unstable();
    assert_eq!(used, [Some(0), Some(1)]);
}
