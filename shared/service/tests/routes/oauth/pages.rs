//! Every page that people see, written to files so that they can be looked at with a browser.

use std::path::Path;

use vault_service::model::user::{Role, Scopes};

use super::{ADA, owned};
use crate::common::{
    CALLBACK, OWNER, OWNER_PASSWORD, PASSWORD, Reply, Visitor, authorize, get, invite, member,
    namespace, register,
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
    let page = visitor.arrive(&address, OWNER, OWNER_PASSWORD).await;
    keep("consent", &page);

    let long = "a-company-with-a-rather-long-name-in-its-address";
    place.ada(Role::Owner, Scopes::ALL).await;
    let home = namespace(app, long).await;
    member(app, ADA.0, &home, Role::Member, Scopes::READ).await;
    let program = register(app, "http://127.0.0.1:33418/").await;
    let address = authorize(&program, "http://127.0.0.1:33418/", &[]);
    let mut ada = Visitor::new(app);
    keep("consent-several", &ada.arrive(&address, ADA.0, ADA.1).await);

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

    let path = invite(app, "eve@example.org").await.unwrap();
    let mut eve = Visitor::new(app);
    keep("invite", &eve.get(&path).await);
    keep("invite-done", &eve.accept(&path, PASSWORD).await);
    let page = eve.arrive(&address, "eve@example.org", PASSWORD).await;
    keep("no-vault", &page);
    let unknown = address.replace(&program, "cli_x");
    keep("unknown-app", &get(app, &unknown).await);
    let elsewhere = address.replace("33418%2F", "33418%2Fx");
    keep("bad-redirect", &get(app, &elsewhere).await);
    assert!(folder.join("no-vault.html").exists());
    panic!("look into {}", folder.display());
}
