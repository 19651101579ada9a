use axum::http::{Request, header};
use vault_service::model::namespace::{self as homes, Namespace, Status};
use vault_service::model::user::{Role, Scopes};

use super::{Place, owned};
use crate::common::{
    CALLBACK, OWNER, OWNER_PASSWORD, PASSWORD, Reply, Tokens, encoded, member, namespace, refresh,
    register, send, tokens,
};

const ADMIN: (&str, &str) = (OWNER, OWNER_PASSWORD);

async fn revoke(place: &Place, bearer: Option<&str>, fields: &[(&str, &str)]) -> Reply {
    let mut request = Request::post("/oauth/revoke")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    if let Some(token) = bearer {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    send(&place.app, request.body(encoded(fields).into()).unwrap()).await
}

async fn works(place: &Place, held: &Tokens) -> (bool, bool) {
    let mut headers = axum::http::HeaderMap::new();
    headers.insert(
        header::AUTHORIZATION,
        format!("Bearer {}", held.access).parse().unwrap(),
    );
    let access = crate::common::authenticate(&place.app, &headers)
        .await
        .is_ok();
    (
        access,
        refresh(&place.app, &held.client, &held.refresh)
            .await
            .status
            == 200,
    )
}

#[tokio::test]
async fn requirement_41_the_client_or_the_person_may_end_a_token() {
    let place = owned().await;
    let acme = namespace(&place.app, "acme").await;
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
        Scopes::READ,
    )
    .await;
    let mine = tokens(&place.app, ADMIN, "default", Scopes::READ).await;
    let stranger = register(&place.app, CALLBACK).await;

    for (who, bearer, client, ended) in [
        ("the client itself", None, Some("own"), true),
        ("a bearer of the same client", Some("own"), None, true),
        (
            "a bearer of the same account, through another client",
            Some(mine.access.as_str()),
            None,
            true,
        ),
        ("another client", None, Some(stranger.as_str()), false),
        (
            "a bearer of another account",
            Some(ada.access.as_str()),
            None,
            false,
        ),
    ] {
        let held = tokens(&place.app, ADMIN, "default", Scopes::ALL).await;
        let bearer = bearer.map(|token| {
            if token == "own" {
                held.access.as_str()
            } else {
                token
            }
        });
        let client = client.map(|id| {
            if id == "own" {
                held.client.as_str()
            } else {
                id
            }
        });
        let mut fields = vec![
            ("token", held.refresh.as_str()),
            ("token_type_hint", "access_token"),
        ];
        fields.extend(client.map(|id| ("client_id", id)));
        let reply = revoke(&place, bearer, &fields).await;
        assert_eq!(
            (
                reply.status,
                reply.body.as_str(),
                reply.header("cache-control")
            ),
            (200, "", "no-store"),
            "{who}"
        );
        assert_eq!(works(&place, &held).await, (!ended, !ended), "{who}");
    }
}

#[tokio::test]
async fn requirement_41_nobody_is_401() {
    let place = owned().await;
    let held = tokens(&place.app, ADMIN, "default", Scopes::ALL).await;
    let metadata = "resource_metadata=\"https://vault.example/.well-known/oauth-protected-resource/mcp\", scope=\"read write\"";
    let nobody = revoke(&place, None, &[("token", &held.refresh)]).await;
    assert_eq!(
        (nobody.short().as_str(), nobody.header("www-authenticate")),
        ("401 invalid_client", format!("Bearer {metadata}").as_str())
    );
    let junk = revoke(&place, Some("vat_junk"), &[("token", &held.refresh)]).await;
    assert_eq!(junk.short(), "401 invalid_token");
    assert_eq!(
        junk.header("www-authenticate"),
        format!("Bearer error=\"invalid_token\", {metadata}")
    );
    let unknown = revoke(
        &place,
        None,
        &[
            ("token", &held.refresh),
            ("client_id", "cli_00000000000000000000000000"),
        ],
    )
    .await;
    assert_eq!(unknown.short(), "401 invalid_client");
    assert_eq!(works(&place, &held).await, (true, true));
}

#[tokio::test]
async fn requirement_41_a_suspended_vault_keeps_nobody_from_ending_a_token() {
    let place = owned().await;
    let app = &place.app;
    let acme = namespace(app, "acme").await;
    member(app, "ada@example.org", &acme, Role::Member, Scopes::READ).await;
    let held = tokens(app, ("ada@example.org", PASSWORD), "acme", Scopes::READ).await;
    let (mut home, revision) = homes::find(&*app.records, &acme.slug)
        .await
        .unwrap()
        .unwrap();
    let suspend = |home: &Namespace, revision| vec![home.update(revision).unwrap()];
    home.status = Status::Suspended;
    let done = app.records.commit(suspend(&home, revision)).await.unwrap();
    assert!(done.is_done());
    let done = revoke(&place, Some(&held.access), &[("token", &held.refresh)]).await;
    assert_eq!((done.status, done.body.as_str()), (200, ""));
    let again = refresh(app, &held.client, &held.refresh).await;
    assert_eq!(again.short(), "400 invalid_grant");
}

#[tokio::test]
async fn requirement_42_what_was_never_there_is_200_and_the_family_goes_with_a_refresh_token() {
    let place = owned().await;
    let held = tokens(&place.app, ADMIN, "default", Scopes::ALL).await;
    let client = held.client.as_str();
    for token in ["nonsense", "vat_x", &format!("vrt_{}", "A".repeat(43))] {
        assert_eq!(
            revoke(&place, None, &[("token", token), ("client_id", client)])
                .await
                .status,
            200,
            "{token}"
        );
    }
    assert_eq!(
        revoke(&place, None, &[("client_id", client)]).await.short(),
        "400 invalid_request"
    );
    assert_eq!(
        revoke(
            &place,
            None,
            &[("token", "a"), ("token", "b"), ("client_id", client)]
        )
        .await
        .short(),
        "400 invalid_request"
    );

    assert_eq!(
        revoke(
            &place,
            None,
            &[("token", &held.access), ("client_id", client)]
        )
        .await
        .status,
        200
    );
    assert_eq!(
        works(&place, &held).await,
        (false, true),
        "an access token ends alone"
    );
    assert_eq!(
        revoke(
            &place,
            None,
            &[("token", &held.refresh), ("client_id", client)]
        )
        .await
        .status,
        200,
        "rotated, still known"
    );
    assert_eq!(works(&place, &held).await, (false, false));
    assert_eq!(
        revoke(
            &place,
            None,
            &[("token", &held.refresh), ("client_id", client)]
        )
        .await
        .status,
        200,
        "again"
    );
}
