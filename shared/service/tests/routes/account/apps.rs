//! Apps and browsers of the own account: seen, ended, and ended by a changed password.

use serde_json::json;
use vault_format::hash::Digest;
use vault_service::model::grant::REFRESH_SECONDS;
use vault_service::model::session::{Session, SessionEntry, listed_session_key, session_key};
use vault_service::model::user::{Role, Scopes};

use super::{about, account_page};
use crate::admin::{ADA, BOB, Desk, EVE, empty_desk, reference};
use crate::common::{self, CALLBACK, PASSWORD, Reply, Tokens, Visitor};

/// Whether the tokens of an app still open something.
async fn alive(desk: &Desk, held: &Tokens) -> bool {
    desk.ask(&held.access, "GET", "/admin/vaults", None)
        .await
        .status
        == 200
}

async fn app_of(desk: &Desk, email: &str, slug: &str) -> Tokens {
    common::tokens(&desk.world.app, (email, PASSWORD), slug, Scopes::ALL).await
}

/// The id of the browser that a page was shown to.
fn this_browser(page: &Reply) -> String {
    let mut forms = page.body.split("<form ");
    let form = forms.find(|form| form.contains("This browser")).unwrap();
    let id = form.split("name=\"session\" value=\"").nth(1).unwrap();
    id.split('"').next().unwrap().to_owned()
}

/// Sends a form of the account page with one field.
async fn end(visitor: &mut Visitor<'_>, page: &Reply, path: &str, field: (&str, &str)) -> u16 {
    let csrf = page.hidden(path, "csrf");
    visitor
        .post(path, &[("csrf", csrf.as_str()), field])
        .await
        .status
}

#[tokio::test]
async fn a_person_ends_one_app_and_leaves_the_others() {
    let desk = empty_desk().await;
    let (kept, gone) = (
        app_of(&desk, ADA, "acme").await,
        app_of(&desk, ADA, "acme").await,
    );
    let (mut ada, page) = account_page(&desk, ADA, PASSWORD).await;
    let grants: Vec<_> = page.body.split("name=\"grant\" value=\"").skip(1).collect();
    assert_eq!(grants.len(), 3, "the owner's own app too: {}", page.body);
    // The clock stands still, so the order is by chance: find the app by ending one after the
    // other.
    let mut ended = 0;
    for grant in grants {
        if !alive(&desk, &gone).await {
            break;
        }
        let grant = grant.split('"').next().unwrap();
        let before = alive(&desk, &kept).await;
        assert_eq!(
            end(&mut ada, &page, "/account/apps", ("grant", grant)).await,
            303
        );
        ended += 1;
        assert!(before || !alive(&desk, &kept).await);
    }
    assert_eq!(desk.count("app.end done").await, ended);
    let page = ada.get("/account").await;
    assert_eq!(page.body.matches("name=\"grant\"").count(), 3 - ended);
}

/// The id of a grant opens nothing of another account.
#[tokio::test]
async fn nobody_ends_the_apps_or_browsers_of_another() {
    let desk = empty_desk().await;
    desk.stranger().await;
    let adas = app_of(&desk, ADA, "acme").await;
    let (mut ada, page) = account_page(&desk, ADA, PASSWORD).await;
    let grant = page.hidden("/account/apps", "grant");
    let session = page.hidden("/account/sessions", "session");
    let (mut eve, hers) = account_page(&desk, EVE, PASSWORD).await;
    for (path, field) in [
        ("/account/apps", ("grant", grant.as_str())),
        ("/account/sessions", ("session", session.as_str())),
    ] {
        assert_eq!(end(&mut eve, &hers, path, field).await, 303, "{path}");
    }
    assert!(alive(&desk, &adas).await);
    assert_eq!(ada.get("/account").await.heading(), "Your account");
    let odd = end(&mut eve, &hers, "/account/apps", ("grant", "../x")).await;
    assert_eq!(odd, 400);
}

#[tokio::test]
async fn a_person_signs_another_browser_out_and_everything_at_once() {
    let desk = empty_desk().await;
    let held = app_of(&desk, ADA, "acme").await;
    let (mut lost, page) = account_page(&desk, ADA, PASSWORD).await;
    let lost_one = this_browser(&page);
    let (mut ada, page) = account_page(&desk, ADA, PASSWORD).await;
    assert_eq!(
        end(&mut ada, &page, "/account/sessions", ("session", &lost_one)).await,
        303
    );
    assert_eq!(lost.get("/account").await.heading(), "Sign in");
    assert_eq!(ada.get("/account").await.heading(), "Your account");
    assert!(alive(&desk, &held).await);
    assert_eq!(
        end(&mut ada, &page, "/account/sign-out", ("x", "y")).await,
        303
    );
    assert!(!alive(&desk, &held).await);
    let page = ada.get("/account").await;
    assert_eq!(
        page.heading(),
        "Your account",
        "this browser stays signed in"
    );
    assert!(page.body.contains("No app has access."), "{}", page.body);
}

/// How many apps the account page shows.
async fn shown(desk: &Desk, email: &str) -> usize {
    let (_, page) = account_page(desk, email, PASSWORD).await;
    page.body.matches("name=\"grant\"").count()
}

/// The page is where a person looks for what has access: what has none any more, whoever ended it,
/// is not on it.
#[tokio::test]
async fn an_app_without_access_is_not_shown() {
    for way in [
        "owner ends the app",
        "app ends itself",
        "a used refresh token comes again",
        "owner removes the person",
        "owner signs the vault out",
        "operator signs everybody out",
        "nothing for 30 days",
    ] {
        let desk = empty_desk().await;
        let (app, acme) = (&desk.world.app, reference(&desk.acme));
        let bob = common::member(app, BOB, &acme, Role::Member, Scopes::ALL).await;
        let held = app_of(&desk, BOB, "acme").await;
        assert_eq!(shown(&desk, BOB).await, 1, "{way}");
        match way {
            "owner ends the app" => {
                let path = format!("/admin/clients/{}", held.client);
                desk.ask(&desk.owner, "DELETE", &path, None).await;
            }
            "app ends itself" => {
                let fields = [
                    ("token", held.refresh.as_str()),
                    ("client_id", &held.client),
                ];
                common::post_form(app, "/oauth/revoke", &fields).await;
            }
            "a used refresh token comes again" => {
                common::refresh(app, &held.client, &held.refresh).await;
                desk.world.clock.advance(601);
                common::refresh(app, &held.client, &held.refresh).await;
            }
            "owner removes the person" => {
                let path = format!("/admin/users/{}", bob.id);
                desk.ask(&desk.owner, "DELETE", &path, None).await;
            }
            "owner signs the vault out" => {
                let body = json!({ "slug": "acme" });
                desk.post("/admin/vaults/acme/sign-out", &body).await;
            }
            "operator signs everybody out" => {
                let body = json!({ "confirm": "everybody" });
                let operator = desk.operator().await;
                let path = "/admin/operator/sign-out";
                desk.ask(&operator, "POST", path, Some(&body)).await;
            }
            _ => desk.world.clock.advance(REFRESH_SECONDS),
        }
        assert!(
            !alive(&desk, &held).await || way == "nothing for 30 days",
            "{way}"
        );
        assert_eq!(shown(&desk, BOB).await, 0, "{way}");
        // An ended entry leaves the list where the app, the person or a replay ended it.
        let partition = vault_service::model::account::account_partition(&bob.account().unwrap());
        let left = app.records.list_page(&partition, "grant/", None, 10).await;
        let gone = ["app ends itself", "a used refresh token comes again"].contains(&way);
        assert_eq!(left.unwrap().is_empty(), gone, "{way}");
    }
}

/// Whoever has the password allows an app and then many others, so that the first one is not seen.
#[tokio::test]
async fn the_newest_apps_are_shown_and_the_page_says_that_there_are_more() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    common::member(app, BOB, &reference(&desk.acme), Role::Member, Scopes::ALL).await;
    let (mut bob, _) = account_page(&desk, BOB, PASSWORD).await;
    let client = common::register(app, common::CALLBACK).await;
    let scope = [("scope", "read")];
    let address = common::authorize(&client, common::CALLBACK, &scope);
    let mut newest = None;
    for n in 1..=53 {
        desk.world.clock.advance(1);
        let page = bob.get(&address).await;
        bob.allow(&page, "acme", Scopes::READ).await;
        let code = bob.get(&address).await.returned("code").unwrap();
        let reply = common::exchange(app, &client, &code).await;
        newest = Some(Tokens::of(&client, &reply));
        let page = bob.get("/account").await;
        let shown = page.body.matches("name=\"grant\"").count();
        let more = page.body.contains("There are older apps");
        assert_eq!((shown, more), (n.min(50), n > 50));
    }
    // The first one on the page is the newest.
    let page = bob.get("/account").await;
    let first = page.hidden("/account/apps", "grant");
    assert_eq!(
        end(&mut bob, &page, "/account/apps", ("grant", &first)).await,
        303
    );
    assert!(!alive(&desk, &newest.unwrap()).await);
    // What has no access any more, and stands between, is passed over.
    let operator = desk.operator().await;
    assert_eq!(about(&desk, &operator, BOB, "sign-out").await.status, 200);
    let held = app_of(&desk, BOB, "acme").await;
    assert_eq!(shown(&desk, BOB).await, 1);
    assert!(alive(&desk, &held).await);
}

#[tokio::test]
async fn the_newest_browsers_are_shown_and_this_one_first() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let ada = common::account(app, ADA).await;
    let (mut visitor, before) = account_page(&desk, ADA, PASSWORD).await;
    let others = before.body.matches("Another browser").count();
    for n in 0..53 {
        desk.world.clock.advance(60);
        let (now, hash) = (app.clock.now(), Digest::of(&[n]));
        let from = "192.0.2.1".to_owned();
        common::put(
            app,
            listed_session_key(&ada.id, &hash),
            &SessionEntry { at: now, from },
        )
        .await;
        common::put(
            app,
            session_key(&hash),
            &Session::begin_now(&ada, None, now),
        )
        .await;
        let page = visitor.get("/account").await;
        let shown = page.body.matches("name=\"session\"").count();
        let all = others + 2 + usize::from(n);
        let more = page.body.contains("There are older browsers");
        assert_eq!((shown, more), (all.min(50), all > 50));
        let first = page.hidden("/account/sessions", "session");
        assert_eq!(first, this_browser(&page));
        assert!(page.body.contains(&hash.to_string()), "the newest is there");
    }
}

/// A browser that an operator signed out is not shown as signed in.
#[tokio::test]
async fn a_browser_that_is_signed_out_is_not_shown() {
    let desk = empty_desk().await;
    let (_, page) = account_page(&desk, ADA, PASSWORD).await;
    assert!(page.body.matches("name=\"session\"").count() > 1);
    let operator = desk.operator().await;
    let body = json!({ "confirm": "everybody" });
    let path = "/admin/operator/sign-out";
    assert_eq!(
        desk.ask(&operator, "POST", path, Some(&body)).await.status,
        200
    );
    let (_, page) = account_page(&desk, ADA, PASSWORD).await;
    assert_eq!(page.body.matches("name=\"session\"").count(), 1);
}

/// Somebody else may have had the old password, and may have allowed an app with it.
#[tokio::test]
async fn a_changed_password_ends_all_apps_unless_it_is_unticked() {
    for (boxes, wanted) in [
        (&[("end_apps", "yes")][..], (false, 400)),
        (&[][..], (true, 200)),
    ] {
        let desk = empty_desk().await;
        let app = &desk.world.app;
        let held = app_of(&desk, ADA, "acme").await;
        let mut ada = Visitor::new(app);
        let path = "/oauth/password";
        let page = ada.get(path).await;
        ada.log_in(&page, ADA, PASSWORD).await;
        let page = ada.get(path).await;
        assert!(
            page.body.contains(r#"name="end_apps" value="yes" checked"#),
            "{}",
            page.body
        );
        let csrf = page.hidden(path, "csrf");
        let fields = [
            ("csrf", csrf.as_str()),
            ("current", PASSWORD),
            ("password", "another password of hers"),
        ];
        let changed = ada.post(path, &[&fields[..], boxes].concat()).await;
        assert_eq!(changed.status, 200, "{}", changed.body);
        let refreshed = common::refresh(app, &held.client, &held.refresh).await;
        assert_eq!((alive(&desk, &held).await, refreshed.status), wanted);
    }
}

/// Whoever ends the access of an app takes back what it was allowed: the next consent begins with
/// Read alone.
#[tokio::test]
async fn an_app_whose_access_ended_is_not_expected_to_write_again() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    let client = common::register(app, CALLBACK).await;
    let address = common::authorize(&client, CALLBACK, &[("scope", "read write")]);
    let is_ticked = |page: &Reply| page.body.contains("value=\"write\" checked");
    let mut ada = Visitor::new(app);
    let page = ada.arrive(&address, ADA, PASSWORD).await;
    assert!(!is_ticked(&page), "{}", page.body);
    ada.allow(&page, "acme", Scopes::ALL).await;
    let code = ada.get(&address).await.returned("code").unwrap();
    common::exchange(app, &client, &code).await;
    assert!(is_ticked(&ada.get(&address).await));
    // Each app of the account: which of them is this one is by chance.
    let page = ada.get("/account").await;
    let grants: Vec<_> = page.body.split("name=\"grant\" value=\"").skip(1).collect();
    for grant in &grants {
        let grant = grant.split('"').next().unwrap();
        let ended = end(&mut ada, &page, "/account/apps", ("grant", grant)).await;
        assert_eq!(ended, 303);
    }
    assert!(!is_ticked(&ada.get(&address).await));
}
