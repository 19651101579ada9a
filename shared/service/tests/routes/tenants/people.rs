//! What people of one tenant can do in a browser, and strangers at the public endpoints, against
//! everything of another.

use serde_json::json;
use vault_format::time::Timestamp;
use vault_service::model::token::{Secret, SecretKind};
use vault_service::model::user::Scopes;
use vault_service::route::{Auth, Group, Route};
use vault_service::web::csrf::{self, Purpose};

use super::there::{FAY, GUS, Named, Other, THERE, other, records_of};
use crate::admin::{ADA, Desk, desk, desk_with};
use crate::common::samples::samples;
use crate::common::{self, CALLBACK, PASSWORD, Reply, Visitor, authorize, post_form, register};

/// The page where a person signs up for a vault.
const NEW_VAULT: &str = "/account/new-vault";
/// The page where passkeys are added and removed.
const PASSKEYS: &str = "/account/passkeys";

/// The page that has the form of a row: its address and what that form needs to be good but for
/// whose things it names.
fn page_of(route: &Route, consent: &str) -> (String, Vec<(&'static str, &'static str)>) {
    let account = || "/account".to_owned();
    match route.name {
        "oauth.consent" => (
            consent.to_owned(),
            vec![("decision", "approve"), ("scope", "read")],
        ),
        "password.change" => {
            let new = ("password", "another password of hers");
            (route.path.to_owned(), vec![("current", "not hers"), new])
        }
        "second-factor.change" => {
            let codes = [
                ("change", "on"),
                ("new_code", "000000"),
                ("password", "not hers"),
            ];
            (route.path.to_owned(), codes.to_vec())
        }
        "passkey.new" => (PASSKEYS.to_owned(), vec![("name", "hers")]),
        // The token is the same on all forms of the page.
        "passkey.add" => (PASSKEYS.to_owned(), vec![("credential", "{}")]),
        "passkey.remove" => (PASSKEYS.to_owned(), vec![]),
        // Their own forms are only there with an invitation or a connection; the token is the same
        // on all forms of the page.
        "membership.answer" => (account(), vec![("decision", "accept")]),
        "membership.leave" | "app.end" | "session.end" | "session.end-all" | "sign-in.end" => {
            (account(), vec![])
        }
        "confirmation.decide" => (account(), vec![("decision", "confirm"), ("sure", "yes")]),
        "vault.sign-up" => (NEW_VAULT.to_owned(), vec![("slug", "another-name")]),
        // The form is only there when a name was taken; the token is the same on both forms.
        "vault.rename" => {
            let reference = ("reference", "0123456789abcdef0123456789abcdef");
            (
                NEW_VAULT.to_owned(),
                vec![reference, ("slug", "other-name")],
            )
        }
        other => panic!("{other}: say here which page has its form"),
    }
}

/// The row of the page that confirms what an app asked for.
fn confirmation_page() -> &'static Route {
    let rows = samples().into_iter().map(|sample| sample.route);
    rows.into_iter()
        .find(|row| row.name == "confirmation.page")
        .unwrap()
}

/// A good token of a form in this browser.
fn form_token(visitor: &Visitor<'_>, purpose: Purpose, subject: &str, now: Timestamp) -> String {
    let cookie = visitor.cookie.as_deref().unwrap();
    let (_, secret) = cookie.split_once('=').unwrap();
    let secret = Secret::parse(SecretKind::Session, secret).unwrap();
    csrf::create_token(&secret, purpose, subject, now, &visitor.app.random)
}

/// A browser in which Ada is signed in, on the page that has the form of a row; and that page.
async fn at_form<'a>(desk: &'a Desk, route: &Route, consent: &str) -> (Visitor<'a>, Reply) {
    let mut ada = Visitor::new(&desk.world.app);
    let page = ada.get("/account").await;
    ada.log_in(&page, ADA, PASSWORD).await;
    let (page, _) = page_of(route, consent);
    let page = ada.get(&page).await;
    assert_eq!(page.status, 200, "{}", page.body);
    (ada, page)
}

/// A signed-in browser of one tenant, on every page and with every form, with everything of the
/// other in its fields. Each form passes its guard, so what is asked is the handler.
#[tokio::test]
async fn no_form_of_one_tenant_shows_or_changes_anything_of_another() {
    let desk = desk_with(|config| config.hosting.sign_up = true).await;
    let (world, app) = (&desk.world, &desk.world.app);
    let other = other(&desk).await;
    let client = register(app, CALLBACK).await;
    let consent = authorize(&client, CALLBACK, &[]);
    let before = records_of(world, &other).await;
    let mut asked = 0;
    for sample in samples() {
        let route = sample.route;
        // `no_page_of_the_console_opens_for_another_tenant` walks the console.
        if !matches!(route.auth, Auth::Session(_)) || route.group == Group::Admin {
            continue;
        }
        asked += 1;
        let path = other.named.path(route, THERE);
        let answer = if route.method == "GET" {
            let mut ada = Visitor::new(app);
            let page = ada.get(&path).await;
            ada.log_in(&page, ADA, PASSWORD).await;
            ada.get(&path).await
        } else {
            let (mut ada, page) = at_form(&desk, route, &consent).await;
            let form = match route.name {
                "membership.answer" | "sign-in.end" => "/account/sign-out",
                "vault.rename" => NEW_VAULT,
                "passkey.add" | "passkey.remove" => "/account/passkeys/new",
                _ => route.path,
            };
            let theirs = other.named.path(confirmation_page(), THERE);
            let csrf = match route.name {
                // Ada cannot open the page of its form, so the token is made as for that page.
                "confirmation.decide" => form_token(&ada, Purpose::Confirm, &theirs, world.now()),
                _ => page.hidden(form, "csrf"),
            };
            let return_to = match route.name {
                "oauth.consent" => consent.as_str(),
                "confirmation.decide" => &theirs,
                _ => "/account",
            };
            let (_, more) = page_of(route, &consent);
            let fields = [
                ("csrf", csrf.as_str()),
                ("return_to", return_to),
                ("namespace", THERE),
                ("grant", &other.grant),
                ("session", &other.session),
                ("sign_in", &other.sign_in),
                ("passkey", &other.passkey),
                ("email", FAY),
                ("username", FAY),
            ];
            let answer = ada.post(&path, &[&fields[..], &more].concat()).await;
            assert_ne!(answer.status, 403, "{}: {}", route.name, answer.body);
            if route.name == "oauth.consent" {
                assert_eq!(answer.status, 303);
                let back = ada.get(&consent).await;
                assert_eq!(back.status, 200, "no code: {}", back.header("location"));
            }
            answer
        };
        for secret in &other.secrets {
            let shown = answer.body.contains(secret.as_str());
            assert!(!shown, "{}: {secret}: {}", route.name, answer.body);
        }
    }
    assert!(asked > 8, "{asked}");
    assert_eq!(records_of(world, &other).await, before);
}

/// The owner of one vault at every page of the console and with every form of it, at the addresses
/// of another vault and with what that one has at the addresses of the own vault. Each form has a
/// good token, so what is asked is the membership and the handler.
#[tokio::test]
async fn no_page_of_the_console_opens_for_another_tenant() {
    let desk = desk().await;
    let (world, app) = (&desk.world, &desk.world.app);
    let other = other(&desk).await;
    let absent = Named::absent();
    let mut ada = Visitor::new(app);
    let page = ada.get("/console/acme").await;
    ada.log_in(&page, ADA, PASSWORD).await;
    let before = records_of(world, &other).await;
    let mut asked = 0;
    for sample in samples() {
        let route = sample.route;
        if !matches!(route.auth, Auth::Session(_)) || route.group != Group::Admin {
            continue;
        }
        let mut answers = Vec::new();
        for (named, slug) in [
            (&other.named, THERE),
            (&absent, "tenant-x"),
            (&other.named, "acme"),
        ] {
            let path = named.path(route, slug);
            let answer = if route.method == "GET" {
                ada.get(&path).await
            } else {
                let token = form_token(&ada, Purpose::Console, &path, world.now());
                let fields = [
                    ("csrf", token.as_str()),
                    ("change", "revoke"),
                    ("decision", "confirm"),
                    ("sure", "yes"),
                ];
                ada.post(&path, &fields).await
            };
            asked += 1;
            for secret in &other.secrets {
                let shown = answer.body.contains(secret.as_str());
                assert!(!shown, "{} {path}: {secret}: {}", route.name, answer.body);
            }
            answers.push((blotted(&answer, slug), answer.status));
        }
        if route.path.contains("{slug}") {
            assert_eq!(answers[0].1, 404, "{}: {}", route.name, answers[0].0);
            assert_eq!(answers[0], answers[1], "{}", route.name);
        }
        if route.path.contains("{id}") {
            assert_eq!(answers[2].1, 404, "{}: {}", route.name, answers[2].0);
        }
    }
    assert!(asked > 18, "{asked}");
    assert_eq!(records_of(world, &other).await, before);
}

/// A page without what differs from one showing to the next.
fn blotted(page: &Reply, slug: &str) -> String {
    let mut text = format!("{} {}\n", page.status, page.header("location"));
    let mut forms = page.body.split("name=\"csrf\" value=\"");
    text.push_str(forms.next().unwrap());
    for rest in forms {
        text.push_str(rest.split_once('"').unwrap().1);
    }
    text.replace(slug, "…")
}

/// Whoever names a vault on the way to the consent page learns as little about one that is there as
/// about none.
#[tokio::test]
async fn the_sign_in_pages_do_not_tell_which_vaults_there_are() {
    let desk = desk().await;
    let app = &desk.world.app;
    let other = other(&desk).await;
    let absent = Named::absent();
    let client = register(app, CALLBACK).await;
    let mut told = Vec::new();
    for slug in [&other.named.slug, &absent.slug] {
        let address = authorize(&client, CALLBACK, &[("vault_namespace", slug)]);
        let mut ada = Visitor::new(app);
        let page = ada.get(&address).await;
        let back = ada.log_in(&page, ADA, PASSWORD).await;
        let refused = ada.get(&address).await;
        assert_eq!(refused.status, 403, "{}", refused.body);
        told.push([page, back, refused].map(|page| blotted(&page, slug)));
    }
    assert_eq!(told[0], told[1]);
    // And no more about accounts.
    let mut told = Vec::new();
    for email in [FAY, GUS, "nobody@example.org"] {
        let mut visitor = Visitor::new(app);
        let page = visitor.get("/account").await;
        let refused = visitor.log_in(&page, email, "not the password").await;
        told.push(blotted(&refused, email));
    }
    assert_eq!(told[0], told[2]);
    assert_eq!(told[1], told[2]);
}

/// Tokens of the other tenant, sent by an app and by people of this one: nothing ends, nothing is
/// given, and the answer is that for tokens that nobody has. (An app that names itself as the
/// other's may end what it holds: that is RFC 7009.)
#[tokio::test]
async fn no_app_of_one_tenant_uses_or_ends_a_token_of_another() {
    let desk = desk().await;
    let (world, app) = (&desk.world, &desk.world.app);
    let other = other(&desk).await;
    let ours = common::tokens(app, (ADA, PASSWORD), "acme", Scopes::ALL).await;
    let operator = desk.operator().await;
    let before = records_of(world, &other).await;
    let made_up = |prefix: &str| format!("{prefix}{}", "A".repeat(43));
    let mut asked = 0;
    for sample in samples() {
        let route = sample.route;
        if !matches!(route.name, "token.grant" | "token.revoke") {
            continue;
        }
        for (theirs, nobodys) in [
            (other.tokens.access.clone(), made_up("vat_")),
            (other.tokens.refresh.clone(), made_up("vrt_")),
        ] {
            for bearer in ["", &ours.access, &operator] {
                let mut answers = Vec::new();
                for token in [&theirs, &nobodys] {
                    let fields = [
                        ("grant_type", "refresh_token"),
                        ("client_id", ours.client.as_str()),
                        ("refresh_token", token),
                        ("token", token),
                    ];
                    let mut request = common::form_request(route.path, &fields);
                    if !bearer.is_empty() && route.name == "token.revoke" {
                        let bearer = format!("Bearer {bearer}").parse().unwrap();
                        request.headers_mut().insert("authorization", bearer);
                    }
                    let answer = common::send(app, request).await;
                    answers.push((answer.status, answer.body));
                    asked += 1;
                }
                assert_eq!(answers[0], answers[1], "{}", route.name);
            }
        }
    }
    assert_eq!(asked, 24);
    let mut after = records_of(world, &other).await;
    // That somebody tried stands in the log of the tenant whose token it is.
    after.retain(|key, _| before.contains_key(key) || !key.starts_with("audit/"));
    assert_eq!(after, before);
    let vaults = desk.ask(&other.tokens.access, "GET", "/admin/vaults", None);
    assert_eq!(vaults.await.status, 200);
    // The link that sets a password is its own secret: one that is none opens nothing.
    for path in [
        "/oauth/invite/x",
        &format!("/oauth/invite/{}", made_up("vin_")),
    ] {
        assert_eq!(common::get(app, path).await.status, 404);
        let set = post_form(app, path, &[("email", FAY), ("password", PASSWORD)]).await;
        assert_eq!(set.status, 404);
    }
    let body = json!({ "client_name": FAY, "redirect_uris": [CALLBACK] });
    let registered = common::post_client(app, &body).await;
    assert_eq!(registered.status, 201);
    assert_still(&desk, &other).await;
}

/// The other tenant's owner still reads what is theirs.
async fn assert_still(desk: &Desk, other: &Other) {
    let path = format!("/admin/vaults/{THERE}/releases/{}", other.named.release);
    let shown = desk.ask(&other.tokens.access, "GET", &path, None).await;
    assert_eq!(shown.status, 200);
}
