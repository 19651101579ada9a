//! The rows of people and their browsers.

use serde_json::json;
use vault_service::model::user::{Role, Scopes};

use crate::account::passkeys;
use crate::account::second_factor::code as account_code;
use crate::admin::{ADA, reference};
use crate::authenticator::{Authenticator, Forgery, options};
use crate::common::{self, CALLBACK, OWNER, OWNER_PASSWORD, PASSWORD, Visitor, authorize};

use super::scene::Scene;
use crate::support::bearer;

/// The account page and its forms, by the operator, whom Ada invited.
pub(super) async fn account_page(scene: &Scene, name: &str) -> u16 {
    let mut visitor = Visitor::new(&scene.world.app);
    let page = visitor.get("/account").await;
    visitor.log_in(&page, OWNER, OWNER_PASSWORD).await;
    scene.counting.take();
    let page = visitor.get("/account").await;
    match name {
        "account.show" => page.status,
        "membership.answer" => {
            scene.counting.take();
            visitor.answer(&page, "acme", "accept").await.status
        }
        _ => {
            let csrf = page.hidden("/account/vaults", "csrf");
            let fields = [("csrf", csrf.as_str()), ("namespace", "acme")];
            scene.counting.take();
            visitor.post("/account/vaults", &fields).await.status
        }
    }
}

/// The forms of the account page that end what was signed in, by a person of the row's own.
pub(super) async fn ending(scene: &Scene, name: &str) -> u16 {
    let app = &scene.world.app;
    let email = format!("{name}@example.org");
    let acme = reference(&scene.world.read_namespace("acme").await);
    common::member(app, &email, &acme, Role::Member, Scopes::ALL).await;
    common::tokens(app, (&email, PASSWORD), "acme", Scopes::ALL).await;
    if name == "sign-in.end" {
        common::connected(app, &email, "somebody").await;
    }
    let mut visitor = Visitor::new(app);
    let page = visitor.get("/account").await;
    visitor.log_in(&page, &email, PASSWORD).await;
    let page = visitor.get("/account").await;
    let (path, field) = match name {
        "sign-in.end" => ("/account/sign-ins", "sign_in"),
        "app.end" => ("/account/apps", "grant"),
        "session.end" => ("/account/sessions", "session"),
        _ => ("/account/sign-out", "csrf"),
    };
    let (csrf, value) = (page.hidden(path, "csrf"), page.hidden(path, field));
    let mut fields = vec![("csrf", csrf.as_str())];
    fields.extend((field != "csrf").then_some((field, value.as_str())));
    scene.counting.take();
    visitor.post(path, &fields).await.status
}

/// A confirmation that Ada's app waits for: shown to the app, opened and decided by Ada.
pub(super) async fn confirmation(scene: &Scene, name: &str) -> u16 {
    let path = "/admin/vaults/acme/enrolment-codes";
    let body = ("application/json", br#"{"uses":50}"#.to_vec());
    let request = bearer(&scene.owner, "POST", path, Some(body), &[]);
    let asked = scene.world.send(request).await.json();
    let id = asked["confirmation"]["id"].as_str().unwrap().to_owned();
    if name == "confirmation.show" {
        let path = format!("/admin/confirmations/{id}");
        return scene.ask(&scene.owner, "GET", &path).await;
    }
    let path = format!("/account/confirm/{id}");
    let mut visitor = Visitor::new(&scene.world.app);
    let page = visitor.get(&path).await;
    visitor.log_in(&page, ADA, PASSWORD).await;
    scene.counting.take();
    let page = visitor.get(&path).await;
    if name == "confirmation.page" {
        return page.status;
    }
    let decision = [("decision", "confirm"), ("sure", "yes")];
    scene.counting.take();
    let done = visitor.fill(&page, "/account/confirm", &decision);
    done.await.status
}

/// The second factor of the first person of these rows: shown, turned on, asked for.
pub(super) async fn second_factor(scene: &mut Scene, name: &str) -> u16 {
    let app = scene.world.app.clone();
    let (email, path) = ("factor@example.org", "/account/second-factor");
    let mut visitor = Visitor::new(&app);
    let page = visitor.get(path).await;
    if name == "second-factor.show" {
        let acme = reference(&scene.world.read_namespace("acme").await);
        common::member(&app, email, &acme, Role::Owner, Scopes::ALL).await;
    }
    let page = visitor.log_in(&page, email, PASSWORD).await;
    let typed = |secret: &str| account_code(secret, scene.world.now().unix());
    if name == "oauth.second-factor" {
        scene.world.clock.advance(30);
        let typed = account_code(&scene.invitation, scene.world.now().unix());
        let path = "/oauth/second-factor";
        let (csrf, back) = (page.hidden(path, "csrf"), page.hidden(path, "return_to"));
        let fields = [
            ("csrf", csrf.as_str()),
            ("return_to", &back),
            ("code", &typed),
        ];
        scene.counting.take();
        return visitor.post(path, &fields).await.status;
    }
    scene.counting.take();
    let page = visitor.get(path).await;
    if name == "second-factor.show" {
        return page.status;
    }
    let (csrf, secret) = (page.hidden(path, "csrf"), page.hidden(path, "secret"));
    let typed = typed(&secret);
    let fields = [
        ("csrf", csrf.as_str()),
        ("change", "on"),
        ("secret", &secret),
        ("new_code", &typed),
        ("password", PASSWORD),
    ];
    scene.counting.take();
    let done = visitor.post(path, &fields).await;
    scene.invitation = secret;
    done.status
}

/// The passkeys of one person: listed, added, asked for, used, removed.
pub(super) async fn passkey(scene: &mut Scene, name: &str) -> u16 {
    let app = scene.world.app.clone();
    let (email, path) = ("passkey@example.org", "/account/passkeys");
    let mut visitor = Visitor::new(&app);
    let page = visitor.get(path).await;
    if name == "passkey.show" {
        let acme = reference(&scene.world.read_namespace("acme").await);
        common::member(&app, email, &acme, Role::Owner, Scopes::ALL).await;
    }
    if name == "passkey.ask" {
        scene.counting.take();
        return passkeys::ask(&mut visitor, &page).await.status;
    }
    visitor.log_in(&page, email, PASSWORD).await;
    let mut key = Authenticator::new(scene.world.app.config.public_url.base());
    if name == "passkey.sign-in" {
        passkeys::add(&mut visitor, &mut key, "Phone").await;
        let mut other = Visitor::new(&app);
        let page = passkeys::asked(&mut other).await;
        let credential = key.sign(&options(&page), &Forgery::default());
        scene.counting.take();
        let done = passkeys::answer(&mut other, &page, &credential).await;
        return done.status;
    }
    scene.counting.take();
    let page = visitor.get(path).await;
    if name == "passkey.show" {
        return page.status;
    }
    let new = "/account/passkeys/new";
    let csrf = page.hidden(new, "csrf");
    if name == "passkey.remove" {
        let remove = "/account/passkeys/remove";
        let id = page.hidden(remove, "passkey");
        scene.counting.take();
        let fields = [("csrf", csrf.as_str()), ("passkey", &id)];
        return visitor.post(remove, &fields).await.status;
    }
    scene.counting.take();
    let page = visitor
        .post(new, &[("csrf", &csrf), ("name", "Phone")])
        .await;
    if name == "passkey.new" {
        return page.status;
    }
    let credential = key.make(&options(&page), &Forgery::default());
    scene.counting.take();
    let fields = [("csrf", csrf.as_str()), ("credential", &credential)];
    visitor.post(path, &fields).await.status
}

/// The page where a password is changed, and the change; the last rows, since Ada has another
/// password then.
pub(super) async fn password(scene: &Scene, name: &str) -> u16 {
    let mut visitor = Visitor::new(&scene.world.app);
    let path = "/oauth/password";
    let page = visitor.get(path).await;
    visitor.log_in(&page, ADA, PASSWORD).await;
    scene.counting.take();
    let page = visitor.get(path).await;
    if name == "password.show" {
        return page.status;
    }
    let csrf = page.hidden(path, "csrf");
    let fields = [
        ("csrf", csrf.as_str()),
        ("current", PASSWORD),
        ("password", "another password of hers"),
    ];
    scene.counting.take();
    visitor.post(path, &fields).await.status
}

/// The routes of the walk from registration to the end of a token.
pub(super) async fn walk(scene: &Scene, name: &str, case: &str) -> u16 {
    let app = &scene.world.app;
    let counting = &scene.counting;
    if name == "client.register" {
        let body = json!({ "redirect_uris": [CALLBACK] });
        return scene.post("", "/oauth/register", &body).await.0;
    }
    let client = common::register(app, CALLBACK).await;
    let fixed: &[(&str, &str)] = match case {
        "namespace named" => &[("vault_namespace", "acme")],
        _ => &[],
    };
    let address = authorize(&client, CALLBACK, fixed);
    let mut visitor = Visitor::new(app);
    if case == "nobody signed in" {
        counting.take();
        return visitor.get(&address).await.status;
    }
    let page = visitor.get(&address).await;
    counting.take();
    let signed_in = visitor.log_in(&page, ADA, PASSWORD).await;
    if name == "oauth.login" {
        return signed_in.status;
    }
    counting.take();
    let page = visitor.get(&address).await;
    if name == "oauth.authorize" && case != "decided" {
        return page.status;
    }
    counting.take();
    if name == "oauth.logout" {
        return visitor.log_out(&page).await.status;
    }
    let decided = visitor.allow(&page, "acme", Scopes::ALL).await;
    if name == "oauth.consent" {
        return decided.status;
    }
    counting.take();
    let back = visitor.get(&address).await;
    if name == "oauth.authorize" {
        return back.status;
    }
    let code = back.returned("code").unwrap();
    counting.take();
    let granted = common::exchange(app, &client, &code).await;
    match (name, case) {
        ("token.grant", "a code") => granted.status,
        ("token.grant", _) => {
            counting.take();
            let refresh = granted.text("refresh_token");
            common::refresh(app, &client, &refresh).await.status
        }
        ("token.revoke", _) => {
            let refresh = granted.text("refresh_token");
            let fields = [("client_id", client.as_str()), ("token", &refresh)];
            counting.take();
            common::post_form(app, "/oauth/revoke", &fields)
                .await
                .status
        }
        _ => panic!("{name}: say here how to ask for it"),
    }
}
