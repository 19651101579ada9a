//! The second factor: set up at `/account`, asked for at sign-in, required of owners and operators by a setting.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;
use vault_service::config::SecondFactorPolicy;
use vault_service::model::namespace::Kind;
use vault_service::model::user::{Role, Scopes};

use super::{about, account_page};
use crate::admin::{ADA, BOB, Desk, desk_of, empty_desk, reference};
use crate::common::{self, CALLBACK, PASSWORD, Reply, Visitor, authorize, register};

const PATH: &str = "/account/second-factor";

/// What an authenticator app shows for the text of a secret: written anew, so that it checks the service's own.
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

/// Turns the second factor on; its secret and the recovery codes.
async fn turn_on(desk: &Desk, email: &str) -> (String, Vec<String>) {
    let (mut visitor, _) = account_page(desk, email, PASSWORD).await;
    let page = visitor.get(PATH).await;
    let csrf = page.hidden(PATH, "csrf");
    let secret = page.hidden(PATH, "secret");
    assert!(
        page.body.contains("otpauth://totp/vault.example:"),
        "{}",
        page.body
    );
    for (typed, status) in [
        ("000000".to_owned(), 422),
        (code(&secret, desk.unix()), 200),
    ] {
        let fields = [
            ("csrf", csrf.as_str()),
            ("secret", &secret),
            ("code", &typed),
        ];
        let reply = visitor.post(PATH, &fields).await;
        assert_eq!(reply.status, status, "{}", reply.body);
        if status == 200 {
            let codes = reply.body.split("<li><code>").skip(1);
            let codes: Vec<_> = codes.map(|code| code[..19].to_owned()).collect();
            assert_eq!(codes.len(), 10, "{}", reply.body);
            return (secret, codes);
        }
    }
    unreachable!("the second code is good")
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

async fn enter(visitor: &mut Visitor<'_>, page: &Reply, typed: &str) -> Reply {
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

/// With a second factor, credentials are password and code: neither a session of before nor the password alone makes a token fresh.
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
    for (wait, wanted) in [(299, "200"), (1, "403 fresh_sign_in_required")] {
        desk.world.clock.advance(wait);
        let reset = desk.ask(&token, "POST", path, Some(&body)).await;
        assert_eq!(reset.short(), wanted);
    }
}

#[tokio::test]
async fn guesses_of_codes_are_bounded() {
    let desk = empty_desk().await;
    let (secret, _) = turn_on(&desk, ADA).await;
    desk.world.clock.advance(900 - desk.unix() % 900);
    let mut visitor = Visitor::new(&desk.world.app);
    let mut page = visitor.get("/account").await;
    page = visitor.log_in(&page, ADA, PASSWORD).await;
    for _ in 0..10 {
        page = enter(&mut visitor, &page, "000000").await;
        assert_eq!(page.status, 422);
    }
    let good = code(&secret, desk.unix());
    assert_eq!(enter(&mut visitor, &page, &good).await.status, 429);
    desk.world.clock.advance(900);
    let good = code(&secret, desk.unix());
    assert_eq!(
        sign_in(&mut Visitor::new(&desk.world.app), ADA, &good)
            .await
            .status,
        303
    );
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

#[tokio::test]
async fn a_service_can_require_it_of_owners_and_operators() {
    let desk = desk_of(Kind::Hosted, |_| {}).await;
    let acme = reference(&desk.acme);
    let app = &mut desk.world.app.clone();
    common::member(app, BOB, &acme, Role::Member, Scopes::ALL).await;
    let mut config = (*app.config).clone();
    config.second_factor = SecondFactorPolicy::Owners;
    app.config = std::sync::Arc::new(config);
    let client = register(app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let asked = Visitor::new(app).arrive(&address, ADA, PASSWORD).await;
    assert_eq!(asked.heading(), "Set up a second factor");
    let member = Visitor::new(app).arrive(&address, BOB, PASSWORD).await;
    assert_eq!(member.heading(), "Allow this app to use your vault?");
    // Once it is set up, the consent page comes after the code.
    let (secret, _) = turn_on(&desk, ADA).await;
    desk.world.clock.advance(60);
    let mut ada = Visitor::new(app);
    let page = ada.get(&address).await;
    let half = ada.log_in(&page, ADA, PASSWORD).await;
    let back = enter(&mut ada, &half, &code(&secret, desk.unix())).await;
    assert_eq!(
        (back.status, back.header("location")),
        (303, address.as_str())
    );
    let page = ada.get(&address).await;
    assert_eq!(page.heading(), "Allow this app to use your vault?");
}

/// The notice after a sign-in names what somebody else with the password would have done.
#[tokio::test]
async fn an_owner_sees_after_signing_in_what_happened_since() {
    let desk = empty_desk().await;
    let (_, page) = account_page(&desk, ADA, PASSWORD).await;
    assert!(
        page.body.contains("Your last sign-in was on"),
        "{}",
        page.body
    );
    desk.world.clock.advance(60);
    common::tokens(&desk.world.app, (ADA, PASSWORD), "acme", Scopes::READ).await;
    let reset = serde_json::json!({ "slug": "acme", "password": PASSWORD });
    assert_eq!(
        desk.post("/admin/vaults/acme/pin/reset", &reset)
            .await
            .status,
        200
    );
    let (_, page) = account_page(&desk, ADA, PASSWORD).await;
    for told in ["a new app, “An app”", "the pin was reset"] {
        assert!(page.body.contains(told), "{told}: {}", page.body);
    }
    // A member is told nothing about the vault.
    let acme = reference(&desk.acme);
    common::member(&desk.world.app, BOB, &acme, Role::Member, Scopes::ALL).await;
    account_page(&desk, BOB, PASSWORD).await;
    let (_, page) = account_page(&desk, BOB, PASSWORD).await;
    assert!(!page.body.contains("last sign-in"), "{}", page.body);
}
