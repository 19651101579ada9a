use axum::http::{HeaderMap, HeaderValue, header};
use vault_service::App;
use vault_service::bearer::Caller;
use vault_service::error::Refusal;
use vault_service::model::account::{Account, account_key};
use vault_service::model::grant::{Grant, Why};
use vault_service::model::namespace::{self, Namespace, Status};
use vault_service::model::user::{Role, Scope, Scopes, User};
use vault_service::route::Audience;
use vault_store::records::{Document, RecordKey, When, Write};

use super::{owned, place_at};
use crate::common::{
    OWNER, OWNER_PASSWORD, PASSWORD, authenticate, bootstrap, member, namespace as make_namespace,
    sign_in, tokens,
};

async fn ask(app: &App, values: &[&str]) -> Result<Caller, Refusal> {
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
    }
    authenticate(app, &headers).await
}

/// Status, code and challenge of a refusal.
fn told(refusal: Refusal) -> (u16, &'static str, String) {
    use axum::response::IntoResponse as _;
    let (status, code) = (refusal.status().as_u16(), refusal.code().row().code);
    let response = refusal.into_response();
    let challenge = response
        .headers()
        .get(header::WWW_AUTHENTICATE)
        .map_or("", |value| value.to_str().unwrap());
    (status, code, challenge.to_owned())
}

const METADATA: &str = "resource_metadata=\"https://vault.example/.well-known/oauth-protected-resource/mcp\", scope=\"read write\"";

#[tokio::test]
async fn requirements_7_36_38_without_a_good_token_there_is_a_challenge() {
    let place = owned().await;
    let token = sign_in(&place.app, OWNER, OWNER_PASSWORD, Scopes::ALL).await;
    let unknown = format!("Bearer vat_{}", "A".repeat(43));
    for (values, error) in [
        (&[][..], None),
        (&["Basic dXNlcjpwYXNz"], None),
        (&["Bearer"], Some("invalid_token")),
        (&["Bearer x"], Some("invalid_token")),
        (&[unknown.as_str()], Some("invalid_token")),
        (&[&format!("Bearer {token}x")], Some("invalid_token")),
        (
            &[&format!("Bearer {}", token.replace("vat", "vrt"))],
            Some("invalid_token"),
        ),
        (
            &[&format!("Bearer {token}"), &format!("Bearer {token}")],
            Some("invalid_token"),
        ),
    ] {
        let (status, code, challenge) = told(ask(&place.app, values).await.unwrap_err());
        let error = error
            .map(|error| format!("error=\"{error}\", "))
            .unwrap_or_default();
        assert_eq!(status, 401, "{values:?}");
        assert_eq!(
            code,
            if error.is_empty() {
                "token_required"
            } else {
                "token_invalid"
            },
            "{values:?}"
        );
        assert_eq!(challenge, format!("Bearer {error}{METADATA}"), "{values:?}");
    }
    for scheme in ["Bearer", "bearer", "BEARER"] {
        assert!(
            ask(&place.app, &[&format!("{scheme} {token}")])
                .await
                .is_ok(),
            "36: {scheme}"
        );
    }
}

#[tokio::test]
async fn a_caller_is_what_the_records_say_now() {
    let place = owned().await;
    let caller = ask(
        &place.app,
        &[&format!(
            "Bearer {}",
            sign_in(&place.app, OWNER, OWNER_PASSWORD, Scopes::READ).await
        )],
    )
    .await
    .unwrap();
    assert_eq!(
        (caller.email.as_str(), caller.role, caller.operator),
        (OWNER, Role::Owner, true)
    );
    assert_eq!(
        (caller.scopes, caller.namespace.slug.as_str()),
        (Scopes::READ, "default")
    );
    assert_eq!(caller.signed_in_at, place.app.clock.now());
    assert!(caller.signed_in_freshly(place.app.clock.now().plus_seconds(299)));
    assert!(!caller.signed_in_freshly(place.app.clock.now().plus_seconds(300)));
    assert!(caller.require_owner().is_ok() && caller.require_operator().is_ok());
    assert!(caller.require_namespace("default").is_ok());
    assert_eq!(
        told(caller.require_namespace("acme").unwrap_err()).1,
        "not_found"
    );
    let public = &place.app.config.public_url;
    let (status, code, challenge) = told(
        caller
            .require(Scope::Write, Audience::Mcp, public)
            .unwrap_err(),
    );
    assert_eq!((status, code), (403, "insufficient_scope"));
    assert_eq!(
        challenge,
        format!("Bearer error=\"insufficient_scope\", {METADATA}"),
        "38: the person could consent to it"
    );

    let acme = make_namespace(&place.app, "acme").await;
    member(
        &place.app,
        "ada@example.org",
        &acme,
        Role::Member,
        Scopes::READ,
    )
    .await;
    let ada = tokens(
        &place.app,
        ("ada@example.org", PASSWORD),
        "acme",
        Scopes::ALL,
    )
    .await;
    let ada = ask(&place.app, &[&format!("Bearer {}", ada.access)])
        .await
        .unwrap();
    assert_eq!(
        told(ada.require_owner().unwrap_err()),
        (403, "owner_required", String::new()),
        "40: no challenge"
    );
    assert_eq!(
        told(ada.require_operator().unwrap_err()),
        (403, "operator_required", String::new())
    );
    assert_eq!(
        told(
            ada.require(Scope::Write, Audience::Mcp, public)
                .unwrap_err()
        ),
        (403, "insufficient_scope", String::new()),
        "in vain"
    );
}

/// Writes a record past all rules.
async fn put(app: &App, key: RecordKey, value: &impl serde::Serialize) {
    let write = Write::put(key, Document::of(value).unwrap(), When::Any);
    assert!(app.records.commit(vec![write]).await.unwrap().is_done());
}

async fn refused(app: &App, token: &str) -> Option<&'static str> {
    ask(app, &[&format!("Bearer {token}")])
        .await
        .err()
        .map(|refusal| refusal.code().row().code)
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
async fn one_write_on_grant_user_client_account_or_namespace_ends_or_changes_every_token() {
    let place = owned().await;
    let app = &place.app;
    let acme = make_namespace(app, "acme").await;
    let user = member(app, "ada@example.org", &acme, Role::Member, Scopes::ALL).await;
    let held = tokens(app, ("ada@example.org", PASSWORD), "acme", Scopes::ALL).await;
    let caller = ask(app, &[&format!("Bearer {}", held.access)])
        .await
        .unwrap();
    assert_eq!(caller.scopes, Scopes::ALL);

    put(
        app,
        user.key(),
        &User {
            scopes: Scopes::READ,
            ..user.clone()
        },
    )
    .await;
    assert_eq!(
        ask(app, &[&format!("Bearer {}", held.access)])
            .await
            .unwrap()
            .scopes,
        Scopes::READ,
        "44: at once"
    );
    put(app, user.key(), &user).await;

    let home: Namespace = app
        .records
        .get(&namespace::key(&acme.slug))
        .await
        .unwrap()
        .unwrap()
        .read()
        .unwrap();
    for (status, code) in [
        (Status::Suspended, Some("vault_suspended")),
        (Status::Deleted, Some("token_invalid")),
        (Status::Active, None),
    ] {
        put(
            app,
            namespace::key(&acme.slug),
            &Namespace {
                status,
                ..home.clone()
            },
        )
        .await;
        assert_eq!(refused(app, &held.access).await, code, "{status:?}");
    }
    let other = vault_format::name::NamespaceId::from_parts(1, 1);
    put(
        app,
        namespace::key(&acme.slug),
        &Namespace {
            id: other,
            ..home.clone()
        },
    )
    .await;
    assert_eq!(
        refused(app, &held.access).await,
        Some("token_invalid"),
        "another allocation of the slug"
    );
    put(app, namespace::key(&acme.slug), &home).await;

    for key in [
        user.key(),
        account_key(&user.email),
        vault_service::model::client::connection_key(&acme.id, &held.client.parse().unwrap()),
    ] {
        let record = app.records.get(&key).await.unwrap().unwrap();
        assert!(
            app.records
                .commit(vec![Write::delete(key.clone(), When::Any)])
                .await
                .unwrap()
                .is_done()
        );
        assert_eq!(
            refused(app, &held.access).await,
            Some("token_invalid"),
            "{key}"
        );
        let back = vec![Write::put(key, record.document, When::Absent)];
        assert!(app.records.commit(back).await.unwrap().is_done());
        assert_eq!(refused(app, &held.access).await, None);
    }

    let grants = app
        .records
        .list(&format!("grant/{}", acme.id), "", None, 10)
        .await
        .unwrap();
    let [grant] = &grants[..] else {
        panic!("{grants:?}")
    };
    let ended = grant
        .read::<Grant>()
        .unwrap()
        .revocation(grant.revision, Why::Asked, app.clock.now())
        .unwrap();
    assert!(app.records.commit(vec![ended]).await.unwrap().is_done());
    assert_eq!(refused(app, &held.access).await, Some("token_invalid"));
}

#[tokio::test]
async fn an_operator_may_into_a_suspended_namespace() {
    let place = owned().await;
    let token = sign_in(&place.app, OWNER, OWNER_PASSWORD, Scopes::ALL).await;
    let key = namespace::key(&"default".parse().unwrap());
    let home: Namespace = place
        .app
        .records
        .get(&key)
        .await
        .unwrap()
        .unwrap()
        .read()
        .unwrap();
    put(
        &place.app,
        key,
        &Namespace {
            status: Status::Suspended,
            ..home
        },
    )
    .await;
    assert_eq!(refused(&place.app, &token).await, None);
    let key = account_key(&OWNER.parse().unwrap());
    let account: Account = place
        .app
        .records
        .get(&key)
        .await
        .unwrap()
        .unwrap()
        .read()
        .unwrap();
    put(
        &place.app,
        key,
        &Account {
            operator: false,
            ..account
        },
    )
    .await;
    assert_eq!(
        refused(&place.app, &token).await,
        Some("vault_suspended"),
        "read live"
    );
}

#[tokio::test]
async fn requirement_38_a_token_ends_when_its_time_is_over() {
    let place = place_at("https://vault.example", |config| {
        config.token_ttl_seconds = 60;
    });
    bootstrap(&place.app).await;
    let token = sign_in(&place.app, OWNER, OWNER_PASSWORD, Scopes::ALL).await;
    place.clock.advance(59);
    assert_eq!(refused(&place.app, &token).await, None);
    place.clock.advance(1);
    assert_eq!(refused(&place.app, &token).await, Some("token_invalid"));
}

#[tokio::test]
async fn requirement_37_a_token_is_for_the_service_that_gave_it() {
    let place = owned().await;
    let token = sign_in(&place.app, OWNER, OWNER_PASSWORD, Scopes::ALL).await;
    assert_eq!(refused(&place.app, &token).await, None);
    // The same store behind another address, as after a move or a mistaken deployment.
    for (url, code) in [
        ("https://other.example", Some("token_invalid")),
        ("https://vault.example/a", Some("token_invalid")),
        ("https://vault.example.org", Some("token_invalid")),
        ("https://vault.example/", None),
    ] {
        let mut app = place.app.clone();
        let mut config = (*app.config).clone();
        config.public_url = url.parse().unwrap();
        app.config = config.into();
        assert_eq!(refused(&app, &token).await, code, "{url}");
    }
}

#[tokio::test]
async fn last_seen_is_written_once_a_minute() {
    let place = owned().await;
    let token = sign_in(&place.app, OWNER, OWNER_PASSWORD, Scopes::ALL).await;
    let home = ask(&place.app, &[&format!("Bearer {token}")])
        .await
        .unwrap()
        .namespace;
    let user = || async {
        let users = place
            .app
            .records
            .list(&format!("user/{}", home.id), "", None, 10)
            .await
            .unwrap();
        (
            users[0].revision,
            users[0].read::<User>().unwrap().last_seen_at.unwrap(),
        )
    };
    let first = user().await;
    for (seconds, written) in [(59, false), (1, true), (30, false), (30, true)] {
        let before = user().await;
        place.clock.advance(seconds);
        assert_eq!(refused(&place.app, &token).await, None);
        assert_eq!(user().await != before, written, "{seconds}");
    }
    assert_eq!(user().await.1, first.1.plus_seconds(120));
}

#[tokio::test]
async fn requirements_39_40_scope_and_role_both_count_and_no_consent_makes_an_owner() {
    let place = owned().await;
    let app = &place.app;
    let public = &app.config.public_url;
    let acme = make_namespace(app, "acme").await;
    member(app, "writer@example.org", &acme, Role::Member, Scopes::ALL).await;
    member(app, "reader@example.org", &acme, Role::Member, Scopes::READ).await;
    let owner = (crate::common::OWNER, crate::common::OWNER_PASSWORD);
    let challenge = "insufficient_scope";
    for (who, home, asked, writes, owns) in [
        (owner, "default", Scopes::ALL, Ok(()), true),
        (owner, "default", Scopes::READ, Err(true), true),
        (
            ("writer@example.org", PASSWORD),
            "acme",
            Scopes::ALL,
            Ok(()),
            false,
        ),
        (
            ("writer@example.org", PASSWORD),
            "acme",
            Scopes::READ,
            Err(true),
            false,
        ),
        // Nobody can consent to what the user does not have, so no challenge sends anybody to the consent page.
        (
            ("reader@example.org", PASSWORD),
            "acme",
            Scopes::READ,
            Err(false),
            false,
        ),
    ] {
        let held = tokens(app, who, home, asked).await;
        let caller = ask(app, &[&format!("Bearer {}", held.access)])
            .await
            .unwrap();
        let may = caller.require(Scope::Write, Audience::Mcp, public);
        let told = may.map_err(|refusal| {
            let (status, code, header) = told(refusal);
            assert_eq!((status, code), (403, "insufficient_scope"));
            header.contains(challenge)
        });
        assert_eq!(told, writes, "{who:?} {asked}");
        match caller.require_owner() {
            Ok(()) => assert!(owns),
            Err(refusal) => {
                let (status, code, header) = self::told(refusal);
                assert_eq!(
                    (status, code, header.as_str(), owns),
                    (403, "owner_required", "", false)
                );
            }
        }
    }
}

#[tokio::test]
async fn requirement_44_a_change_of_scopes_acts_at_once_on_tokens_that_are_out() {
    let place = owned().await;
    let app = &place.app;
    let acme = make_namespace(app, "acme").await;
    let user = member(app, "ada@example.org", &acme, Role::Member, Scopes::ALL).await;
    let held = tokens(app, ("ada@example.org", PASSWORD), "acme", Scopes::ALL).await;
    for scopes in [Scopes::READ, Scopes::NONE, Scopes::ALL] {
        put(
            app,
            user.key(),
            &User {
                scopes,
                ..user.clone()
            },
        )
        .await;
        let caller = ask(app, &[&format!("Bearer {}", held.access)])
            .await
            .unwrap();
        assert_eq!(caller.scopes, scopes);
    }
}
