//! Forms of signed-in people whose commit loses a race: they are tried again, and never sign a
//! browser in that was signed out meanwhile.

use vault_service::model::account::account_key;
use vault_store::records::{Document, When, Write};

use super::account_page;
use super::passkeys::{asked, with_passkey};
use super::second_factor::{code, enter, turn_on};
use crate::admin::{ADA, Desk, Planned, empty_desk};
use crate::authenticator::{Forgery, options};
use crate::common::{self, CALLBACK, PASSWORD, Reply, Visitor, authorize, invite, register};

const FACTOR: &str = "/account/second-factor";

/// The forms, each with the page or the redirect that answers it.
const FORMS: [(&str, &str); 7] = [
    ("turn the second factor on", "200 Your recovery codes"),
    ("turn the second factor off", "303 "),
    ("sign in with a password", "303 "),
    ("sign in with a password and a code", "303 "),
    ("sign in with a passkey", "303 "),
    ("answer an invitation link", "200 Your password is set"),
    ("allow an app", "302 "),
];

/// Sends a form in a new world, while one commit fails after `skipped` others. Returns the answer,
/// and whether a commit failed.
async fn send(form: &str, skipped: usize) -> (Reply, bool) {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let interfere = || desk.commits.interfere_after(skipped);
    let reply = match form {
        "turn the second factor on" => {
            let (mut ada, _) = account_page(&desk, ADA, PASSWORD).await;
            let page = ada.get(FACTOR).await;
            interfere();
            change_factor(&desk, &mut ada, &page, "on").await
        }
        "turn the second factor off" => {
            let (secret, _) = turn_on(&desk, ADA).await;
            desk.world.clock.advance(30);
            let mut ada = signed_in_with_code(&desk, &secret).await;
            let page = ada.get(FACTOR).await;
            desk.world.clock.advance(30);
            let typed = code(&secret, desk.world.now().unix());
            let csrf = page.hidden(FACTOR, "csrf");
            let fields = [
                ("csrf", csrf.as_str()),
                ("change", "off"),
                ("code", &typed),
                ("password", PASSWORD),
            ];
            interfere();
            ada.post(FACTOR, &fields).await
        }
        "sign in with a password" => {
            let mut ada = Visitor::new(app);
            let page = ada.get("/account").await;
            interfere();
            ada.log_in(&page, ADA, PASSWORD).await
        }
        "sign in with a password and a code" => {
            let (secret, _) = turn_on(&desk, ADA).await;
            desk.world.clock.advance(30);
            let mut ada = Visitor::new(app);
            let page = ada.get("/account").await;
            interfere();
            let half = ada.log_in(&page, ADA, PASSWORD).await;
            assert_eq!(half.page(), "200 Enter a code", "{skipped}");
            let has_interfered = desk.commits.has_interfered();
            let typed = code(&secret, desk.world.now().unix());
            return (enter(&mut ada, &half, &typed).await, has_interfered);
        }
        "sign in with a passkey" => {
            let (_, mut key) = with_passkey(&desk, ADA).await;
            let mut ada = Visitor::new(app);
            interfere();
            let page = asked(&mut ada).await;
            let has_interfered = desk.commits.has_interfered();
            let credential = key.sign(&options(&page), &Forgery::default());
            let back = super::passkeys::answer(&mut ada, &page, &credential).await;
            return (back, has_interfered);
        }
        "answer an invitation link" => {
            let link = invite(app, "new@example.org").await.unwrap();
            let mut new = Visitor::new(app);
            let page = new.get(&link).await;
            let csrf = page.hidden(&link, "csrf");
            interfere();
            let fields = [("csrf", csrf.as_str()), ("password", "a long password")];
            new.post(&link, &fields).await
        }
        _ => {
            let client = register(app, CALLBACK).await;
            let address = authorize(&client, CALLBACK, &[]);
            let mut ada = Visitor::new(app);
            let page = ada.get(&address).await;
            assert_eq!(ada.log_in(&page, ADA, PASSWORD).await.status, 303);
            let page = ada.get(&address).await;
            let fields = [
                ("decision", "approve"),
                ("namespace", "acme"),
                ("scope", "read"),
            ];
            assert_eq!(ada.fill(&page, "/oauth/consent", &fields).await.status, 303);
            interfere();
            ada.get(&address).await
        }
    };
    (reply, desk.commits.has_interfered())
}

async fn change_factor(desk: &Desk, ada: &mut Visitor<'_>, page: &Reply, what: &str) -> Reply {
    let (csrf, secret) = (page.hidden(FACTOR, "csrf"), page.hidden(FACTOR, "secret"));
    let typed = code(&secret, desk.world.now().unix());
    let fields = [
        ("csrf", csrf.as_str()),
        ("change", what),
        ("secret", &secret),
        ("new_code", &typed),
        ("password", PASSWORD),
    ];
    ada.post(FACTOR, &fields).await
}

async fn signed_in_with_code<'a>(desk: &'a Desk, secret: &str) -> Visitor<'a> {
    let mut ada = Visitor::new(&desk.world.app);
    let page = ada.get("/account").await;
    let half = ada.log_in(&page, ADA, PASSWORD).await;
    let typed = code(secret, desk.world.now().unix());
    assert_eq!(enter(&mut ada, &half, &typed).await.status, 303);
    ada
}

#[tokio::test]
async fn a_form_whose_commit_loses_a_race_is_carried_out_all_the_same() {
    for (form, expected) in FORMS {
        for skipped in 0.. {
            let (reply, has_interfered) = send(form, skipped).await;
            let found = reply.page();
            assert_eq!(found, expected, "{form}, {skipped}: {}", reply.body);
            if !has_interfered {
                assert!(skipped > 0, "{form}: no commit");
                break;
            }
        }
    }
}

/// Forms that give the browser a new session, in a race with a sign-out of all browsers.
#[tokio::test]
async fn a_browser_that_is_signed_out_meanwhile_gets_no_new_session() {
    for form in ["/account/sign-out", FACTOR, "/oauth/password"] {
        let desk = empty_desk().await;
        let app = &desk.world.app;
        let (mut ada, account) = account_page(&desk, ADA, PASSWORD).await;
        let page = if form == "/account/sign-out" {
            account
        } else {
            ada.get(form).await
        };
        let mut signed_out = common::account(app, ADA).await;
        signed_out.raise_epoch();
        let key = account_key(&signed_out.id);
        let document = Document::from_value(&signed_out).unwrap();
        let write = Write::put(key.clone(), document, When::Any);
        // Before the first commit that writes the account, and so after the form was admitted.
        desk.commits.plan(key, [Planned::Sooner(vec![write])]);
        let reply = match form {
            FACTOR => change_factor(&desk, &mut ada, &page, "on").await,
            "/oauth/password" => {
                let csrf = page.hidden(form, "csrf");
                let fields = [
                    ("csrf", csrf.as_str()),
                    ("current", PASSWORD),
                    ("password", "a new long password"),
                ];
                ada.post(form, &fields).await
            }
            _ => {
                let csrf = page.hidden(form, "csrf");
                ada.post(form, &[("csrf", csrf.as_str())]).await
            }
        };
        assert!(reply.status >= 400, "{form}: {}", reply.status);
        assert_eq!(ada.get("/account").await.page(), "200 Sign in", "{form}");
        assert!(common::account(app, ADA).await == signed_out, "{form}");
    }
}
