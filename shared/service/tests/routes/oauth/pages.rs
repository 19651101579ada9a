//! Every page that people see, written to files so that they can be looked at with a browser.

use std::path::Path;

use vault_service::model::user::{Role, Scopes};

use super::owned;
use crate::common::{
    CALLBACK, OWNER, OWNER_PASSWORD, PASSWORD, Reply, Visitor, authorize, get, member, namespace,
    register,
};

/// Run with `--run-ignored only`; the folder is named at its end.
#[tokio::test]
#[ignore = "writes files for people to look at"]
async fn the_pages_to_look_at() {
    let place = owned().await;
    let app = &place.app;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
    std::fs::create_dir_all(&folder).unwrap();
    let keep = |name: &str, page: &Reply| {
        std::fs::write(folder.join(format!("{name}.html")), &page.body).unwrap();
    };
    let client = register(app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let mut visitor = Visitor::new(app);
    let sign_in = visitor.get(&address).await;
    keep("sign-in", &sign_in);
    let wrong = visitor.log_in(&sign_in, OWNER, "not the password").await;
    keep("sign-in-wrong", &wrong);
    keep(
        "consent",
        &visitor.arrive(&address, OWNER, OWNER_PASSWORD).await,
    );

    let long = "a-company-with-a-rather-long-name-in-its-address";
    let homes = [namespace(app, "acme").await, namespace(app, long).await];
    for (home, role, scopes) in [
        (&homes[0], Role::Owner, Scopes::ALL),
        (&homes[1], Role::Member, Scopes::READ),
    ] {
        member(app, "ada@example.org", home, role, scopes).await;
    }
    let program = register(app, "http://127.0.0.1:33418/").await;
    let address = authorize(&program, "http://127.0.0.1:33418/", &[]);
    let mut ada = Visitor::new(app);
    keep(
        "consent-several",
        &ada.arrive(&address, "ada@example.org", PASSWORD).await,
    );

    let page = visitor.get("/oauth/password").await;
    keep("password", &page);
    let csrf = page.hidden("/oauth/password", "csrf");
    let fields = [
        ("csrf", csrf.as_str()),
        ("current", "wrong"),
        ("password", "a new password here"),
    ];
    keep(
        "password-wrong",
        &visitor.post("/oauth/password", &fields).await,
    );

    let email = "eve@example.org".parse().unwrap();
    let (issuer, now) = ("https://vault.example", app.clock.now());
    let invited =
        vault_service::model::account::invite(&*app.records, &email, issuer, now, &*app.random);
    let invited = invited.await.unwrap();
    assert!(app.records.commit(invited.writes).await.unwrap().is_done());
    let link = invited.url.unwrap();
    let path = link.strip_prefix(issuer).unwrap();
    let mut eve = Visitor::new(app);
    let page = eve.get(path).await;
    keep("invite", &page);
    let csrf = page.hidden(path, "csrf");
    let fields = [("csrf", csrf.as_str()), ("password", PASSWORD)];
    keep("invite-done", &eve.post(path, &fields).await);
    keep(
        "no-vault",
        &eve.arrive(&address, "eve@example.org", PASSWORD).await,
    );
    keep(
        "unknown-app",
        &get(app, &address.replace(&program, "cli_x")).await,
    );
    keep(
        "bad-redirect",
        &get(app, &address.replace("33418%2F", "33418%2Fx")).await,
    );
    assert!(folder.join("no-vault.html").exists());
    panic!("look into {}", folder.display());
}
