//! Enrolment codes that an app made: they end with its access, and together admit few machines
//! without a confirmation.

use serde_json::{Value, json};
use vault_format::keys::SecretKey;
use vault_format::root::KeyFingerprint;
use vault_service::model::user::{Role, Scopes};

use crate::account::{about, account_page};
use crate::admin::permits::{NEEDED, decide, open_asked};
use crate::admin::{ADA, BOB, Desk, desk, reference};
use crate::common::{self, PASSWORD, Tokens};
use crate::support::{Answer, key};

const CODES: &str = "/admin/vaults/acme/enrolment-codes";

/// An app of a second owner.
async fn app_of_bob(desk: &Desk) -> Tokens {
    let home = reference(&desk.acme);
    common::member(&desk.world.app, BOB, &home, Role::Owner, Scopes::ALL).await;
    common::tokens(&desk.world.app, (BOB, PASSWORD), "acme", Scopes::ALL).await
}

async fn make_code(desk: &Desk, token: &str, uses: u32) -> Answer {
    let body = json!({ "uses": uses, "expires_in": 3600 });
    desk.ask_once(token, "POST", CODES, Some(&body)).await
}

async fn enrol(desk: &Desk, key: &SecretKey, code: &Value) -> String {
    let body = json!({ "public_key": key.public(), "hostname": "ci", "code": code });
    let answer = desk
        .world
        .post_devices(key, "acme", &body.to_string())
        .await;
    answer.short()
}

/// Whoever ends the app, in whichever way, ends its codes: nothing has to remember them.
#[tokio::test]
async fn a_code_ends_with_the_access_of_its_app_however_that_ends() {
    for (way, works) in [
        ("nothing", true),
        ("the app is used for nothing for a month", true),
        ("owner ends the app", false),
        ("owner ends the app, which is connected again", false),
        ("app ends itself", false),
        ("person ends the app", false),
        ("person ends everything", false),
        ("owner makes the person a member", false),
        ("owner takes the right to write", false),
        ("owner removes the person", false),
        ("owner signs the vault out", false),
        ("operator disables the account", false),
        ("operator signs everybody out", false),
    ] {
        let desk = desk().await;
        let (app, world) = (&desk.world.app, &desk.world);
        let bobs = app_of_bob(&desk).await;
        let user = async |path: &str| find_user(&desk, BOB).await + path;
        let made = json!({ "uses": 5, "expires_in": 60 * 24 * 3600 });
        let made = desk.ask(&bobs.access, "POST", CODES, Some(&made)).await;
        assert_eq!(made.status, 201);
        let code = made.json()["code"].clone();
        assert_eq!(enrol(&desk, &key(1), &code).await, "201", "{way}");
        let listed = async || {
            desk.get(CODES).await.json()["items"]
                .as_array()
                .unwrap()
                .len()
        };
        assert_eq!(listed().await, 1, "{way}");
        let client = format!("/admin/clients/{}", bobs.client);
        match way {
            "the app is used for nothing for a month" => world.clock.advance(31 * 24 * 3600),
            "owner ends the app" | "owner ends the app, which is connected again" => {
                let ended = desk.ask(&desk.owner, "DELETE", &client, None).await;
                assert_eq!(ended.json()["ended"]["codes"], json!([made.json()["id"]]));
                if way != "owner ends the app" {
                    // A consent from the second of the end would not count.
                    world.clock.advance(1);
                    let address = common::authorize(&bobs.client, common::CALLBACK, &[]);
                    let mut visitor = common::Visitor::new(app);
                    let who = (BOB, PASSWORD);
                    let back = visitor.approve(&address, who, "acme", Scopes::ALL).await;
                    let code = back.returned("code").unwrap();
                    assert_eq!(common::exchange(app, &bobs.client, &code).await.status, 200);
                }
            }
            "app ends itself" => {
                let fields = [
                    ("token", bobs.refresh.as_str()),
                    ("client_id", &bobs.client),
                ];
                common::post_form(app, "/oauth/revoke", &fields).await;
            }
            "person ends the app" | "person ends everything" => {
                let (mut bob, page) = account_page(&desk, BOB, PASSWORD).await;
                let (path, field) = if way == "person ends the app" {
                    ("/account/apps", page.hidden("/account/apps", "grant"))
                } else {
                    ("/account/sign-out", String::new())
                };
                let csrf = page.hidden(path, "csrf");
                let fields = [("csrf", csrf.as_str()), ("grant", field.as_str())];
                assert_eq!(bob.post(path, &fields).await.status, 303);
            }
            "owner makes the person a member" => {
                let body = json!({ "role": "role:member" });
                let path = user("/role").await;
                desk.ask(&desk.owner, "PUT", &path, Some(&body)).await;
            }
            "owner takes the right to write" => {
                let body = json!({ "revoke": ["write"] });
                desk.post(&user("/scopes").await, &body).await;
            }
            "owner removes the person" => {
                desk.ask(&desk.owner, "DELETE", &user("").await, None).await;
            }
            "owner signs the vault out" => {
                let body = json!({ "slug": "acme" });
                desk.post("/admin/vaults/acme/sign-out", &body).await;
            }
            "operator disables the account" => {
                let operator = desk.operator().await;
                assert_eq!(about(&desk, &operator, BOB, "disable").await.status, 200);
            }
            "operator signs everybody out" => {
                let body = json!({ "confirm": "everybody" });
                let (operator, path) = (desk.operator().await, "/admin/operator/sign-out");
                desk.ask(&operator, "POST", path, Some(&body)).await;
            }
            _ => {}
        }
        let found = enrol(&desk, &key(2), &code).await;
        let wanted = if works {
            "201"
        } else {
            "403 enrolment_code_invalid"
        };
        assert_eq!(found, wanted, "{way}");
        // An owner's list shows what works; here by an app that nothing of this ended.
        let token = crate::admin::token(world, ADA, "acme", Scopes::ALL).await;
        let listed = desk.ask(&token, "GET", CODES, None).await.json();
        let listed = listed["items"].as_array().unwrap().len();
        assert_eq!(listed, usize::from(works), "{way}");
    }
}

/// The path of a user.
async fn find_user(desk: &Desk, email: &str) -> String {
    let users = desk.get("/admin/users").await.json();
    let mut users = users["items"].as_array().unwrap().iter();
    let user = users.find(|user| user["email"] == email).unwrap();
    format!("/admin/users/{}", user["id"].as_str().unwrap())
}

/// The commit of the enrolment sees the end of the app, whenever that happens.
#[tokio::test]
async fn an_app_that_is_ended_during_an_enrolment_admits_nobody() {
    let desk = desk().await;
    let bobs = app_of_bob(&desk).await;
    let code = make_code(&desk, &bobs.access, 1).await.json()["code"].clone();
    let client = bobs.client.parse().unwrap();
    let connection = vault_service::model::client::connection_key(&desk.acme.id, &client);
    let held = desk.world.app.records.get_one(&connection).await;
    let held = held.unwrap().unwrap();
    let connected: vault_service::model::client::Connection = held.read().unwrap();
    let now = desk.world.now();
    let write = connected.ending_write(&desk.acme.id, held.revision, now);
    desk.commits.write_before_next(vec![write.unwrap()]);
    let found = enrol(&desk, &key(1), &code).await;
    assert_eq!(found, "403 enrolment_code_invalid");
}

/// Otherwise an app makes code after code, each for twenty machines, and nobody is asked.
#[tokio::test]
async fn codes_of_an_app_admit_twenty_machines_a_day_without_a_confirmation() {
    let desk = desk().await;
    let bobs = app_of_bob(&desk).await;
    let needed = NEEDED;
    let make = async |uses| make_code(&desk, &bobs.access, uses).await;
    let first = make(15).await.json();
    assert_eq!(make(6).await.short(), needed);
    let second = make(5).await.json();
    assert_eq!(make(1).await.short(), needed, "twenty are open");
    // The other app of the vault has its own.
    let others = make_code(&desk, &desk.owner, 20).await;
    assert_eq!(others.status, 201);
    for n in 1..=5 {
        assert_eq!(enrol(&desk, &key(n), &second["code"]).await, "201");
    }
    assert_eq!(make(1).await.short(), needed, "what was used counts too");
    // A code that is ended gives back what it did not use.
    let path = format!("{CODES}/{}", first["id"].as_str().unwrap());
    assert_eq!(
        desk.ask(&bobs.access, "DELETE", &path, None).await.status,
        200
    );
    assert_eq!(make(16).await.short(), needed);
    assert_eq!(make(15).await.status, 201);
    // All codes are over, and the machines of an hour ago still count.
    desk.world.clock.advance(3600);
    assert_eq!(make(16).await.short(), needed);
    desk.world.clock.advance(25 * 3600);
    let again = common::refresh(&desk.world.app, &bobs.client, &bobs.refresh).await;
    let access = again.text("access_token");
    let last = make_code(&desk, &access, 20).await;
    assert_eq!(last.status, 201, "a day later");
}

/// Otherwise an app enrols keys and admits them in a loop, and nobody is asked.
#[tokio::test]
async fn an_app_and_its_codes_admit_twenty_machines_a_day_without_a_confirmation() {
    let desk = desk().await;
    let bobs = app_of_bob(&desk).await;
    let admit = async |n: u8, token: &str| {
        desk.world.enrol(&key(n), "acme", &format!("ci-{n}")).await;
        let slug = "acme".parse().unwrap();
        let id = vault_format::request::device_id(&slug, &key(n).public());
        let path = format!("/admin/vaults/acme/devices/{id}/admit");
        (desk.ask_once(token, "POST", &path, None).await, path)
    };
    let open = make_code(&desk, &bobs.access, 5).await;
    assert_eq!(open.status, 201);
    for n in 1..=15 {
        let (admitted, _) = admit(n, &bobs.access).await;
        assert_eq!(admitted.status, 200, "{n}");
    }
    let (refused, path) = admit(16, &bobs.access).await;
    assert_eq!(refused.short(), NEEDED);
    let more = make_code(&desk, &bobs.access, 1).await;
    assert_eq!(more.short(), NEEDED, "both count together");
    // The page names the machine; its admission counts once, and takes nothing from the others.
    let asked = desk.ask_once(&bobs.access, "POST", &path, None).await;
    let (mut bob, page) = open_asked(&desk, &asked, (BOB, PASSWORD)).await;
    let fingerprint = KeyFingerprint::device(&key(16).public());
    let says = format!("Admit the machine ci-16 ({fingerprint}) to acme.");
    assert!(page.body.contains(&says), "{}", page.body);
    let done = decide(&mut bob, &page, "confirm").await;
    assert_eq!(done, "200 Confirmed");
    let admitted = desk.ask_once(&bobs.access, "POST", &path, None).await;
    assert_eq!(admitted.json()["status"], "active");
    // A repetition whose answer was lost asks nobody.
    let again = desk.ask_once(&bobs.access, "POST", &path, None).await;
    assert_eq!(again.json()["status"], "active");
    assert_eq!(admit(17, &bobs.access).await.0.short(), NEEDED);
    // The code that is open may still be used: it was counted when it was made.
    let code = open.json()["code"].clone();
    assert_eq!(enrol(&desk, &key(18), &code).await, "201");
    // Another app has its own count.
    assert_eq!(admit(17, &desk.owner).await.0.status, 200);
    desk.world.clock.advance(26 * 3600);
    let again = common::refresh(&desk.world.app, &bobs.client, &bobs.refresh).await;
    let (later, _) = admit(19, &again.text("access_token")).await;
    assert_eq!(later.status, 200, "a day later");
}

/// Two requests at once must not both take the last place.
#[tokio::test]
async fn two_admissions_at_once_do_not_both_use_what_is_left() {
    let desk = desk().await;
    assert_eq!(make_code(&desk, &desk.owner, 19).await.status, 201);
    let mut paths = Vec::new();
    for n in [1, 2] {
        desk.world.enrol(&key(n), "acme", "ci").await;
        let slug = "acme".parse().unwrap();
        let id = vault_format::request::device_id(&slug, &key(n).public());
        paths.push(format!("/admin/vaults/acme/devices/{id}/admit"));
    }
    let admit = async |path: &str| desk.ask_once(&desk.owner, "POST", path, None).await;
    let (one, other) = tokio::join!(admit(&paths[0]), admit(&paths[1]));
    let mut statuses = [one, other].map(|answer| answer.status.as_u16());
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 403]);
}

/// One confirmation may list the machines of one command.
#[tokio::test]
async fn one_confirmation_admits_several_machines() {
    let desk = desk().await;
    assert_eq!(make_code(&desk, &desk.owner, 20).await.status, 201);
    let slug = "acme".parse().unwrap();
    let mut machines = Vec::new();
    for n in [1, 2] {
        desk.world.enrol(&key(n), "acme", "ci").await;
        machines.push(vault_format::request::device_id(&slug, &key(n).public()));
    }
    let act = |machine| json!({ "act": "admit_machine", "machine": machine });
    let acts = json!({ "acts": [act(&machines[0]), act(&machines[1])] });
    let path = "/admin/confirmations";
    let asked = desk.ask_once(&desk.owner, "POST", path, Some(&acts)).await;
    assert_eq!(asked.status, 201);
    common::confirm_asked(&desk.world.app, &desk.owner).await;
    for machine in machines {
        let path = format!("/admin/vaults/acme/devices/{machine}/admit");
        let admitted = desk.ask_once(&desk.owner, "POST", &path, None).await;
        assert_eq!(admitted.status, 200);
    }
}

/// What the person confirms is not bound, and takes nothing from what is not confirmed.
#[tokio::test]
async fn a_confirmed_code_does_not_count() {
    let desk = desk().await;
    let body = json!({ "uses": 20 });
    for _ in 0..3 {
        assert_eq!(desk.post(CODES, &body).await.status, 201);
    }
    let confirmed = desk.count("confirmation.use done").await;
    assert_eq!(confirmed, 2);
}

/// Two requests at once must not both use what is left.
#[tokio::test]
async fn two_codes_at_once_do_not_both_use_what_is_left() {
    let desk = desk().await;
    let made = make_code(&desk, &desk.owner, 15);
    let (one, other) = tokio::join!(made, make_code(&desk, &desk.owner, 15));
    let mut statuses = [one, other].map(|answer| answer.status.as_u16());
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 403]);
}
