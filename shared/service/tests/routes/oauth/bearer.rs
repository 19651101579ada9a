use axum::http::{HeaderMap, HeaderValue, header};
use vault_format::name::NamespaceId;
use vault_service::App;
use vault_service::bearer::Caller;
use vault_service::error::Refusal;
use vault_service::model::account::{Account, account_key};
use vault_service::model::client::connection_key;
use vault_service::model::grant::{Grant, RevocationReason};
use vault_service::model::namespace::{self, Namespace, Status};
use vault_service::model::user::{Role, Scope, Scopes, User};
use vault_service::route::Audience;
use vault_store::records::{When, Write};

use super::{ADA, ADMIN, owned, world_at};
use crate::common::{
    OWNER, OWNER_PASSWORD, PASSWORD, authenticate, bootstrap, commit, member,
    namespace as make_namespace, put, read, sign_in, tokens,
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
    let good = format!("Bearer {token}");
    let unknown = format!("Bearer vat_{}", "A".repeat(43));
    for (values, error) in [
        (&[][..], None),
        (&["Basic dXNlcjpwYXNz"], None),
        (&["Bearer"], Some("invalid_token")),
        (&["Bearer x"], Some("invalid_token")),
        (&[unknown.as_str()], Some("invalid_token")),
        (&[&format!("{good}x")], Some("invalid_token")),
        (&[&good.replace("vat", "vrt")], Some("invalid_token")),
        (&[&good, &good], Some("invalid_token")),
    ] {
        let (status, code, challenge) = told(ask(&place.app, values).await.unwrap_err());
        let (wanted, error) = match error {
            Some(error) => ("token_invalid", format!("error=\"{error}\", ")),
            None => ("token_required", String::new()),
        };
        assert_eq!((status, code), (401, wanted), "{values:?}");
        assert_eq!(challenge, format!("Bearer {error}{METADATA}"), "{values:?}");
    }
    for scheme in ["Bearer", "bearer", "BEARER"] {
        let caller = ask(&place.app, &[&format!("{scheme} {token}")]).await;
        assert!(caller.is_ok(), "36: {scheme}");
    }
}

#[tokio::test]
async fn a_caller_is_what_the_records_say_now() {
    let place = owned().await;
    let public = &place.app.config.public_url;
    let token = sign_in(&place.app, OWNER, OWNER_PASSWORD, Scopes::READ).await;
    let caller = caller(&place.app, &token).await;
    assert_eq!(caller.email.as_str(), OWNER);
    assert_eq!((caller.role, caller.operator), (Role::Owner, true));
    assert_eq!(caller.namespace.slug.as_str(), "default");
    assert_eq!(caller.scopes, Scopes::READ);
    let (status, code, challenge) = told(caller.elevation_refusal(public));
    assert_eq!((status, code), (403, "operator_elevation_required"));
    assert!(
        challenge.contains("scope=\"read write operator\""),
        "{challenge}"
    );
    assert!(caller.require_namespace("default").is_ok());
    let refused = caller.require_namespace("acme").unwrap_err();
    assert_eq!(told(refused).1, "not_found");

    place.ada(Role::Member, Scopes::READ).await;
    let ada = tokens(&place.app, ADA, "acme", Scopes::ALL).await;
    let ada = self::caller(&place.app, &ada.access).await;
    let refused = told(ada.elevation_refusal(public));
    assert_eq!(refused, (403, "operator_required", String::new()));
}

async fn caller(app: &App, token: &str) -> Caller {
    ask(app, &[&format!("Bearer {token}")]).await.unwrap()
}

async fn refused(app: &App, token: &str) -> Option<&'static str> {
    ask(app, &[&format!("Bearer {token}")])
        .await
        .err()
        .map(|refusal| refusal.code().row().code)
}

#[tokio::test]
async fn one_write_on_grant_user_client_account_or_namespace_ends_every_token() {
    let place = owned().await;
    let app = &place.app;
    let (acme, user) = place.ada(Role::Member, Scopes::ALL).await;
    let held = tokens(app, ADA, "acme", Scopes::ALL).await;

    let key = namespace::namespace_key(&acme.slug);
    let home: Namespace = read(app, &key).await;
    let with_status = |status| Namespace {
        status,
        ..home.clone()
    };
    let other_allocation = Namespace {
        id: NamespaceId::from_parts(1, 1),
        ..home.clone()
    };
    for (changed, code) in [
        (with_status(Status::Suspended), Some("vault_suspended")),
        (with_status(Status::Deleted), Some("token_invalid")),
        (other_allocation, Some("token_invalid")),
        (home, None),
    ] {
        put(app, key.clone(), &changed).await;
        assert_eq!(refused(app, &held.access).await, code, "{changed:?}");
    }

    for key in [
        user.key(),
        account_key(&user.account().unwrap()),
        connection_key(&acme.id, &held.client.parse().unwrap()),
    ] {
        let record = app.records.get_one(&key).await.unwrap().unwrap();
        commit(app, vec![Write::delete(key.clone(), When::Any)]).await;
        let code = refused(app, &held.access).await;
        assert_eq!(code, Some("token_invalid"), "{key}");
        commit(app, vec![Write::put(key, record.document, When::Absent)]).await;
        assert_eq!(refused(app, &held.access).await, None);
    }

    let partition = format!("grant/{}", acme.id);
    let grants = app
        .records
        .list_page(&partition, "", None, 10)
        .await
        .unwrap();
    let [record] = &grants[..] else {
        panic!("{grants:?}")
    };
    let grant: Grant = record.read().unwrap();
    let ended = grant.revocation_writes(record.revision, RevocationReason::Asked, app.clock.now());
    commit(app, ended.unwrap().to_vec()).await;
    assert_eq!(refused(app, &held.access).await, Some("token_invalid"));
}

#[tokio::test]
async fn an_operator_may_into_a_suspended_namespace() {
    let place = owned().await;
    let token = sign_in(&place.app, OWNER, OWNER_PASSWORD, Scopes::ALL).await;
    let suspend = |home: &mut Namespace| home.status = Status::Suspended;
    place.change("default", suspend).await;
    assert_eq!(refused(&place.app, &token).await, None);
    // Read live.
    let key = account_key(&crate::common::account(&place.app, OWNER).await.id);
    let mut account: Account = read(&place.app, &key).await;
    account.operator = false;
    put(&place.app, key, &account).await;
    let code = refused(&place.app, &token).await;
    assert_eq!(code, Some("vault_suspended"));
}

#[tokio::test]
async fn requirement_38_a_token_ends_when_its_time_is_over() {
    let place = world_at("https://vault.example", |config| {
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
    let home = caller(&place.app, &token).await.namespace;
    let partition = format!("user/{}", home.id);
    let user = async || {
        let users = place.app.records.list_page(&partition, "", None, 10).await;
        let record = &users.unwrap()[0];
        let seen = record.read::<User>().unwrap().last_seen_at.unwrap();
        (record.revision, seen)
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

/// 38: the challenge of a narrow token sends a person to the consent page. A scope that the user
/// does not have, or a missing role, gets no challenge, because consent cannot give it.
#[tokio::test]
async fn requirements_38_39_40_scope_and_role_both_count_and_no_consent_makes_an_owner() {
    let place = owned().await;
    let app = &place.app;
    let acme = make_namespace(app, "acme").await;
    let (writer, reader) = ("writer@example.org", "reader@example.org");
    member(app, writer, &acme, Role::Member, Scopes::ALL).await;
    member(app, reader, &acme, Role::Member, Scopes::READ).await;
    let challenge = format!("Bearer error=\"insufficient_scope\", {METADATA}");
    let (writer, reader) = ((writer, PASSWORD), (reader, PASSWORD));
    for (who, home, asked, challenged, owns) in [
        (ADMIN, "default", Scopes::ALL, None, true),
        (ADMIN, "default", Scopes::READ, Some(true), true),
        (writer, "acme", Scopes::ALL, None, false),
        (writer, "acme", Scopes::READ, Some(true), false),
        (reader, "acme", Scopes::READ, Some(false), false),
    ] {
        let held = tokens(app, who, home, asked).await;
        let caller = caller(app, &held.access).await;
        let may = caller.require_scope(Scope::Write, Audience::Mcp, &app.config.public_url);
        let sent = |challenged| {
            if challenged {
                challenge.clone()
            } else {
                String::new()
            }
        };
        let wanted = challenged.map(|challenged| (403, "insufficient_scope", sent(challenged)));
        assert_eq!(may.err().map(told), wanted, "{who:?} {asked}");
        let wanted = (!owns).then(|| (403, "owner_required", String::new()));
        assert_eq!(caller.require_owner().err().map(told), wanted, "{who:?}");
    }
}
