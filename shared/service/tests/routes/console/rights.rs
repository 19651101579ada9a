//! Who may open which page, and which forms count.

use vault_format::request::device_id;
use vault_service::config::SecondFactorPolicy;
use vault_service::model::device::{self, Device, DeviceStatus};
use vault_service::model::namespace::Status;
use vault_service::model::token::{Secret, SecretKind};
use vault_service::model::user::{Role, Scopes};
use vault_service::route::{Auth, Route};
use vault_service::router;
use vault_service::web::csrf::{self, Purpose};

use crate::admin::{ADA, BOB, CY, Desk, EVE, desk, reference};
use crate::common::{self, PASSWORD, Visitor};
use crate::support::key;

use super::{at, refused, signed_in};

/// The page at this path of a row, of a vault whose one skill is `code-review`; `None` where a
/// person or a thing in the path would have to be made first.
fn page_of(path: &str) -> Option<String> {
    let path = path
        .replace("{slug}", "acme")
        .replace("{name}", "code-review");
    (!path.contains('{')).then_some(path)
}

/// Every page of the route table, for each role.
#[tokio::test]
async fn each_page_opens_for_the_roles_that_its_row_names() {
    let desk = desk().await;
    let (app, acme) = (&desk.world.app, reference(&desk.acme));
    common::member(app, BOB, &acme, Role::Member, Scopes::ALL).await;
    common::member(app, CY, &acme, Role::Publisher, Scopes::ALL).await;
    let other = reference(&desk.other);
    common::member(app, EVE, &other, Role::Owner, Scopes::ALL).await;
    let rows = router::all_routes().filter(|row| row.path.starts_with("/console/{slug}"));
    let rows: Vec<&Route> = rows.filter(|row| row.method == "GET").collect();
    for (who, role) in [
        (ADA, Some(Role::Owner)),
        (CY, Some(Role::Publisher)),
        (BOB, Some(Role::Member)),
        (EVE, None),
    ] {
        let (mut visitor, _) = at(&desk, who, "/console").await;
        for row in &rows {
            let (needed, opens) = match row.auth {
                Auth::Session(Some(Role::Member)) => ("", role.is_some()),
                Auth::Session(Some(Role::Publisher)) => (
                    "the owners and publishers",
                    matches!(role, Some(Role::Owner | Role::Publisher)),
                ),
                Auth::Session(Some(Role::Owner)) => ("the owners", role == Some(Role::Owner)),
                other => panic!("{}: {other:?}", row.path),
            };
            let path = page_of(row.path);
            let shown = path
                .clone()
                .unwrap_or_else(|| row.path.replace("{slug}", "acme"));
            let page = visitor.get(&shown.replace(['{', '}'], "")).await;
            let wanted = match (role, opens) {
                (None, _) => 404,
                (_, false) => 403,
                (_, true) if path.is_none() => 404,
                (_, true) => 200,
            };
            assert_eq!(page.status, wanted, "{who} {shown}: {}", page.body);
            if wanted == 403 {
                assert_eq!(page.heading(), format!("This page is for {needed}"));
                assert!(page.body.contains("ask an owner"), "{}", page.body);
                // The navigation leads nowhere that this person cannot go.
                assert!(!page.body.contains("href=\"/console/acme/machines\""));
            }
        }
    }
}

/// Whoever is not a member learns as little about a vault that is there as about none.
#[tokio::test]
async fn a_vault_of_others_is_answered_as_one_that_does_not_exist() {
    let desk = desk().await;
    let app = &desk.world.app;
    let other = reference(&desk.other);
    common::member(app, EVE, &other, Role::Owner, Scopes::ALL).await;
    let (mut eve, _) = at(&desk, EVE, "/console").await;
    for below in ["", "/machines", "/skills?who=machine", "/nothing"] {
        let there = eve.get(&format!("/console/acme{below}")).await;
        let nothing = eve.get(&format!("/console/absent{below}")).await;
        let status = if below == "/nothing" {
            404
        } else {
            there.status
        };
        assert_eq!((there.status, status), (404, 404), "{below}");
        let told = |page: &common::Reply| page.body.replace("acme", "…").replace("absent", "…");
        if below != "/nothing" {
            assert_eq!(told(&there), told(&nothing), "{below}");
        }
    }
}

#[tokio::test]
async fn a_member_reads_how_to_use_the_vault() {
    let desk = desk().await;
    let acme = reference(&desk.acme);
    common::member(&desk.world.app, BOB, &acme, Role::Member, Scopes::READ).await;
    let (_, page) = at(&desk, BOB, "/console/acme").await;
    assert_eq!(page.page(), "200 You are a member of acme");
    assert!(page.body.contains("https://vault.example/mcp"));
}

#[tokio::test]
async fn the_only_vault_opens_at_once_and_several_are_offered() {
    let desk = desk().await;
    let app = &desk.world.app;
    let (mut ada, page) = at(&desk, ADA, "/console").await;
    assert_eq!(
        (page.status, page.header("location")),
        (303, "/console/acme")
    );
    let other = reference(&desk.other);
    common::member(app, ADA, &other, Role::Member, Scopes::READ).await;
    let page = ada.get("/console").await;
    assert_eq!(page.page(), "200 Your vaults");
    for part in [
        "/console/acme\"",
        "You are an owner.",
        "/console/other\"",
        "You are a member.",
    ] {
        assert!(page.body.contains(part), "{part}: {}", page.body);
    }
}

#[tokio::test]
async fn the_sign_in_page_leads_back_to_the_page_with_its_parameters() {
    let desk = desk().await;
    let path = "/console/acme/machines?status=behind&search=a%20b";
    let (_, page) = at(&desk, ADA, path).await;
    assert_eq!(page.page(), "200 Machines");
    // An address that no page of ours writes leads to the console.
    let mut visitor = Visitor::new(&desk.world.app);
    let page = visitor.get("/console/acme%20x").await;
    assert_eq!(page.hidden("/oauth/login", "return_to"), "/console");
}

#[tokio::test]
async fn a_page_with_a_very_long_query_is_still_that_page() {
    let desk = desk().await;
    let question = "%D7%90".repeat(170);
    let path = format!("/console/acme/skills?who=machine&ask={question}");
    let mut ada = Visitor::new(&desk.world.app);
    let page = ada.get(&path).await;
    // The address is too long to lead back to as a whole.
    let onward = "/console/acme/skills";
    assert_eq!(page.hidden("/oauth/login", "return_to"), onward);
    ada.log_in(&page, ADA, PASSWORD).await;
    let page = ada.get(&path).await;
    let current = "<a href=\"/console/acme/skills\" aria-current=\"page\">Skills</a>";
    assert!(page.body.contains(current), "{}", page.body);
}

#[tokio::test]
async fn owners_need_the_second_factor_that_the_service_requires_of_them() {
    let desk = desk().await;
    let acme = reference(&desk.acme);
    common::member(&desk.world.app, BOB, &acme, Role::Member, Scopes::ALL).await;
    let mut strict = desk.world.app.clone();
    let mut config = (*strict.config).clone();
    config.second_factor = SecondFactorPolicy::Owners;
    strict.config = config.into();
    for (who, heading) in [
        (ADA, "Set up a second factor"),
        (BOB, "You are a member of acme"),
    ] {
        let mut visitor = Visitor::new(&strict);
        let page = visitor.get("/console/acme").await;
        visitor.log_in(&page, who, PASSWORD).await;
        let page = visitor.get("/console/acme").await;
        assert_eq!(page.heading(), heading, "{}", page.body);
        assert!(
            !page.body.contains("The app received nothing"),
            "there is no app"
        );
    }
}

#[tokio::test]
async fn a_suspended_vault_shows_nothing() {
    let desk = desk().await;
    let (mut ada, page) = at(&desk, ADA, "/console/acme").await;
    assert_eq!(page.status, 200);
    desk.world
        .change("acme", |namespace| namespace.status = Status::Suspended)
        .await;
    let page = ada.get("/console/acme").await;
    assert_eq!(page.page(), "403 This vault is suspended");
    desk.world
        .change("acme", |namespace| namespace.status = Status::Deleted)
        .await;
    assert_eq!(ada.get("/console/acme").await.status, 404);
}

/// A machine that waits, with the address of its page.
async fn waiting(desk: &Desk) -> (String, vault_format::keys::SecretKey) {
    let machine = desk.world.device("acme", 7, DeviceStatus::Pending).await;
    let id = device_id(&"acme".parse().unwrap(), &machine.public());
    (format!("/console/acme/machines/{id}"), machine)
}

async fn status(desk: &Desk, machine: &vault_format::keys::SecretKey) -> DeviceStatus {
    let at = device::device_key(&"acme".parse().unwrap(), &machine.public().to_string());
    let device: Device = common::read(&desk.world.app, &at).await;
    device.status
}

#[tokio::test]
async fn a_form_counts_only_from_its_own_page_in_the_own_browser() {
    let desk = desk().await;
    let world = &desk.world;
    let (path, machine) = waiting(&desk).await;
    let (mut ada, page) = at(&desk, ADA, &path).await;
    let good = page.hidden(&path, "csrf");
    let (mut second, second_page) = at(&desk, ADA, &path).await;
    let of_second = second_page.hidden(&path, "csrf");
    let cookie = ada.cookie.clone().unwrap();
    let secret = Secret::parse(SecretKind::Session, cookie.split_once('=').unwrap().1).unwrap();
    let token = |purpose, subject: &str| {
        csrf::create_token(&secret, purpose, subject, world.now(), &world.app.random)
    };
    for (why, token) in [
        ("no token", String::new()),
        ("of another browser", of_second),
        (
            "of another page",
            token(Purpose::Console, "/console/acme/machines"),
        ),
        ("for another purpose", token(Purpose::Account, &path)),
        ("changed", format!("{good}A")),
    ] {
        let fields = [("csrf", token.as_str()), ("change", "admit")];
        assert_eq!(ada.post(&path, &fields).await.status, 403, "{why}");
        assert_eq!(
            status(&desk, &machine).await,
            DeviceStatus::Pending,
            "{why}"
        );
    }
    // Another site sent it.
    let mut request = common::form_request(&path, &[("csrf", &good), ("change", "admit")]);
    let site = "cross-site".parse().unwrap();
    request.headers_mut().insert("sec-fetch-site", site);
    assert_eq!(ada.send(request).await.status, 403);
    // It is old.
    world.clock.advance(csrf::FORM_SECONDS);
    let fields = [("csrf", good.as_str()), ("change", "admit")];
    assert_eq!(ada.post(&path, &fields).await.status, 403);
    assert_eq!(status(&desk, &machine).await, DeviceStatus::Pending);
    let refusals = desk.count("console-machines.change form_forged").await;
    assert_eq!(refusals, 6, "all but that of another site");
    // A good one counts, once the person is signed in again.
    let page = second.get(&path).await;
    let csrf = page.hidden(&path, "csrf");
    let fields = [("csrf", csrf.as_str()), ("change", "admit")];
    assert_eq!(second.post(&path, &fields).await.status, 303);
    assert_eq!(status(&desk, &machine).await, DeviceStatus::Active);
}

#[tokio::test]
async fn a_good_token_does_not_make_up_for_the_role_or_the_scope() {
    let desk = desk().await;
    let (world, app) = (&desk.world, &desk.world.app);
    let acme = reference(&desk.acme);
    let (path, machine) = waiting(&desk).await;
    common::member(app, BOB, &acme, Role::Member, Scopes::ALL).await;
    common::member(app, CY, &acme, Role::Publisher, Scopes::ALL).await;
    common::member(app, "dora@example.org", &acme, Role::Owner, Scopes::READ).await;
    let other = reference(&desk.other);
    common::member(app, EVE, &other, Role::Owner, Scopes::ALL).await;
    for (who, answer) in [(BOB, 403), (CY, 403), ("dora@example.org", 303), (EVE, 404)] {
        let (mut visitor, _) = at(&desk, who, "/console").await;
        let cookie = visitor.cookie.clone().unwrap();
        let secret = cookie.split_once('=').unwrap().1;
        let secret = Secret::parse(SecretKind::Session, secret).unwrap();
        let (now, random) = (world.now(), &app.random);
        let token = csrf::create_token(&secret, Purpose::Console, &path, now, random);
        let fields = [("csrf", token.as_str()), ("change", "admit")];
        let reply = visitor.post(&path, &fields).await;
        assert_eq!(reply.status, answer, "{who}: {}", reply.body);
        assert_eq!(
            status(&desk, &machine).await,
            DeviceStatus::Pending,
            "{who}"
        );
        if answer == 303 {
            let page = visitor.get(reply.header("location")).await;
            let text = "Nothing was changed: you do not have the right to write in this vault. Ask an owner for it.";
            assert_eq!(refused(&page), text);
            assert!(!page.body.contains("value=\"admit\""));
        }
    }
    assert_eq!(key(7).public(), machine.public());
}

/// The form of each page, with a field that changes something.
const FORMS: &[(&str, &[(&str, &str)])] = &[
    (
        "people",
        &[("email", "new@example.org"), ("role", "member")],
    ),
    ("apps", &[("client", "cli_00000000000000000000000000")]),
    ("namespace", &[("change", "delete"), ("slug", "acme")]),
];

#[tokio::test]
async fn a_form_needs_the_token_of_its_own_page() {
    let desk = desk().await;
    let mut owner = signed_in(&desk, ADA).await;
    let people = owner.get("/console/acme/people").await;
    let foreign = people.hidden("/console/acme/people", "csrf");
    for (page, fields) in FORMS {
        let path = format!("/console/acme/{page}");
        for csrf in ["", "x", foreign.as_str()] {
            if *page == "people" && csrf == foreign {
                continue;
            }
            let fields = [&[("csrf", csrf)], *fields].concat();
            let answer = owner.post(&path, &fields).await;
            assert_eq!(answer.page(), "403 This form has expired", "{path} {csrf}");
        }
    }
    assert_eq!(owner.get("/console/acme").await.status, 200);
    assert_eq!(desk.count("user.create done").await, 0);
}
