//! The second factor: set up at `/account`, asked for at sign-in, required of owners and operators
//! by a setting.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;
use vault_service::config::SecondFactorPolicy;
use vault_service::model::user::{Role, Scopes, User};

use super::{about, account_page};
use crate::admin::{ADA, BOB, Desk, empty_desk, reference, token};
use crate::common::{
    self, CALLBACK, OWNER, OWNER_PASSWORD, PASSWORD, Reply, Tokens, Visitor, authorize, register,
};
use crate::support::World;

const PATH: &str = "/account/second-factor";

/// What an authenticator app shows for the text of a secret: written anew, so that it checks the
/// service's own.
pub fn code(secret: &str, unix: i64) -> String {
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let value = |c: char| alphabet.find(c).unwrap();
    let bits = |c| {
        (0..5)
            .rev()
            .map(move |bit| u8::from(value(c) >> bit & 1 == 1))
    };
    let bits: Vec<u8> = secret.chars().flat_map(bits).collect();
    let byte = |bits: &[u8]| bits.iter().fold(0, |all, bit| all << 1 | bit);
    let bytes: Vec<u8> = bits.chunks(8).map(byte).collect();
    let mut mac = Hmac::<Sha1>::new_from_slice(&bytes).unwrap();
    mac.update(&(unix / 30).to_be_bytes());
    let hash = mac.finalize().into_bytes();
    let at = usize::from(hash[19] & 15);
    let number = u32::from_be_bytes(hash[at..at + 4].try_into().unwrap()) & 0x7fff_ffff;
    format!("{:06}", number % 1_000_000)
}

impl Desk {
    fn unix(&self) -> i64 {
        self.world.now().unix()
    }
}

/// Sends a form of the page: what to change, and more fields.
async fn change(visitor: &mut Visitor<'_>, page: &Reply, fields: &[(&str, &str)]) -> Reply {
    let csrf = page.hidden(PATH, "csrf");
    let all = [&[("csrf", csrf.as_str())], fields].concat();
    visitor.post(PATH, &all).await
}

fn recovery_codes(page: &Reply) -> Vec<String> {
    let codes = page.body.split("<li><code>").skip(1);
    let codes: Vec<_> = codes.map(|code| code[..19].to_owned()).collect();
    assert_eq!(codes.len(), 10, "{}", page.body);
    codes
}

/// Turns the second factor on; its secret and the recovery codes.
pub async fn turn_on(desk: &Desk, email: &str) -> (String, Vec<String>) {
    let (mut visitor, _) = account_page(desk, email, PASSWORD).await;
    let page = visitor.get(PATH).await;
    let secret = page.hidden(PATH, "secret");
    assert!(
        page.body.contains("otpauth://totp/vault.example:"),
        "{}",
        page.body
    );
    let good = code(&secret, desk.unix());
    for (typed, password, status) in [
        ("000000", PASSWORD, 422),
        (&good, "", 422),
        (&good, "not the password", 422),
        (&good, PASSWORD, 200),
    ] {
        let fields = [
            ("change", "on"),
            ("secret", secret.as_str()),
            ("new_code", typed),
            ("password", password),
        ];
        let reply = change(&mut visitor, &page, &fields).await;
        assert_eq!(reply.status, status, "{}", reply.body);
        let on = common::account(&desk.world.app, email).await.second_factor;
        assert_eq!(on.is_some(), status == 200, "{typed} {password}");
        if status == 200 {
            assert_eq!(visitor.get(PATH).await.heading(), "Second factor");
            return (secret, recovery_codes(&reply));
        }
    }
    unreachable!("the last form is good")
}

/// Signs in with the password and a code; the answer to the code.
async fn sign_in(visitor: &mut Visitor<'_>, email: &str, typed: &str) -> Reply {
    let page = visitor.get("/account").await;
    let half = visitor.log_in(&page, email, PASSWORD).await;
    assert_eq!(
        (half.status, half.heading()),
        (200, "Enter a code"),
        "{}",
        half.body
    );
    assert_eq!(
        visitor.get("/account").await.heading(),
        "Sign in",
        "not signed in yet"
    );
    enter(visitor, &half, typed).await
}

pub async fn enter(visitor: &mut Visitor<'_>, page: &Reply, typed: &str) -> Reply {
    let path = "/oauth/second-factor";
    let csrf = page.hidden(path, "csrf");
    let return_to = page.hidden(path, "return_to");
    let fields = [
        ("csrf", csrf.as_str()),
        ("return_to", &return_to),
        ("code", typed),
    ];
    visitor.post(path, &fields).await
}

#[tokio::test]
async fn a_sign_in_takes_a_code_that_counts_once() {
    let desk = empty_desk().await;
    let (secret, recovery) = turn_on(&desk, ADA).await;
    let app = &desk.world.app;
    let used = code(&secret, desk.unix());
    assert_eq!(
        sign_in(&mut Visitor::new(app), ADA, &used).await.status,
        422,
        "used when it was set up"
    );
    desk.world.clock.advance(30);
    let fresh = code(&secret, desk.unix());
    let mut ada = Visitor::new(app);
    assert_eq!(sign_in(&mut ada, ADA, &fresh).await.status, 303);
    assert_eq!(ada.get("/account").await.heading(), "Your account");
    assert_eq!(
        sign_in(&mut Visitor::new(app), ADA, &fresh).await.status,
        422,
        "a replay"
    );
    for status in [303, 422] {
        let reply = sign_in(&mut Visitor::new(app), ADA, &recovery[3]).await;
        assert_eq!(reply.status, status);
    }
    assert_eq!(desk.count("account.sign-in-by-recovery-code done").await, 1);
    assert_eq!(
        desk.count("account.sign-in wrong_code").await,
        1,
        "once in a quarter of an hour"
    );
    // The code is not a way around the password.
    let mut other = Visitor::new(app);
    let page = other.get("/account").await;
    assert_eq!(
        other.log_in(&page, ADA, "not the password").await.status,
        422
    );
}

/// With a second factor, credentials are password and code: neither a session of before nor the
/// password alone makes a token fresh.
#[tokio::test]
async fn a_pin_is_reset_with_password_and_code() {
    let desk = empty_desk().await;
    let (secret, _) = turn_on(&desk, ADA).await;
    desk.world.clock.advance(60);
    let app = &desk.world.app;
    let client = register(app, CALLBACK).await;
    let more = [("prompt", "login"), ("vault_namespace", "acme")];
    let address = authorize(&client, CALLBACK, &more);
    let mut ada = Visitor::new(app);
    let page = ada.get(&address).await;
    let half = ada.log_in(&page, ADA, PASSWORD).await;
    assert_eq!(ada.get(&address).await.heading(), "Sign in");
    enter(&mut ada, &half, &code(&secret, desk.unix())).await;
    let page = ada.get(&address).await;
    ada.allow(&page, "acme", Scopes::ALL).await;
    let back = ada.get(&address).await.returned("code").unwrap();
    let token = common::exchange(app, &client, &back).await;
    let token = token.text("access_token");
    let body = serde_json::json!({ "slug": "acme" });
    let path = "/admin/vaults/acme/pin/reset";
    let asked = desk.ask_once(&token, "POST", path, Some(&body)).await;
    assert_eq!(asked.short(), "403 confirmation_needed");
    let url = asked.json()["confirmation"]["url"]
        .as_str()
        .unwrap()
        .to_owned();
    let page = url.strip_prefix(app.config.public_url.origin()).unwrap();
    let shown = ada.get(page).await;
    assert_eq!(shown.page(), "200 Confirm this?");
    let done = ada.fill(
        &shown,
        "/account/confirm",
        &[("decision", "confirm"), ("sure", "yes")],
    );
    assert_eq!(done.await.page(), "200 Confirmed");
    let reset = desk.ask_once(&token, "POST", path, Some(&body)).await;
    assert_eq!(reset.short(), "200");
}

/// Whoever has the password guesses codes without end. That must not keep the person out who signed
/// in with a code before.
#[tokio::test]
async fn guesses_of_codes_are_bounded_and_lock_out_no_browser_that_passed_before() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let (secret, _) = turn_on(&desk, ADA).await;
    // A browser with the password alone, from before the second factor, is a stranger to it.
    desk.world.clock.advance(900 - desk.unix() % 900);
    let mut ada = Visitor::new(app);
    let good = code(&secret, desk.unix());
    assert_eq!(sign_in(&mut ada, ADA, &good).await.status, 303);
    desk.world.clock.advance(900);
    let mut thief = Visitor::new(app);
    let page = thief.get("/account").await;
    let mut page = thief.log_in(&page, ADA, PASSWORD).await;
    for n in 0..11 {
        let reply = enter(&mut thief, &page, "000000").await;
        assert_eq!(reply.status, if n < 10 { 422 } else { 429 });
        page = if n < 10 { reply } else { page };
    }
    let good = code(&secret, desk.unix());
    assert_eq!(enter(&mut thief, &page, &good).await.status, 429);
    let mut elsewhere = Visitor::new(app);
    assert_eq!(sign_in(&mut elsewhere, ADA, &good).await.status, 429);
    // The browser that passed before has tries of its own, and no more than others.
    ada.cookie = None;
    let page = ada.get("/account").await;
    let mut half = ada.log_in(&page, ADA, PASSWORD).await;
    for _ in 0..9 {
        half = enter(&mut ada, &half, "000000").await;
        assert_eq!(half.status, 422);
    }
    assert_eq!(enter(&mut ada, &half, &good).await.status, 303);
    ada.cookie = None;
    desk.world.clock.advance(30);
    let good = code(&secret, desk.unix());
    assert_eq!(sign_in(&mut ada, ADA, &good).await.status, 429);
    desk.world.clock.advance(900);
    let good = code(&secret, desk.unix());
    assert_eq!(
        sign_in(&mut Visitor::new(app), ADA, &good).await.status,
        303
    );
}

/// Whoever has the password can make the codes of the app wait, but not the recovery codes of the
/// person who lost the app.
#[tokio::test]
async fn guesses_of_codes_make_no_recovery_code_wait() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let (_, recovery) = turn_on(&desk, ADA).await;
    desk.world.clock.advance(900 - desk.unix() % 900);
    let mut thief = Visitor::new(app);
    thief.source = "198.51.100.1".parse().ok();
    let page = thief.get("/account").await;
    let page = thief.log_in(&page, ADA, PASSWORD).await;
    for n in 0..11 {
        let reply = enter(&mut thief, &page, "000000").await;
        let wanted = if n < 10 { (422, "") } else { (429, "900") };
        assert_eq!((reply.status, reply.header("retry-after")), wanted, "{n}");
        let says = "or enter a recovery code";
        assert_eq!(reply.body.contains(says), n == 10, "{}", reply.body);
    }
    assert_eq!(desk.count("account.sign-in rate_limited_code").await, 1);
    for n in 0..11 {
        let reply = enter(&mut thief, &page, "aaaa-bbbb-cccc-dddd").await;
        assert_eq!(reply.status, if n < 10 { 422 } else { 429 }, "{n}");
    }
    for code in [&recovery[0], &recovery[1].to_uppercase().replace('-', " ")] {
        let mut ada = Visitor::new(app);
        ada.source = "192.0.2.7".parse().ok();
        assert_eq!(sign_in(&mut ada, ADA, code).await.status, 303, "{code}");
    }
}

/// Whoever finds a browser open has neither the password nor the app.
#[tokio::test]
async fn the_second_factor_is_changed_with_the_password_and_a_code_alone() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let (secret, recovery) = turn_on(&desk, ADA).await;
    desk.world.clock.advance(60);
    let mut ada = Visitor::new(app);
    sign_in(&mut ada, ADA, &code(&secret, desk.unix())).await;
    desk.world.clock.advance(60);
    let page = ada.get(PATH).await;
    let fresh = page.hidden(PATH, "secret");
    let (now, new) = (code(&secret, desk.unix()), code(&fresh, desk.unix()));
    let factor = common::account(app, ADA).await.second_factor;
    for (what, typed, new_code, password) in [
        ("move", now.as_str(), new.as_str(), ""),
        ("move", now.as_str(), new.as_str(), "not the password"),
        ("move", "000000", new.as_str(), PASSWORD),
        ("move", now.as_str(), "000000", PASSWORD),
        ("off", now.as_str(), "", ""),
        ("off", "000000", "", PASSWORD),
        ("on", "", new.as_str(), PASSWORD),
    ] {
        let fields = [
            ("change", what),
            ("secret", fresh.as_str()),
            ("code", typed),
            ("new_code", new_code),
            ("password", password),
        ];
        let refused = change(&mut ada, &page, &fields).await;
        let wanted = if what == "on" { 409 } else { 422 };
        assert_eq!(refused.status, wanted, "{what} {typed} {password}");
        let held = common::account(app, ADA).await.second_factor;
        assert_eq!(held, factor, "{what} {typed} {password}");
    }
    let wrong = desk.count("account.second-factor wrong_password").await;
    assert_eq!(wrong, 2 + 3, "of setting it up, too");
    // To another app, with a recovery code: the former app and its codes are no good any more.
    let fields = [
        ("change", "move"),
        ("secret", fresh.as_str()),
        ("code", &recovery[0]),
        ("new_code", &new),
        ("password", PASSWORD),
    ];
    let moved = change(&mut ada, &page, &fields).await;
    assert_eq!(moved.status, 200, "{}", moved.body);
    let others = recovery_codes(&moved);
    assert_eq!(desk.count("account.second-factor-moved done").await, 1);
    desk.world.clock.advance(60);
    for (typed, status) in [
        (code(&secret, desk.unix()), 422),
        (recovery[1].clone(), 422),
        (code(&fresh, desk.unix()), 303),
        (others[0].clone(), 303),
    ] {
        let reply = sign_in(&mut Visitor::new(app), ADA, &typed).await;
        assert_eq!(reply.status, status, "{typed}");
    }
    // And off, in the browser that is still signed in.
    desk.world.clock.advance(60);
    let page = ada.get(PATH).await;
    let typed = code(&fresh, desk.unix());
    let fields = [
        ("change", "off"),
        ("code", typed.as_str()),
        ("password", PASSWORD),
    ];
    let off = change(&mut ada, &page, &fields).await;
    assert_eq!(off.status, 303, "{}", off.body);
    assert_eq!(common::account(app, ADA).await.second_factor, None);
    account_page(&desk, ADA, PASSWORD).await;
}

/// With a second factor, credentials are password and code. Who finds a browser open and knows the
/// password must not take a way to sign in away.
#[tokio::test]
async fn a_changed_password_is_no_fresh_sign_in_without_the_code() {
    for with_factor in [false, true] {
        let desk = empty_desk().await;
        let app = &desk.world.app;
        let sign_in_id = common::connected(app, ADA, "ada at the provider").await;
        let mut ada = Visitor::new(app);
        if with_factor {
            let (secret, _) = turn_on(&desk, ADA).await;
            desk.world.clock.advance(60);
            sign_in(&mut ada, ADA, &code(&secret, desk.unix())).await;
        } else {
            let page = ada.get("/account").await;
            ada.log_in(&page, ADA, PASSWORD).await;
        }
        desk.world.clock.advance(300);
        let page = ada.get("/oauth/password").await;
        let csrf = page.hidden("/oauth/password", "csrf");
        let fields = [
            ("csrf", csrf.as_str()),
            ("current", PASSWORD),
            ("password", "another good password"),
        ];
        assert_eq!(ada.post("/oauth/password", &fields).await.status, 200);
        let page = ada.get("/account").await;
        let csrf = page.hidden("/account/sign-out", "csrf");
        let fields = [("csrf", csrf.as_str()), ("sign_in", &sign_in_id)];
        let ended = ada.post("/account/sign-ins", &fields).await;
        let wanted = if with_factor { "200 Sign in" } else { "303 " };
        assert_eq!(ended.page(), wanted);
    }
}

#[tokio::test]
async fn an_operator_s_reset_removes_the_second_factor() {
    let desk = empty_desk().await;
    turn_on(&desk, ADA).await;
    let operator = desk.operator().await;
    let reset = about(&desk, &operator, ADA, "reset").await;
    assert_eq!(reset.json()["second_factor"], serde_json::json!(false));
    common::set_password(
        &desk.world.app,
        reset.json()["invite_url"].as_str().unwrap(),
    )
    .await;
    account_page(&desk, ADA, PASSWORD).await;
}

/// A desk of a service that requires a second factor from now on, over the same records.
pub fn requiring(desk: &Desk) -> Desk {
    let mut app = desk.world.app.clone();
    let mut config = (*app.config).clone();
    config.second_factor = SecondFactorPolicy::Owners;
    app.config = std::sync::Arc::new(config);
    Desk {
        world: World {
            router: vault_service::router(app.clone()),
            app,
            clock: desk.world.clock.clone(),
            memory: desk.world.memory.clone(),
        },
        acme: desk.acme.clone(),
        other: desk.other.clone(),
        commits: desk.commits.clone(),
        owner: desk.owner.clone(),
    }
}

#[tokio::test]
async fn a_service_can_require_it_of_owners_and_operators() {
    let desk = requiring(&empty_desk().await);
    let app = &desk.world.app;
    let acme = reference(&desk.acme);
    common::member(app, BOB, &acme, Role::Member, Scopes::ALL).await;
    let client = register(app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let operators = authorize(&client, CALLBACK, &[("scope", "operator")]);
    for (address, email, password, wanted) in [
        (&address, ADA, PASSWORD, "Set up a second factor"),
        (&address, OWNER, OWNER_PASSWORD, "Set up a second factor"),
        (&operators, OWNER, OWNER_PASSWORD, "Set up a second factor"),
        (&address, BOB, PASSWORD, "Allow this app to use your vault?"),
    ] {
        let asked = Visitor::new(app).arrive(address, email, password).await;
        assert_eq!(asked.heading(), wanted, "{email}");
    }
    // A browser that signed in before it was set up is asked again; the one that set it up is not.
    let mut before = Visitor::new(app);
    before.arrive(&address, ADA, PASSWORD).await;
    let (secret, _) = turn_on(&desk, ADA).await;
    assert_eq!(before.get(&address).await.heading(), "Sign in");
    desk.world.clock.advance(60);
    let page = before.get(&address).await;
    let half = before.log_in(&page, ADA, PASSWORD).await;
    let back = enter(&mut before, &half, &code(&secret, desk.unix())).await;
    assert_eq!(
        (back.status, back.header("location")),
        (303, address.as_str())
    );
    let page = before.get(&address).await;
    assert_eq!(page.heading(), "Allow this app to use your vault?");
}

/// A token of before acts for an owner as little as one of today: after the setting, and after a
/// promotion.
#[tokio::test]
async fn a_token_of_a_sign_in_without_it_administers_nothing() {
    let desk = empty_desk().await;
    let operator = desk.operator().await;
    let acme = reference(&desk.acme);
    let bob = common::member(&desk.world.app, BOB, &acme, Role::Member, Scopes::ALL).await;
    let desk = requiring(&desk);
    let app = &desk.world.app;
    let bobs = token(&desk.world, BOB, "acme", Scopes::ALL).await;
    let vaults = desk.ask(&bobs, "GET", "/admin/vaults", None).await;
    assert_eq!(vaults.status, 200, "a member needs none");
    let promoted = User {
        role: Role::Owner,
        ..bob.clone()
    };
    common::put(app, bob.key(), &promoted).await;
    let list = "/admin/operator/accounts";
    let deny = "/admin/vaults/acme/devices/deny-pending";
    for (token, method, path, scope) in [
        (&desk.owner, "GET", "/admin/users", "read write"),
        (&desk.owner, "POST", deny, "read write"),
        (&bobs, "GET", "/admin/users", "read write"),
        (&operator, "GET", list, "read write operator"),
        (&operator, "POST", list, "read write operator"),
    ] {
        let refused = desk.ask(token, method, path, None).await;
        assert_eq!(refused.short(), "403 second_factor_required", "{path}");
        let challenge = refused.header("www-authenticate");
        for told in [
            "error=\"insufficient_user_authentication\"",
            "acr_values=\"second_factor\"",
            &format!("scope=\"{scope}\""),
        ] {
            assert!(challenge.contains(told), "{challenge}");
        }
    }
    for token in [&desk.owner, &operator] {
        let vaults = desk.ask(token, "GET", "/admin/vaults", None).await;
        assert_eq!(vaults.status, 200, "of the account's own");
    }
    // Signed in with it, both act again.
    for (email, slug, path) in [(BOB, "acme", "/admin/users")] {
        let (secret, _) = turn_on(&desk, email).await;
        desk.world.clock.advance(60);
        let client = register(app, CALLBACK).await;
        let address = authorize(&client, CALLBACK, &[("vault_namespace", slug)]);
        let mut visitor = Visitor::new(app);
        let page = visitor.get(&address).await;
        let half = visitor.log_in(&page, email, PASSWORD).await;
        enter(&mut visitor, &half, &code(&secret, desk.unix())).await;
        let page = visitor.get(&address).await;
        visitor.allow(&page, slug, Scopes::ALL).await;
        let code = visitor.get(&address).await.returned("code").unwrap();
        let tokens = Tokens::of(&client, &common::exchange(app, &client, &code).await);
        let refreshed = common::refresh(app, &client, &tokens.refresh).await;
        for token in [tokens.access, refreshed.text("access_token")] {
            let listed = desk.ask(&token, "GET", path, None).await;
            assert_eq!(listed.status, 200, "{email}");
        }
    }
}

/// Whom the service requires it of cannot turn it off, and can move it to another app.
#[tokio::test]
async fn an_owner_cannot_turn_a_required_one_off() {
    let desk = empty_desk().await;
    let acme = reference(&desk.acme);
    common::member(&desk.world.app, BOB, &acme, Role::Member, Scopes::ALL).await;
    let desk = requiring(&desk);
    let app = &desk.world.app;
    for (email, status) in [(ADA, 403), (BOB, 303)] {
        let (secret, _) = turn_on(&desk, email).await;
        desk.world.clock.advance(60);
        let mut visitor = Visitor::new(app);
        sign_in(&mut visitor, email, &code(&secret, desk.unix())).await;
        desk.world.clock.advance(60);
        let page = visitor.get(PATH).await;
        let offered = page.body.contains("value=\"off\"");
        assert_eq!(offered, status == 303, "{}", page.body);
        let typed = code(&secret, desk.unix());
        let fields = [("change", "off"), ("code", &typed), ("password", PASSWORD)];
        let off = change(&mut visitor, &page, &fields).await;
        assert_eq!(off.status, status, "{email} {}", off.body);
        let held = common::account(app, email).await.second_factor;
        assert_eq!(held.is_some(), status == 403);
    }
}

/// An app may ask for a sign-in with it, of anybody (RFC 9470).
#[tokio::test]
async fn an_app_asks_for_it_with_acr_values() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let client = register(app, CALLBACK).await;
    let acr = [("acr_values", "x second_factor")];
    let address = authorize(&client, CALLBACK, &acr);
    let due = Visitor::new(app).arrive(&address, ADA, PASSWORD).await;
    assert_eq!(due.heading(), "Set up a second factor");
    turn_on(&desk, ADA).await;
    let documents = common::get(app, "/.well-known/oauth-authorization-server").await;
    let supported = &documents.json()["acr_values_supported"];
    assert_eq!(*supported, serde_json::json!(["second_factor"]));
}
