use proptest::prelude::*;
use serde_json::Value;
use vault_service::App;
use vault_service::model::client::connection_key;
use vault_service::model::grant::{GRACE_SECONDS, GRANT_SECONDS, REFRESH_SECONDS};
use vault_service::model::token::CODE_SECONDS;
use vault_service::model::user::{Role, Scopes, User};
use vault_store::records::{Document, When, Write};

use super::{owned, place_at};
use crate::common::{
    CALLBACK, OWNER, OWNER_PASSWORD, PASSWORD, Tokens, VERIFIER, Visitor, authenticate, authorize,
    bootstrap, exchange, form_request, member, namespace, post_form, refresh, register, send,
    tokens,
};

const ADMIN: (&str, &str) = (OWNER, OWNER_PASSWORD);

/// Whether an access token is good.
async fn is_good(app: &App, access: &str) -> bool {
    let mut headers = axum::http::HeaderMap::new();
    headers.insert("authorization", format!("Bearer {access}").parse().unwrap());
    authenticate(app, &headers).await.is_ok()
}

/// A client with a fresh code.
async fn code(app: &App) -> (String, String) {
    let client = register(app, CALLBACK).await;
    let answer = Visitor::new(app)
        .approve(
            &authorize(&client, CALLBACK, &[]),
            ADMIN,
            "default",
            Scopes::ALL,
        )
        .await;
    (client, answer.returned("code").unwrap())
}

#[tokio::test]
async fn requirement_31_the_answer_in_full() {
    let place = owned().await;
    let (client, code) = code(&place.app).await;
    let reply = exchange(&place.app, &client, &code).await;
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, "application/json")
    );
    assert_eq!(
        (reply.header("cache-control"), reply.header("pragma")),
        ("no-store", "no-cache")
    );
    let mut answer = reply.json();
    assert!(
        answer["access_token"]
            .take()
            .as_str()
            .unwrap()
            .starts_with("vat_")
    );
    assert!(
        answer["refresh_token"]
            .take()
            .as_str()
            .unwrap()
            .starts_with("vrt_")
    );
    insta::assert_snapshot!(answer.to_string(), @r#"{"access_token":null,"expires_in":900,"refresh_token":null,"scope":"read write","token_type":"Bearer"}"#);
}

#[tokio::test]
async fn requirements_30_and_34_what_the_endpoint_refuses() {
    let place = owned().await;
    let (client, code) = code(&place.app).await;
    let other = register(&place.app, CALLBACK).await;
    let good = [
        ("grant_type", "authorization_code"),
        ("client_id", client.as_str()),
        ("code", code.as_str()),
        ("code_verifier", VERIFIER),
        ("redirect_uri", CALLBACK),
    ];
    let with = |name: &str, value: &str| -> Vec<(String, String)> {
        let changed = good.map(|(found, kept)| {
            (
                found.to_owned(),
                if found == name { value } else { kept }.to_owned(),
            )
        });
        changed
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .collect()
    };
    let and = |name: &str, value: &str| {
        let mut fields = with("", "");
        fields.push((name.to_owned(), value.to_owned()));
        fields
    };
    for (fields, error) in [
        (with("grant_type", ""), "400 invalid_request"),
        (with("grant_type", "password"), "400 unsupported_grant_type"),
        (
            with("grant_type", "client_credentials"),
            "400 unsupported_grant_type",
        ),
        (with("client_id", ""), "400 invalid_request"),
        (with("client_id", "nobody"), "401 invalid_client"),
        (
            with("client_id", "cli_00000000000000000000000000"),
            "401 invalid_client",
        ),
        (with("client_id", &other), "400 invalid_grant"),
        (with("code", ""), "400 invalid_request"),
        (with("code", "vac_x"), "400 invalid_grant"),
        (
            with("code", &format!("vac_{}", "A".repeat(43))),
            "400 invalid_grant",
        ),
        (with("code_verifier", ""), "400 invalid_request"),
        (with("code_verifier", "short"), "400 invalid_grant"),
        (
            with("code_verifier", &VERIFIER.replace('a', "b")),
            "400 invalid_grant",
        ),
        (
            with("redirect_uri", "https://app.example/other"),
            "400 invalid_grant",
        ),
        (and("code", &code), "400 invalid_request"),
        (
            and("resource", "https://other.example/mcp"),
            "400 invalid_target",
        ),
    ] {
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let reply = post_form(&place.app, "/oauth/token", &fields).await;
        assert_eq!(reply.short(), error, "{fields:?}");
        assert!(
            reply.json()["error_description"].is_string()
                && reply.header("cache-control") == "no-store"
        );
    }
    let json = axum::http::Request::post("/oauth/token")
        .header("content-type", "application/json")
        .body("{}".into())
        .unwrap();
    assert_eq!(
        crate::common::send(&place.app, json).await.short(),
        "415 invalid_request"
    );
    let long = post_form(&place.app, "/oauth/token", &[("x", &"y".repeat(9000))]).await;
    assert_eq!(long.short(), "413 invalid_request");
    let reply = post_form(
        &place.app,
        "/oauth/token",
        &[&good[..], &[("resource", "https://vault.example/mcp/")]].concat(),
    )
    .await;
    assert_eq!(
        reply.status, 200,
        "none of that used the code up: {}",
        reply.body
    );
}

/// RFC 8707 section 2.2: an exchange may name less than was consented to, and never more.
#[tokio::test]
async fn an_exchange_may_narrow_the_service_to_mcp_and_not_widen_it() {
    let place = owned().await;
    let (base, mcp) = ("https://vault.example", "https://vault.example/mcp");
    for (consented, named, opens_admin) in [
        ("", "", Some(true)),
        ("", mcp, Some(false)),
        (base, mcp, Some(false)),
        (mcp, "", Some(false)),
        (mcp, base, None),
    ] {
        let client = register(&place.app, CALLBACK).await;
        let more = [("resource", consented)];
        let address = authorize(
            &client,
            CALLBACK,
            if consented.is_empty() { &[] } else { &more },
        );
        let answer = Visitor::new(&place.app)
            .approve(&address, ADMIN, "default", Scopes::ALL)
            .await;
        let code = answer.returned("code").unwrap();
        let fields = [
            ("grant_type", "authorization_code"),
            ("client_id", &client),
            ("code", &code),
            ("code_verifier", VERIFIER),
            ("resource", named),
        ];
        let sent = if named.is_empty() { 4 } else { 5 };
        let reply = post_form(&place.app, "/oauth/token", &fields[..sent]).await;
        let Some(opens_admin) = opens_admin else {
            assert_eq!(reply.short(), "400 invalid_target");
            continue;
        };
        let access = reply.text("access_token");
        let request = axum::http::Request::get("/admin/vaults")
            .header("authorization", format!("Bearer {access}"))
            .body(axum::body::Body::empty())
            .unwrap();
        let status = crate::common::send(&place.app, request).await.status;
        assert_eq!(status == 200, opens_admin, "{consented} {named}");
        assert!(is_good(&place.app, &access).await, "all of them open /mcp");
    }
}

#[tokio::test]
async fn requirement_26_a_code_lives_a_minute_and_counts_once() {
    let place = owned().await;
    let (client, late) = code(&place.app).await;
    place.clock.advance(CODE_SECONDS);
    assert_eq!(
        exchange(&place.app, &client, &late).await.short(),
        "400 invalid_grant"
    );

    let (client, code) = code(&place.app).await;
    place.clock.advance(CODE_SECONDS - 1);
    let given = Tokens::of(&client, &exchange(&place.app, &client, &code).await);
    assert!(is_good(&place.app, &given.access).await);
    let other = register(&place.app, CALLBACK).await;
    assert_eq!(
        exchange(&place.app, &other, &code).await.short(),
        "400 invalid_grant"
    );
    assert!(
        is_good(&place.app, &given.access).await,
        "another client cannot end it"
    );
    place.clock.advance(3600);
    let renewed = Tokens::of(&client, &refresh(&place.app, &client, &given.refresh).await);
    assert_eq!(
        exchange(&place.app, &client, &code).await.short(),
        "400 invalid_grant"
    );
    assert!(
        !is_good(&place.app, &renewed.access).await,
        "the second use ends what the first gave"
    );
    assert_eq!(
        refresh(&place.app, &client, &renewed.refresh).await.short(),
        "400 invalid_grant"
    );
}

#[tokio::test]
async fn requirement_26_of_many_exchanges_at_once_one_succeeds() {
    let place = owned().await;
    let (client, code) = code(&place.app).await;
    let mut tries = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let (app, client, code) = (place.app.clone(), client.clone(), code.clone());
        tries.spawn(async move { exchange(&app, &client, &code).await });
    }
    let replies = tries.join_all().await;
    let (won, lost): (Vec<_>, Vec<_>) = replies.into_iter().partition(|reply| reply.status == 200);
    assert_eq!(won.len(), 1);
    assert!(
        lost.iter()
            .all(|reply| reply.short() == "400 invalid_grant")
    );
    assert!(
        !is_good(&place.app, &won[0].text("access_token")).await,
        "and the others count as reuse"
    );
}

#[tokio::test]
async fn requirement_32_each_refresh_gives_a_new_pair() {
    let place = owned().await;
    let mut held = tokens(&place.app, ADMIN, "default", Scopes::ALL).await;
    for _ in 0..3 {
        place.clock.advance(3600);
        let next = Tokens::of(
            &held.client,
            &refresh(&place.app, &held.client, &held.refresh).await,
        );
        assert_ne!((&next.access, &next.refresh), (&held.access, &held.refresh));
        assert!(
            is_good(&place.app, &next.access).await && !is_good(&place.app, &held.access).await
        );
        held = next;
    }
    let other = register(&place.app, CALLBACK).await;
    assert_eq!(
        refresh(&place.app, &other, &held.refresh).await.short(),
        "400 invalid_grant",
        "33: another client"
    );
    assert_eq!(
        refresh(&place.app, &held.client, &held.access.replace("vat", "vrt"))
            .await
            .short(),
        "400 invalid_grant"
    );
    assert_eq!(
        refresh(&place.app, &held.client, &held.refresh)
            .await
            .status,
        200,
        "and nobody was hurt"
    );
}

#[tokio::test]
async fn requirement_32_a_lost_answer_may_be_asked_for_again_for_ten_seconds() {
    let place = owned().await;
    let held = tokens(&place.app, ADMIN, "default", Scopes::ALL).await;
    let lost = Tokens::of(
        &held.client,
        &refresh(&place.app, &held.client, &held.refresh).await,
    );
    place.clock.advance(GRACE_SECONDS);
    let again = Tokens::of(
        &held.client,
        &refresh(&place.app, &held.client, &held.refresh).await,
    );
    assert!(
        is_good(&place.app, &again.access).await && !is_good(&place.app, &lost.access).await,
        "the new pair replaces the lost one"
    );
    place.clock.advance(1);
    assert_eq!(
        refresh(&place.app, &held.client, &held.refresh)
            .await
            .short(),
        "400 invalid_grant",
        "the grace is counted from the first use"
    );
    assert!(
        !is_good(&place.app, &again.access).await,
        "and then the family is dead"
    );
    assert_eq!(
        refresh(&place.app, &held.client, &again.refresh)
            .await
            .short(),
        "400 invalid_grant"
    );
}

#[tokio::test]
async fn requirement_32_an_old_token_ends_the_family() {
    let place = owned().await;
    // Which token comes again: one whose successor was used, within the grace; or one that was replaced by the grace.
    for replaced in [false, true] {
        let held = tokens(&place.app, ADMIN, "default", Scopes::ALL).await;
        let first = Tokens::of(
            &held.client,
            &refresh(&place.app, &held.client, &held.refresh).await,
        );
        let (stolen, newest) = if replaced {
            (
                first.refresh,
                Tokens::of(
                    &held.client,
                    &refresh(&place.app, &held.client, &held.refresh).await,
                ),
            )
        } else {
            (
                held.refresh.clone(),
                Tokens::of(
                    &held.client,
                    &refresh(&place.app, &held.client, &first.refresh).await,
                ),
            )
        };
        assert!(is_good(&place.app, &newest.access).await);
        assert_eq!(
            refresh(&place.app, &held.client, &stolen).await.short(),
            "400 invalid_grant"
        );
        assert!(
            !is_good(&place.app, &newest.access).await,
            "replaced: {replaced}"
        );
        assert_eq!(
            refresh(&place.app, &held.client, &newest.refresh)
                .await
                .short(),
            "400 invalid_grant"
        );
    }
}

#[tokio::test]
async fn requirement_32_of_many_refreshes_at_once_one_pair_is_left() {
    let place = owned().await;
    let held = tokens(&place.app, ADMIN, "default", Scopes::ALL).await;
    let mut tries = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (app, held) = (place.app.clone(), held.clone());
        tries.spawn(async move { refresh(&app, &held.client, &held.refresh).await });
    }
    let mut good = Vec::new();
    for reply in tries.join_all().await {
        assert!(matches!(reply.status, 200 | 503), "{}", reply.body);
        if reply.status == 200 && is_good(&place.app, &reply.text("access_token")).await {
            good.push(reply.text("refresh_token"));
        }
    }
    assert_eq!(
        good.len(),
        1,
        "of the pairs given in the grace the last one counts"
    );
    assert_eq!(
        refresh(&place.app, &held.client, &good[0]).await.status,
        200
    );
}

#[tokio::test]
async fn refresh_tokens_live_thirty_days_from_use_and_180_in_all() {
    let place = owned().await;
    let held = tokens(&place.app, ADMIN, "default", Scopes::ALL).await;
    place.clock.advance(REFRESH_SECONDS);
    assert_eq!(
        refresh(&place.app, &held.client, &held.refresh)
            .await
            .short(),
        "400 invalid_grant"
    );

    let mut held = tokens(&place.app, ADMIN, "default", Scopes::ALL).await;
    for _ in 0..6 {
        place.clock.advance(REFRESH_SECONDS - 1);
        held = Tokens::of(
            &held.client,
            &refresh(&place.app, &held.client, &held.refresh).await,
        );
    }
    place
        .clock
        .advance(GRANT_SECONDS - 6 * (REFRESH_SECONDS - 1) - 3);
    let last = refresh(&place.app, &held.client, &held.refresh).await;
    assert_eq!(
        last.json()["expires_in"],
        Value::from(3),
        "no token outlives its grant"
    );
    let last = Tokens::of(&held.client, &last);
    place.clock.advance(3);
    assert!(!is_good(&place.app, &last.access).await);
    assert_eq!(
        refresh(&place.app, &held.client, &last.refresh)
            .await
            .short(),
        "400 invalid_grant"
    );
}

#[tokio::test]
async fn requirement_33_a_refresh_may_narrow_and_never_widen() {
    let place = owned().await;
    let held = tokens(&place.app, ADMIN, "default", Scopes::ALL).await;
    let narrow = |token: String, scope: &'static str| {
        let (app, client) = (place.app.clone(), held.client.clone());
        async move {
            let fields = [
                ("grant_type", "refresh_token"),
                ("client_id", client.as_str()),
                ("refresh_token", &token),
                ("scope", scope),
            ];
            post_form(&app, "/oauth/token", &fields).await
        }
    };
    let read = Tokens::of(&held.client, &narrow(held.refresh.clone(), "read").await);
    assert_eq!(read.scope, "read");
    assert_eq!(
        narrow(read.refresh.clone(), "admin").await.short(),
        "400 invalid_scope"
    );
    let back = Tokens::of(
        &held.client,
        &refresh(&place.app, &held.client, &read.refresh).await,
    );
    assert_eq!(
        back.scope, "read write",
        "a refresh token keeps what was granted"
    );

    let reader = tokens(&place.app, ADMIN, "default", Scopes::READ).await;
    let fields = [
        ("grant_type", "refresh_token"),
        ("client_id", reader.client.as_str()),
        ("refresh_token", &reader.refresh),
        ("scope", "read write"),
    ];
    assert_eq!(
        post_form(&place.app, "/oauth/token", &fields).await.short(),
        "400 invalid_scope"
    );
    assert_eq!(
        refresh(&place.app, &reader.client, &reader.refresh)
            .await
            .text("scope"),
        "read"
    );
}

#[tokio::test]
async fn requirement_33_the_user_s_current_rights_count() {
    let place = owned().await;
    let acme = namespace(&place.app, "acme").await;
    let user = member(
        &place.app,
        "ada@example.org",
        &acme,
        Role::Member,
        Scopes::ALL,
    )
    .await;
    let held = tokens(
        &place.app,
        ("ada@example.org", PASSWORD),
        "acme",
        Scopes::ALL,
    )
    .await;
    let set = |scopes: Scopes| {
        Write::put(
            user.key(),
            Document::of(&User {
                scopes,
                ..user.clone()
            })
            .unwrap(),
            When::Any,
        )
    };
    for (scopes, answer) in [
        (Scopes::READ, Ok("read")),
        (Scopes::NONE, Err("400 invalid_scope")),
        (Scopes::ALL, Ok("read write")),
    ] {
        place.clock.advance(60);
        assert!(
            place
                .app
                .records
                .commit(vec![set(scopes)])
                .await
                .unwrap()
                .is_done()
        );
        let fresh = tokens_or(&place.app, &held).await;
        match answer {
            Ok(scope) => assert_eq!(fresh.text("scope"), scope),
            Err(error) => assert_eq!(fresh.short(), error),
        }
    }
    let held = tokens(
        &place.app,
        ("ada@example.org", PASSWORD),
        "acme",
        Scopes::ALL,
    )
    .await;
    assert!(
        place
            .app
            .records
            .commit(vec![Write::delete(user.key(), When::Any)])
            .await
            .unwrap()
            .is_done()
    );
    assert_eq!(
        refresh(&place.app, &held.client, &held.refresh)
            .await
            .short(),
        "400 invalid_grant"
    );
}

/// A refresh of a grant of the same person as `held`, made for this look.
async fn tokens_or(app: &App, held: &Tokens) -> crate::common::Reply {
    let address = authorize(&held.client, CALLBACK, &[]);
    let mut visitor = Visitor::new(app);
    let page = visitor.arrive(&address, "ada@example.org", PASSWORD).await;
    if page.status != 200 {
        return refresh(app, &held.client, &held.refresh).await;
    }
    visitor.decide(&page, "approve", "acme", Scopes::ALL).await;
    let code = visitor.get(&address).await.returned("code").unwrap();
    exchange(app, &held.client, &code).await
}

#[tokio::test]
async fn requirement_43_a_client_that_the_owner_ended_is_a_stranger_here() {
    let place = owned().await;
    let held = tokens(&place.app, ADMIN, "default", Scopes::ALL).await;
    let (_, pending) = code_for(&place.app, &held.client).await;
    let home =
        vault_service::model::namespace::find(&*place.app.records, &"default".parse().unwrap())
            .await
            .unwrap()
            .unwrap()
            .0;
    let key = connection_key(&home.id, &held.client.parse().unwrap());
    let mut connection: serde_json::Map<String, Value> = place
        .app
        .records
        .get(&key)
        .await
        .unwrap()
        .unwrap()
        .read()
        .unwrap();
    connection.insert(
        "revoked_at".into(),
        Value::from(place.app.clock.now().to_string()),
    );
    let write = Write::put(key, Document::of(&connection).unwrap(), When::Any);
    assert!(
        place
            .app
            .records
            .commit(vec![write])
            .await
            .unwrap()
            .is_done(),
        "one write"
    );
    assert!(!is_good(&place.app, &held.access).await);
    assert_eq!(
        refresh(&place.app, &held.client, &held.refresh)
            .await
            .short(),
        "401 invalid_client"
    );
    assert_eq!(
        exchange(&place.app, &held.client, &pending).await.short(),
        "401 invalid_client"
    );
}

async fn code_for(app: &App, client: &str) -> (String, String) {
    let answer = Visitor::new(app)
        .approve(
            &authorize(client, CALLBACK, &[]),
            ADMIN,
            "default",
            Scopes::ALL,
        )
        .await;
    (client.to_owned(), answer.returned("code").unwrap())
}

#[tokio::test]
async fn a_client_asks_sixty_times_a_minute() {
    let place = place_at("https://vault.example", |config| {
        config.limits.token_per_client = 3;
    });
    bootstrap(&place.app).await;
    let client = register(&place.app, CALLBACK).await;
    for _ in 0..3 {
        assert_eq!(
            refresh(&place.app, &client, &format!("vrt_{}", "A".repeat(43)))
                .await
                .short(),
            "400 invalid_grant"
        );
    }
    let refused = refresh(&place.app, &client, &format!("vrt_{}", "A".repeat(43))).await;
    assert_eq!(
        (refused.short().as_str(), refused.header("retry-after")),
        ("429 temporarily_unavailable", "60")
    );
    let other = register(&place.app, CALLBACK).await;
    assert_eq!(
        refresh(&place.app, &other, &format!("vrt_{}", "A".repeat(43)))
            .await
            .short(),
        "400 invalid_grant"
    );
}

#[tokio::test]
async fn requirement_12_an_unknown_client_learns_that_first() {
    let place = owned().await;
    let unknown = "cli_00000000000000000000000000";
    for fields in [
        [
            ("grant_type", "refresh_token"),
            ("client_id", unknown),
            ("refresh_token", "no token of ours"),
            ("x", ""),
        ],
        [
            ("grant_type", "authorization_code"),
            ("client_id", unknown),
            ("code", "no code of ours"),
            ("code_verifier", VERIFIER),
        ],
    ] {
        let reply = post_form(&place.app, "/oauth/token", &fields).await;
        assert_eq!(reply.short(), "401 invalid_client", "{fields:?}");
    }
}

#[tokio::test]
async fn requirement_34_a_client_with_a_secret_is_told_that_there_are_none() {
    let place = owned().await;
    let mut request = form_request(
        "/oauth/token",
        &[("grant_type", "refresh_token"), ("refresh_token", "x")],
    );
    request
        .headers_mut()
        .insert("authorization", "Basic eDp5".parse().unwrap());
    let reply = send(&place.app, request).await;
    assert_eq!(
        (reply.short().as_str(), reply.header("www-authenticate")),
        ("401 invalid_client", "Basic realm=\"vault\"")
    );
}

/// What a holder, or a thief, of refresh tokens may do.
#[derive(Clone, Debug)]
enum Step {
    Refresh(usize),
    Wait(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step =
        prop_oneof![3 => (0usize..8).prop_map(Step::Refresh), 1 => (0i64..14).prop_map(Step::Wait)];
    prop::collection::vec(step, 1..14)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Against a model of a few lines: which tokens may be refreshed, when the family dies, and that at most one access token chain is good.
    #[test]
    fn requirement_32_any_order_of_refreshes_follows_the_model(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let place = owned().await;
            let first = tokens(&place.app, ADMIN, "default", Scopes::ALL).await;
            let client = first.client.clone();
            let mut given = vec![first];
            let (mut newest, mut previous, mut alive, mut now) = (0usize, None::<(usize, i64)>, true, 0i64);
            for step in steps {
                let at = match step {
                    Step::Wait(seconds) => { place.clock.advance(seconds); now += seconds; continue }
                    Step::Refresh(at) => at % given.len(),
                };
                let reply = refresh(&place.app, &client, &given[at].refresh).await;
                let lost_answer = previous.is_some_and(|(old, since)| old == at && now <= since + GRACE_SECONDS);
                if alive && (at == newest || lost_answer) {
                    assert_eq!(reply.status, 200, "{}", reply.body);
                    if at == newest {
                        previous = Some((at, now));
                    } else {
                        assert!(!is_good(&place.app, &given[newest].access).await, "the replaced pair is dead");
                    }
                    given.push(Tokens::of(&client, &reply));
                    newest = given.len() - 1;
                } else {
                    assert_eq!(reply.short(), "400 invalid_grant");
                    alive = false;
                }
                assert_eq!(is_good(&place.app, &given[newest].access).await, alive && now < 900);
                assert_eq!(given[newest].scope, "read write");
            }
        });
    }
}
