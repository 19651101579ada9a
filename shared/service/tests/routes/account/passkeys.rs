//! Passkeys: added and removed at `/account/passkeys`, as sign-in without an address, and in place of
//! the code of a second factor.

use base64::Engine as _;
use vault_service::config::SecondFactorPolicy;
use vault_service::model::account::{Account, account_key};
use vault_service::model::passkey::{MAX_PASSKEYS, passkey_id, passkey_key};
use vault_service::model::user::{Role, Scopes};

use super::second_factor::{code, enter, turn_on};
use super::{about, account_page};
use crate::admin::{ADA, BOB, Desk, desk_of, empty_desk, reference};
use crate::authenticator::{Authenticator, Forgery, options};
use crate::common::{self, CALLBACK, PASSWORD, Reply, Visitor, authorize, register};

const PATH: &str = "/account/passkeys";
const NEW: &str = "/account/passkeys/new";
const REMOVE: &str = "/account/passkeys/remove";
const ASK: &str = "/oauth/passkey";
const ANSWER: &str = "/oauth/passkey/answer";
const ORIGIN: &str = "https://vault.example";

/// Opens the page that makes a passkey.
async fn begin(visitor: &mut Visitor<'_>, name: &str) -> Reply {
    let page = visitor.get(PATH).await;
    assert_eq!(page.page(), "200 Passkeys", "{}", page.body);
    let csrf = page.hidden(NEW, "csrf");
    let fields = [("csrf", csrf.as_str()), ("name", name)];
    visitor.post(NEW, &fields).await
}

/// Sends what the authenticator made.
async fn finish(visitor: &mut Visitor<'_>, page: &Reply, credential: &str) -> Reply {
    let csrf = page.hidden(PATH, "csrf");
    let fields = [("csrf", csrf.as_str()), ("credential", credential)];
    visitor.post(PATH, &fields).await
}

/// Adds a passkey in a browser that signed in just now.
pub async fn add(visitor: &mut Visitor<'_>, key: &mut Authenticator, name: &str) {
    let page = begin(visitor, name).await;
    assert_eq!(page.page(), "200 Add a passkey", "{}", page.body);
    let credential = key.make(&options(&page), &Forgery::default());
    let added = finish(visitor, &page, &credential).await;
    assert_eq!((added.status, added.header("location")), (303, PATH));
}

/// A person with one passkey, and a signed-in browser.
pub async fn with_passkey<'a>(desk: &'a Desk, email: &str) -> (Visitor<'a>, Authenticator) {
    let (mut visitor, _) = account_page(desk, email, PASSWORD).await;
    let mut key = Authenticator::new(ORIGIN);
    add(&mut visitor, &mut key, "Phone").await;
    (visitor, key)
}

/// Presses the button on a page that offers a passkey.
pub async fn ask(visitor: &mut Visitor<'_>, page: &Reply) -> Reply {
    let step = page.hidden(ASK, "step");
    let asked = visitor.fill(page, ASK, &[("step", &step)]).await;
    assert_eq!(asked.page(), "200 Use a passkey", "{}", asked.body);
    asked
}

/// Sends what the authenticator signed.
pub async fn answer(visitor: &mut Visitor<'_>, page: &Reply, credential: &str) -> Reply {
    let step = page.hidden(ANSWER, "step");
    let fields = [("step", step.as_str()), ("credential", credential)];
    visitor.fill(page, ANSWER, &fields).await
}

/// The page that asks a new browser for a passkey, on the way to the account page.
pub async fn asked(visitor: &mut Visitor<'_>) -> Reply {
    let page = visitor.get("/account").await;
    ask(visitor, &page).await
}

async fn sign_in(visitor: &mut Visitor<'_>, key: &mut Authenticator) -> Reply {
    let page = asked(visitor).await;
    let credential = key.sign(&options(&page), &Forgery::default());
    answer(visitor, &page, &credential).await
}

async fn held(desk: &Desk, email: &str) -> usize {
    let account = common::account(&desk.world.app, email).await;
    account.passkeys.as_slice().len()
}

async fn change_account(desk: &Desk, email: &str, change: impl FnOnce(&mut Account)) {
    let mut account = common::account(&desk.world.app, email).await;
    change(&mut account);
    common::put(&desk.world.app, account_key(&account.id), &account).await;
}

#[tokio::test]
async fn a_passkey_signs_in_without_an_address_and_counts_as_two_factors() {
    let desk = empty_desk().await;
    let (_, mut key) = with_passkey(&desk, ADA).await;
    assert_eq!(desk.count("account.passkey-added done").await, 1);
    desk.world.clock.advance(24 * 3600);
    let mut ada = Visitor::new(&desk.world.app);
    let page = asked(&mut ada).await;
    assert_eq!(
        options(&page)["allowCredentials"],
        serde_json::json!([]),
        "the page tells nothing about accounts"
    );
    let credential = key.sign(&options(&page), &Forgery::default());
    // A process that remembers nothing, as on AWS.
    let elsewhere = desk.world.restarted();
    let mut there = Visitor::new(&elsewhere.app);
    there.cookie.clone_from(&ada.cookie);
    let back = answer(&mut there, &page, &credential).await;
    assert_eq!((back.status, back.header("location")), (303, "/account"));
    let page = there.get("/account").await;
    assert_eq!(page.heading(), "Your account");
    assert!(page.body.contains("Passkeys (1)"), "{}", page.body);
    assert_eq!(desk.count("account.sign-in-by-passkey done").await, 1);
    let page = there.get(PATH).await;
    assert!(page.body.contains("last used "), "{}", page.body);
    // The sign-in is a fresh one with every factor.
    let page = begin(&mut there, "Laptop").await;
    assert_eq!(page.page(), "200 Add a passkey");
}

#[tokio::test]
async fn a_passkey_stands_for_the_code_of_the_second_factor() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let (_, mut key) = with_passkey(&desk, ADA).await;
    turn_on(&desk, ADA).await;
    let mut ada = Visitor::new(app);
    let page = ada.get("/account").await;
    let half = ada.log_in(&page, ADA, PASSWORD).await;
    assert_eq!(half.heading(), "Enter a code");
    let page = ask(&mut ada, &half).await;
    assert_eq!(
        options(&page)["allowCredentials"][0]["id"],
        serde_json::from_str::<serde_json::Value>(&key.sign(&options(&page), &Forgery::default()))
            .unwrap()["id"],
    );
    assert!(
        page.body.contains("/oauth/second-factor\""),
        "a code does as well"
    );
    assert_eq!(ada.get("/account").await.heading(), "Sign in");
    let credential = key.sign(&options(&page), &Forgery::default());
    let back = answer(&mut ada, &page, &credential).await;
    assert_eq!((back.status, back.header("location")), (303, "/account"));
    assert_eq!(ada.get("/account").await.heading(), "Your account");
    // A passkey alone is enough, too.
    let back = sign_in(&mut Visitor::new(app), &mut key).await;
    assert_eq!(back.status, 303);
    // An account without passkeys is not offered one.
    common::member(app, BOB, &reference(&desk.acme), Role::Member, Scopes::ALL).await;
    turn_on(&desk, BOB).await;
    let mut bob = Visitor::new(app);
    let page = bob.get("/account").await;
    let half = bob.log_in(&page, BOB, PASSWORD).await;
    assert!(!half.body.contains(ASK), "{}", half.body);
}

/// The consent page of an app that asks for fresh credentials and a second factor.
#[tokio::test]
async fn an_app_that_asks_for_a_fresh_sign_in_with_two_factors_gets_a_passkey() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let (_, mut key) = with_passkey(&desk, ADA).await;
    let client = register(app, CALLBACK).await;
    let more = [("prompt", "login"), ("acr_values", "second_factor")];
    let address = authorize(&client, CALLBACK, &more);
    let mut ada = Visitor::new(app);
    // The password alone is not enough, and the page says what is.
    let page = ada.get(&address).await;
    ada.log_in(&page, ADA, PASSWORD).await;
    let page = ada.get(&address).await;
    assert_eq!(page.heading(), "Sign in");
    assert!(
        page.body.contains("sign in with a passkey."),
        "{}",
        page.body
    );
    let page = ask(&mut ada, &page).await;
    let policy = page.header("content-security-policy");
    assert!(
        policy.contains("form-action 'self' https://app.example"),
        "the redirects after the form may end at the app: {policy}"
    );
    let credential = key.sign(&options(&page), &Forgery::default());
    let back = answer(&mut ada, &page, &credential).await;
    assert_eq!(back.header("location"), address);
    let page = ada.get(&address).await;
    assert_eq!(page.heading(), "Allow this app to use your vault?");
}

#[tokio::test]
async fn only_the_two_passkey_pages_have_a_script_and_it_is_allowed_by_its_hash() {
    let desk = empty_desk().await;
    let (mut ada, _) = with_passkey(&desk, ADA).await;
    let list = ada.get(PATH).await;
    let new = begin(&mut ada, "Laptop").await;
    let mut other = Visitor::new(&desk.world.app);
    let sign_in = other.get("/account").await;
    let use_page = ask(&mut other, &sign_in).await;
    for (page, has_script) in [(&list, 0), (&sign_in, 0), (&new, 1), (&use_page, 1)] {
        let policy = page.header("content-security-policy");
        assert_eq!(page.body.matches("<script").count(), has_script);
        assert_eq!(policy.matches("script-src").count(), has_script, "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        if has_script == 1 {
            let script = page.body.split("<script>").nth(1).unwrap();
            let script = script.split("</script>").next().unwrap();
            let hash = ring::digest::digest(&ring::digest::SHA256, script.as_bytes());
            let hash = base64::engine::general_purpose::STANDARD.encode(hash);
            let source = format!("script-src 'sha256-{hash}';");
            assert!(policy.contains(&source), "{policy}");
        }
    }
}

#[tokio::test]
async fn a_change_needs_a_sign_in_of_the_last_five_minutes_with_every_factor() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let (mut ada, mut key) = with_passkey(&desk, ADA).await;
    let list = ada.get(PATH).await;
    let csrf = list.hidden(NEW, "csrf");
    let id = list.hidden(REMOVE, "passkey");
    let remove = [("csrf", csrf.as_str()), ("passkey", id.as_str())];
    let new = [("csrf", csrf.as_str()), ("name", "Laptop")];
    desk.world.clock.advance(300);
    for (path, fields) in [(NEW, new), (REMOVE, remove)] {
        let refused = ada.post(path, &fields).await;
        assert_eq!(refused.page(), "403 Sign in", "{path}");
        assert!(refused.body.contains("sign in again"), "{}", refused.body);
    }
    assert_eq!(held(&desk, ADA).await, 1);
    // The password alone is no fresh sign-in of an account with a second factor: neither from before
    // it was set up, nor after a change of the password.
    let (secret, _) = turn_on(&desk, ADA).await;
    desk.world.clock.advance(60);
    let mut ada = Visitor::new(app);
    let page = ada.get("/account").await;
    let half = ada.log_in(&page, ADA, PASSWORD).await;
    let typed = code(&secret, desk.world.now().unix());
    assert_eq!(enter(&mut ada, &half, &typed).await.status, 303);
    desk.world.clock.advance(300);
    let page = ada.get("/oauth/password").await;
    let csrf = page.hidden("/oauth/password", "csrf");
    let changed = "another good password";
    let fields = [
        ("csrf", csrf.as_str()),
        ("current", PASSWORD),
        ("password", changed),
    ];
    assert_eq!(ada.post("/oauth/password", &fields).await.status, 200);
    let refused = begin(&mut ada, "Laptop").await;
    assert_eq!(refused.page(), "403 Sign in");
    // The sign-in page that was shown leads back, and a passkey is a good answer there.
    let page = ask(&mut ada, &refused).await;
    let credential = key.sign(&options(&page), &Forgery::default());
    let back = answer(&mut ada, &page, &credential).await;
    assert_eq!((back.status, back.header("location")), (303, PATH));
    add(&mut ada, &mut Authenticator::new(ORIGIN), "Laptop").await;
    assert_eq!(held(&desk, ADA).await, 2);
}

#[tokio::test]
async fn an_account_has_ten_passkeys_with_names_that_people_can_read() {
    let desk = empty_desk().await;
    let (mut ada, _) = account_page(&desk, ADA, PASSWORD).await;
    for name in ["", "   ", "a\u{202e}b", &"x".repeat(65)] {
        let refused = begin(&mut ada, name).await;
        assert_eq!(refused.page(), "422 Passkeys", "{name:?}");
        assert!(refused.body.contains("1 to 64 characters"));
    }
    let long = "\u{fc}".repeat(64);
    for n in 0..MAX_PASSKEYS - 1 {
        let name = if n == 0 { long.clone() } else { n.to_string() };
        add(&mut ada, &mut Authenticator::new(ORIGIN), &name).await;
    }
    // Two pages that were opened while there was room for one more: the second one comes too late.
    let (mut one, mut two) = (Authenticator::new(ORIGIN), Authenticator::new(ORIGIN));
    let (mut other, _) = account_page(&desk, ADA, PASSWORD).await;
    let open = begin(&mut other, "eleventh").await;
    add(&mut ada, &mut one, "tenth").await;
    let credential = two.make(&options(&open), &Forgery::default());
    let refused = finish(&mut other, &open, &credential).await;
    assert_eq!(refused.page(), "409 Passkeys");
    assert_eq!(held(&desk, ADA).await, MAX_PASSKEYS);
    let page = ada.get(PATH).await;
    assert!(page.body.contains(&long) && !page.body.contains(NEW));
    let csrf = page.hidden(REMOVE, "csrf");
    let fields = [("csrf", csrf.as_str()), ("name", "more")];
    assert_eq!(ada.post(NEW, &fields).await.page(), "409 Passkeys");
}

#[tokio::test]
async fn a_removed_passkey_signs_nobody_in_and_ends_other_browsers() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let (mut ada, mut key) = with_passkey(&desk, ADA).await;
    let mut thief = Visitor::new(app);
    assert_eq!(sign_in(&mut thief, &mut key).await.status, 303);
    let page = ada.get(PATH).await;
    let fields = ["csrf", "passkey"].map(|name| (name, page.hidden(REMOVE, name)));
    let fields = fields
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    let removed = ada.post(REMOVE, &fields).await;
    assert_eq!((removed.status, removed.header("location")), (303, PATH));
    assert_eq!(ada.get(PATH).await.heading(), "Passkeys");
    assert_eq!(thief.get("/account").await.heading(), "Sign in");
    assert_eq!(sign_in(&mut thief, &mut key).await.status, 422);
    assert_eq!(held(&desk, ADA).await, 0);
    assert_eq!(desk.count("account.passkey-removed done").await, 1);
    let id = passkey_id(&key.held[0].id);
    let entry = app.records.get_one(&passkey_key(&id)).await.unwrap();
    assert!(entry.is_none());
}

#[tokio::test]
async fn an_operator_s_reset_and_deletion_remove_passkeys_and_a_disabled_account_has_none_that_count()
 {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let operator = desk.operator().await;
    let (_, mut key) = with_passkey(&desk, ADA).await;
    about(&desk, &operator, ADA, "disable").await;
    let refused = sign_in(&mut Visitor::new(app), &mut key).await;
    assert_eq!(refused.page(), "422 Use a passkey");
    assert_eq!(desk.count("account.sign-in account_disabled").await, 1);
    about(&desk, &operator, ADA, "enable").await;
    assert_eq!(sign_in(&mut Visitor::new(app), &mut key).await.status, 303);
    let reset = about(&desk, &operator, ADA, "reset").await;
    assert_eq!(held(&desk, ADA).await, 0);
    assert_eq!(sign_in(&mut Visitor::new(app), &mut key).await.status, 422);
    let link = reset.json()["invite_url"].as_str().unwrap().to_owned();
    common::set_password(app, &link).await;
    assert_eq!(sign_in(&mut Visitor::new(app), &mut key).await.status, 422);
    // The id is free again, and the account gets another name in the authenticator.
    let (mut ada, _) = account_page(&desk, ADA, PASSWORD).await;
    let page = begin(&mut ada, "Phone").await;
    let again = Forgery {
        id: Some(key.held[0].id.clone()),
        ..Forgery::default()
    };
    let mut other = Authenticator::new(ORIGIN);
    let credential = other.make(&options(&page), &again);
    assert_eq!(finish(&mut ada, &page, &credential).await.status, 303);
    assert_ne!(key.held[0].user, other.held[0].user);
    // A deleted account leaves no entry behind.
    let operator = desk.operator().await;
    common::member(app, BOB, &reference(&desk.acme), Role::Owner, Scopes::ALL).await;
    let (_, key) = with_passkey(&desk, BOB).await;
    let path = format!("/admin/operator/accounts/{BOB}");
    let deleted = desk.ask(&operator, "DELETE", &path, None).await;
    assert_eq!(deleted.status, 200, "{}", deleted.short());
    let id = passkey_id(&key.held[0].id);
    let entry = app.records.get_one(&passkey_key(&id)).await.unwrap();
    assert!(entry.is_none());
}

/// A reset between the page and the answer must not leave a passkey behind.
#[tokio::test]
async fn a_passkey_that_was_begun_before_a_reset_is_not_added() {
    let desk = empty_desk().await;
    let (mut ada, _) = account_page(&desk, ADA, PASSWORD).await;
    let page = begin(&mut ada, "Phone").await;
    let mut key = Authenticator::new(ORIGIN);
    let credential = key.make(&options(&page), &Forgery::default());
    change_account(&desk, ADA, Account::raise_epoch).await;
    let refused = finish(&mut ada, &page, &credential).await;
    assert_eq!((refused.status, refused.header("location")), (303, PATH));
    assert_eq!(ada.get(PATH).await.heading(), "Sign in");
    assert_eq!(held(&desk, ADA).await, 0);
}

#[tokio::test]
async fn an_ip_address_has_no_passkeys_and_the_page_says_so() {
    let kind = vault_service::model::namespace::Kind::Hosted;
    let set = |config: &mut vault_service::config::Config| {
        config.public_url = "http://127.0.0.1:8080".parse().unwrap();
    };
    let desk = desk_of(kind, set).await;
    let mut ada = Visitor::new(&desk.world.app);
    let page = ada.get("/account").await;
    assert!(!page.body.contains(ASK), "{}", page.body);
    let csrf = page.hidden("/oauth/login", "csrf");
    let fields = [
        ("csrf", csrf.as_str()),
        ("return_to", "/account"),
        ("step", "sign-in"),
    ];
    let refused = ada.post(ASK, &fields).await;
    assert_eq!(refused.page(), "404 Passkeys do not work here");
    ada.log_in(&page, ADA, PASSWORD).await;
    let page = ada.get(PATH).await;
    assert!(
        page.body.contains("Passkeys do not work at 127.0.0.1:")
            && page.body.contains("<code>http://localhost:8080</code>"),
        "{}",
        page.body
    );
    let csrf = page.hidden("/oauth/logout", "csrf");
    let fields = [("csrf", csrf.as_str()), ("name", "Phone")];
    assert_eq!(ada.post(NEW, &fields).await.status, 403, "another form");
}

/// For owners, a service may require a second factor. A passkey is one.
#[tokio::test]
async fn a_service_that_requires_two_factors_is_content_with_a_passkey() {
    let kind = vault_service::model::namespace::Kind::Hosted;
    let desk = desk_of(kind, |_| {}).await;
    let (_, mut key) = with_passkey(&desk, ADA).await;
    let desk = super::second_factor::requiring(&desk);
    assert_eq!(
        desk.world.app.config.second_factor,
        SecondFactorPolicy::Owners
    );
    let mut ada = Visitor::new(&desk.world.app);
    let page = ada.get("/console/acme").await;
    ada.log_in(&page, ADA, PASSWORD).await;
    let page = ada.get("/console/acme").await;
    assert_eq!(page.heading(), "Sign in");
    assert!(
        page.body.contains("sign in with a passkey."),
        "{}",
        page.body
    );
    let page = ask(&mut ada, &page).await;
    let credential = key.sign(&options(&page), &Forgery::default());
    let back = answer(&mut ada, &page, &credential).await;
    assert_eq!(back.header("location"), "/console/acme");
    let page = ada.get("/console/acme").await;
    assert_eq!(page.status, 200);
    assert_ne!(page.heading(), "Sign in");
}
