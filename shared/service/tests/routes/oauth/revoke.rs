use axum::http::header;
use vault_service::model::namespace::{Namespace, Status};
use vault_service::model::user::{Role, Scopes};

use super::{ADA, UNKNOWN, owned};
use crate::common::{CALLBACK, Reply, Tokens, form_request, register, send, tokens};
use crate::support::World;

async fn revoke(place: &World, bearer: Option<&str>, fields: &[(&str, &str)]) -> Reply {
    let mut request = form_request("/oauth/revoke", fields);
    if let Some(token) = bearer {
        let value = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert(header::AUTHORIZATION, value);
    }
    send(&place.app, request).await
}

/// Whether the access token is good, and the refresh token.
async fn works(place: &World, held: &Tokens) -> (bool, bool) {
    let access = place.is_good(&held.access).await;
    (access, place.refresh(held).await.status == 200)
}

#[tokio::test]
async fn requirement_41_the_client_or_the_person_may_end_a_token() {
    let place = owned().await;
    place.ada(Role::Member, Scopes::READ).await;
    let ada = tokens(&place.app, ADA, "acme", Scopes::READ).await;
    let mine = place.tokens(Scopes::READ).await;
    let stranger = register(&place.app, CALLBACK).await;

    // Another client of the same account may end a token, and none of another account.
    for (bearer, client, ended) in [
        (None, Some("own"), true),
        (Some("own"), None, true),
        (Some(mine.access.as_str()), None, true),
        (None, Some(stranger.as_str()), false),
        (Some(ada.access.as_str()), None, false),
    ] {
        let held = place.tokens(Scopes::ALL).await;
        let own = |value, own| if value == "own" { own } else { value };
        let mut fields = vec![
            ("token", held.refresh.as_str()),
            ("token_type_hint", "access_token"),
        ];
        fields.extend(client.map(|id| ("client_id", own(id, &held.client))));
        let bearer = bearer.map(|token| own(token, &held.access));
        let reply = revoke(&place, bearer, &fields).await;
        assert_eq!((reply.status, reply.body.as_str()), (200, ""));
        assert_eq!(reply.header("cache-control"), "no-store");
        let works = works(&place, &held).await;
        assert_eq!(works, (!ended, !ended), "{bearer:?} {client:?}");
    }
}

#[tokio::test]
async fn requirement_41_nobody_is_401() {
    let place = owned().await;
    let held = place.tokens(Scopes::ALL).await;
    let metadata = "resource_metadata=\"https://vault.example/.well-known/oauth-protected-resource/mcp\", scope=\"read write\"";
    let token = ("token", held.refresh.as_str());
    let nobody = revoke(&place, None, &[token]).await;
    assert_eq!(nobody.short(), "401 invalid_client");
    let challenge = nobody.header("www-authenticate");
    assert_eq!(challenge, format!("Bearer {metadata}"));
    let junk = revoke(&place, Some("vat_junk"), &[token]).await;
    assert_eq!(junk.short(), "401 invalid_token");
    let challenge = junk.header("www-authenticate");
    let wanted = format!("Bearer error=\"invalid_token\", {metadata}");
    assert_eq!(challenge, wanted);
    let unknown = revoke(&place, None, &[token, ("client_id", UNKNOWN)]).await;
    assert_eq!(unknown.short(), "401 invalid_client");
    assert_eq!(works(&place, &held).await, (true, true));
}

#[tokio::test]
async fn requirement_41_a_suspended_vault_keeps_nobody_from_ending_a_token() {
    let place = owned().await;
    place.ada(Role::Member, Scopes::READ).await;
    let held = tokens(&place.app, ADA, "acme", Scopes::READ).await;
    let suspend = |home: &mut Namespace| home.status = Status::Suspended;
    place.change("acme", suspend).await;
    let done = revoke(&place, Some(&held.access), &[("token", &held.refresh)]).await;
    assert_eq!((done.status, done.body.as_str()), (200, ""));
    assert_eq!(place.refresh(&held).await.short(), "400 invalid_grant");
}

#[tokio::test]
async fn requirement_42_what_was_never_there_is_200_and_the_family_goes_with_a_refresh_token() {
    let place = owned().await;
    let held = place.tokens(Scopes::ALL).await;
    let client = ("client_id", held.client.as_str());
    let end = async |token: &str| {
        let reply = revoke(&place, None, &[("token", token), client]).await;
        assert_eq!(reply.status, 200, "{token}");
    };
    for token in ["nonsense", "vat_x", &format!("vrt_{}", "A".repeat(43))] {
        end(token).await;
    }
    for fields in [&[client][..], &[("token", "a"), ("token", "b"), client]] {
        let reply = revoke(&place, None, fields).await;
        assert_eq!(reply.short(), "400 invalid_request");
    }
    // An access token ends alone. The refresh token was rotated, and is still known.
    end(&held.access).await;
    assert_eq!(works(&place, &held).await, (false, true));
    end(&held.refresh).await;
    assert_eq!(works(&place, &held).await, (false, false));
    end(&held.refresh).await;
}
