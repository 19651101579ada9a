//! Apps and browsers of the own account: seen, ended, and ended by a changed password.

use vault_service::model::user::Scopes;

use super::account_page;
use crate::admin::{ADA, Desk, EVE, empty_desk};
use crate::common::{self, PASSWORD, Reply, Tokens, Visitor};

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
    // The list is in the order of the ids, which begin with the time: find the app by ending one after the other.
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
