//! Answers of authenticators that must not count: forged, replayed, of another person, browser,
//! page or purpose.

use vault_service::model::account::account_key;
use vault_service::model::passkey::{passkey_id, passkey_key};
use vault_service::model::user::{Role, Scopes};

use super::account_page;
use super::passkeys::{add, answer, ask, asked, with_passkey};
use super::second_factor::turn_on;
use crate::admin::{ADA, BOB, Desk, empty_desk, reference};
use crate::authenticator::{Authenticator, Forgery, options};
use crate::common::{self, PASSWORD, Reply, Visitor};
use crate::oauth::world_at;

const PATH: &str = "/account/passkeys";
const NEW: &str = "/account/passkeys/new";
const ORIGIN: &str = "https://vault.example";

/// What an authenticator or a page can claim that is not so. The flag: whether a page that adds a
/// passkey must refuse it, too.
fn forgeries() -> Vec<(&'static str, Forgery, bool)> {
    let honest = Forgery::default;
    vec![
        (
            "another origin",
            Forgery {
                origin: Some("https://evil.example"),
                ..honest()
            },
            true,
        ),
        (
            "plain http",
            Forgery {
                origin: Some("http://vault.example"),
                ..honest()
            },
            true,
        ),
        (
            "another port",
            Forgery {
                origin: Some("https://vault.example:8443"),
                ..honest()
            },
            true,
        ),
        (
            "a host below",
            Forgery {
                origin: Some("https://x.vault.example"),
                ..honest()
            },
            true,
        ),
        (
            "a frame of another site",
            Forgery {
                cross_origin: Some(true),
                ..honest()
            },
            true,
        ),
        (
            "another relying party",
            Forgery {
                rp_id: Some("evil.example"),
                ..honest()
            },
            true,
        ),
        (
            "another challenge",
            Forgery {
                challenge: Some("A".repeat(43)),
                ..honest()
            },
            true,
        ),
        (
            "an empty challenge",
            Forgery {
                challenge: Some(String::new()),
                ..honest()
            },
            true,
        ),
        (
            "a user who was not verified",
            Forgery {
                unverified: true,
                ..honest()
            },
            true,
        ),
        (
            "nobody present",
            Forgery {
                absent: true,
                ..honest()
            },
            true,
        ),
        (
            "the type of a payment",
            Forgery {
                kind: Some("payment.get"),
                ..honest()
            },
            true,
        ),
        (
            "tampered client data",
            Forgery {
                tampered: Some(true),
                ..honest()
            },
            false,
        ),
        (
            "the account of somebody else",
            Forgery {
                user: Some(vec![7; 16]),
                ..honest()
            },
            false,
        ),
        (
            "no account",
            Forgery {
                user: Some(Vec::new()),
                ..honest()
            },
            false,
        ),
        (
            "an unknown credential",
            Forgery {
                id: Some(vec![7; 32]),
                ..honest()
            },
            false,
        ),
        (
            "a counter that stands still",
            Forgery {
                counter: Some(1),
                ..honest()
            },
            false,
        ),
        (
            "a counter that went back",
            Forgery {
                counter: Some(0),
                ..honest()
            },
            false,
        ),
    ]
}

#[tokio::test]
async fn a_forged_answer_signs_nobody_in() {
    let desk = empty_desk().await;
    let (_, mut key) = with_passkey(&desk, ADA).await;
    let mut ada = Visitor::new(&desk.world.app);
    let page = asked(&mut ada).await;
    let good = key.sign(&options(&page), &Forgery::default());
    assert_eq!(answer(&mut ada, &page, &good).await.status, 303, "control");
    let mut other = Visitor::new(&desk.world.app);
    let mut page = asked(&mut other).await;
    let swapped = Forgery {
        kind: Some("webauthn.create"),
        ..Forgery::default()
    };
    let all = forgeries()
        .into_iter()
        .map(|(name, forgery, _)| (name, forgery));
    for (name, forgery) in all.chain([("the type of the other page", swapped)]) {
        let forged = key.sign(&options(&page), &forgery);
        let refused = answer(&mut other, &page, &forged).await;
        assert_eq!(refused.page(), "422 Use a passkey", "{name}");
        assert!(refused.body.contains("was not accepted"), "{name}");
        assert_eq!(other.get("/account").await.heading(), "Sign in", "{name}");
        page = refused;
    }
    for text in ["", "{}", "null", "[]", "x", "{\"id\":1}"] {
        let refused = answer(&mut other, &page, text).await;
        assert_eq!(refused.page(), "422 Use a passkey", "{text}");
        page = refused;
    }
    assert_eq!(desk.count("account.sign-in passkey_refused").await, 1);
    assert_eq!(desk.count("account.sign-in passkey_counter").await, 1);
    let good = key.sign(&options(&page), &Forgery::default());
    assert_eq!(
        answer(&mut other, &page, &good).await.status,
        303,
        "control"
    );
}

#[tokio::test]
async fn a_forged_answer_adds_no_passkey() {
    let desk = empty_desk().await;
    let (mut ada, _) = account_page(&desk, ADA, PASSWORD).await;
    let mut key = Authenticator::new(ORIGIN);
    let new = async |ada: &mut Visitor<'_>| {
        let list = ada.get(PATH).await;
        let csrf = list.hidden(NEW, "csrf");
        ada.post(NEW, &[("csrf", &csrf), ("name", "Phone")]).await
    };
    let send = async |ada: &mut Visitor<'_>, page: &Reply, text: &str| {
        let csrf = page.hidden(PATH, "csrf");
        ada.post(PATH, &[("csrf", &csrf), ("credential", text)])
            .await
    };
    let swapped = Forgery {
        kind: Some("webauthn.get"),
        ..Forgery::default()
    };
    let all = forgeries().into_iter().filter(|(_, _, adds)| *adds);
    let all = all.map(|(name, forgery, _)| (name, forgery));
    for (name, forgery) in all.chain([("the type of the other page", swapped)]) {
        let page = new(&mut ada).await;
        let forged = key.make(&options(&page), &forgery);
        let refused = send(&mut ada, &page, &forged).await;
        assert_eq!(refused.page(), "422 Passkeys", "{name}");
        // Once for each challenge, so the honest answer is late now.
        let honest = key.make(&options(&page), &Forgery::default());
        let late = send(&mut ada, &page, &honest).await;
        assert!(late.body.contains("came too late"), "{name} {}", late.body);
    }
    // The answer of a sign-in, and none at all.
    let page = new(&mut ada).await;
    let signed = key.sign(&options(&page), &Forgery::default());
    assert_eq!(send(&mut ada, &page, &signed).await.status, 422);
    let page = new(&mut ada).await;
    assert_eq!(send(&mut ada, &page, "").await.status, 422);
    let account = common::account(&desk.world.app, ADA).await;
    assert!(account.passkeys.is_empty());
    assert!(desk.count("account.passkey-added passkey_refused").await > 0);
    let page = new(&mut ada).await;
    let honest = key.make(&options(&page), &Forgery::default());
    assert_eq!(send(&mut ada, &page, &honest).await.status, 303, "control");
}

#[tokio::test]
async fn a_challenge_counts_once_for_five_minutes_in_its_browser_for_its_purpose() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let (_, mut key) = with_passkey(&desk, ADA).await;
    turn_on(&desk, ADA).await;
    let honest = Forgery::default();
    // Once: the same answer again, in the browser that it signed in and with its former cookie.
    let mut ada = Visitor::new(app);
    let page = asked(&mut ada).await;
    let before = ada.cookie.clone();
    let good = key.sign(&options(&page), &honest);
    assert_eq!(answer(&mut ada, &page, &good).await.status, 303);
    ada.cookie = before;
    let late = answer(&mut ada, &page, &good).await;
    assert_eq!(late.page(), "422 Use a passkey");
    assert!(late.body.contains("came too late"), "{}", late.body);
    // A challenge that a newer one replaced.
    let older = late;
    let newer = asked(&mut ada).await;
    let good = key.sign(&options(&older), &honest);
    assert_eq!(answer(&mut ada, &newer, &good).await.status, 422);
    // In its browser: another one has other forms, and with a form of its own another challenge.
    let page = asked(&mut ada).await;
    let good = key.sign(&options(&page), &honest);
    let mut other = Visitor::new(app);
    let theirs = asked(&mut other).await;
    assert_eq!(answer(&mut other, &page, &good).await.status, 403);
    assert_eq!(answer(&mut other, &theirs, &good).await.status, 422);
    // Five minutes.
    let page = asked(&mut ada).await;
    let good = key.sign(&options(&page), &honest);
    desk.world.clock.advance(300);
    let late = answer(&mut ada, &page, &good).await;
    assert!(late.body.contains("came too late"), "{}", late.body);
    // Its purpose: the answer to a challenge of the second factor is none of a sign-in.
    let mut half = Visitor::new(app);
    let first = half.get("/account").await;
    let asks = half.log_in(&first, ADA, PASSWORD).await;
    let second = ask(&mut half, &asks).await;
    let good = key.sign(&options(&second), &honest);
    let as_sign_in = asked(&mut half).await;
    assert_eq!(answer(&mut half, &as_sign_in, &good).await.status, 422);
    let second = ask(&mut half, &asks).await;
    let good = key.sign(&options(&second), &honest);
    desk.world.clock.advance(299);
    assert_eq!(
        answer(&mut half, &second, &good).await.status,
        303,
        "control"
    );
}

/// A password and somebody else's passkey are not two factors of one person.
#[tokio::test]
async fn the_passkey_of_another_account_completes_no_sign_in() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let (_, mut adas) = with_passkey(&desk, ADA).await;
    turn_on(&desk, ADA).await;
    common::member(app, BOB, &reference(&desk.acme), Role::Member, Scopes::ALL).await;
    let (_, mut bobs) = with_passkey(&desk, BOB).await;
    let mut thief = Visitor::new(app);
    let page = thief.get("/account").await;
    let half = thief.log_in(&page, ADA, PASSWORD).await;
    let adas_name = adas.held[0].user.clone();
    for user in [None, Some(adas_name)] {
        let page = ask(&mut thief, &half).await;
        let forgery = Forgery {
            user,
            ..Forgery::default()
        };
        let forged = bobs.sign(&options(&page), &forgery);
        assert_eq!(answer(&mut thief, &page, &forged).await.status, 422);
    }
    let page = ask(&mut thief, &half).await;
    let good = adas.sign(&options(&page), &Forgery::default());
    assert_eq!(
        answer(&mut thief, &page, &good).await.status,
        303,
        "control"
    );
}

#[tokio::test]
async fn a_credential_belongs_to_one_account() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let (_, key) = with_passkey(&desk, ADA).await;
    common::member(app, BOB, &reference(&desk.acme), Role::Member, Scopes::ALL).await;
    let id = key.held[0].id.clone();
    let take = async |desk: &Desk| {
        let (mut bob, _) = account_page(desk, BOB, PASSWORD).await;
        let list = bob.get(PATH).await;
        let csrf = list.hidden(NEW, "csrf");
        let page = bob.post(NEW, &[("csrf", &csrf), ("name", "Mine")]).await;
        let forgery = Forgery {
            id: Some(id.clone()),
            ..Forgery::default()
        };
        let claimed = Authenticator::new(ORIGIN).make(&options(&page), &forgery);
        let csrf = page.hidden(PATH, "csrf");
        bob.post(PATH, &[("csrf", &csrf), ("credential", &claimed)])
            .await
    };
    let refused = take(&desk).await;
    assert_eq!(refused.page(), "409 Passkeys");
    assert!(refused.body.contains("belongs to an account already"));
    assert!(common::account(app, BOB).await.passkeys.is_empty());
    // An earlier version of vault writes accounts without their passkeys. What it left in the index
    // signs nobody in, and is in nobody's way.
    let ada = common::account(app, ADA).await;
    let mut written = serde_json::to_value(&ada).unwrap();
    written.as_object_mut().unwrap().remove("passkeys");
    common::put(app, account_key(&ada.id), &written).await;
    let mut key = key;
    let mut visitor = Visitor::new(app);
    let page = asked(&mut visitor).await;
    let lost = key.sign(&options(&page), &Forgery::default());
    assert_eq!(answer(&mut visitor, &page, &lost).await.status, 422);
    assert_eq!(take(&desk).await.status, 303);
    let entry = app.records.get_one(&passkey_key(&passkey_id(&id))).await;
    let bob = common::account(app, BOB).await;
    let entry = entry.unwrap().unwrap();
    assert!(format!("{:?}", entry.document).contains(bob.id.as_str()));
}

#[tokio::test]
async fn an_answer_that_was_overtaken_by_a_newer_one_is_refused() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let (_, mut key) = with_passkey(&desk, ADA).await;
    let (mut one, mut two) = (Visitor::new(app), Visitor::new(app));
    let (first, second) = (asked(&mut one).await, asked(&mut two).await);
    let (early, later) = (
        key.sign(&options(&first), &Forgery::default()),
        key.sign(&options(&second), &Forgery::default()),
    );
    assert_eq!(answer(&mut two, &second, &later).await.status, 303);
    let refused = answer(&mut one, &first, &early).await;
    assert_eq!(refused.status, 422, "its counter is older than the newest");
}

/// Challenges cost records, so they are bounded by network; sign-ins give theirs back.
#[tokio::test]
async fn a_source_gets_so_many_challenges_and_shuts_out_no_other() {
    let desk = crate::admin::desk_with(|config| config.limits.sign_in_failures = 5).await;
    let app = &desk.world.app;
    let (_, mut key) = with_passkey(&desk, ADA).await;
    let from = |text: &str| {
        let mut visitor = Visitor::new(app);
        visitor.source = Some(text.parse().unwrap());
        visitor
    };
    for _ in 0..8 {
        let mut ada = from("192.0.2.1");
        let page = asked(&mut ada).await;
        let good = key.sign(&options(&page), &Forgery::default());
        assert_eq!(answer(&mut ada, &page, &good).await.status, 303);
    }
    let mut stranger = from("192.0.2.1");
    let page = stranger.get("/account").await;
    for _ in 0..5 {
        ask(&mut stranger, &page).await;
    }
    let full = stranger
        .fill(&page, "/oauth/passkey", &[("step", "sign-in")])
        .await;
    assert_eq!(full.status, 429);
    assert!(!full.header("retry-after").is_empty());
    let mut ada = from("198.51.100.1");
    let page = asked(&mut ada).await;
    let good = key.sign(&options(&page), &Forgery::default());
    assert_eq!(answer(&mut ada, &page, &good).await.status, 303);
}

#[tokio::test]
async fn http_localhost_has_passkeys() {
    let place = world_at("http://localhost:8080", |_| {});
    common::bootstrap(&place.app).await;
    let mut visitor = Visitor::new(&place.app);
    let page = visitor.get("/account").await;
    let owner = (common::OWNER, common::OWNER_PASSWORD);
    visitor.log_in(&page, owner.0, owner.1).await;
    let mut key = Authenticator::new("http://localhost:8080");
    add(&mut visitor, &mut key, "Phone").await;
    let mut other = Visitor::new(&place.app);
    let page = asked(&mut other).await;
    assert_eq!(options(&page)["rpId"], "localhost");
    let good = key.sign(&options(&page), &Forgery::default());
    assert_eq!(answer(&mut other, &page, &good).await.status, 303);
}
