use proptest::prelude::*;
use serde_json::Value;
use vault_service::config::Limits;
use vault_service::http::Peer;
use vault_service::model::grant::{GRACE_SECONDS, GRANT_SECONDS, REFRESH_SECONDS};
use vault_service::model::token::CODE_SECONDS;
use vault_service::model::user::{Role, Scopes, User};
use vault_store::records::{When, Write};

use super::{ADA, ADMIN, UNKNOWN, owned, world_at};
use crate::common::{
    CALLBACK, Tokens, VERIFIER, Visitor, authorize, bootstrap, commit, exchange, form_request,
    post_form, put, refresh, register, send, tokens,
};
use crate::support::{World, bearer};

const INVALID_GRANT: &str = "400 invalid_grant";

#[tokio::test]
async fn requirement_31_the_answer_in_full() {
    let place = owned().await;
    let client = register(&place.app, CALLBACK).await;
    let reply = exchange(&place.app, &client, &place.code(&client).await).await;
    assert_eq!(reply.status, 200);
    let headers = ["content-type", "cache-control", "pragma"].map(|name| reply.header(name));
    assert_eq!(headers, ["application/json", "no-store", "no-cache"]);
    let mut answer = reply.json();
    for (name, prefix) in [("access_token", "vat_"), ("refresh_token", "vrt_")] {
        let token = answer[name].take();
        assert!(token.as_str().unwrap().starts_with(prefix), "{token}");
    }
    insta::assert_snapshot!(answer.to_string(), @r#"{"access_token":null,"expires_in":900,"refresh_token":null,"scope":"read write","token_type":"Bearer"}"#);
}

/// What is right but for a verifier, a client or an address is in `replays.rs`.
#[tokio::test]
async fn requirements_30_and_34_what_the_endpoint_refuses() {
    let place = owned().await;
    let client = register(&place.app, CALLBACK).await;
    let code = place.code(&client).await;
    let good = [
        ("grant_type", "authorization_code"),
        ("client_id", client.as_str()),
        ("code", code.as_str()),
        ("code_verifier", VERIFIER),
        ("redirect_uri", CALLBACK),
    ];
    let unknown_code = format!("vac_{}", "A".repeat(43));
    // An empty value leaves the field out.
    for (name, value, error) in [
        ("grant_type", "", "400 invalid_request"),
        ("grant_type", "password", "400 unsupported_grant_type"),
        (
            "grant_type",
            "client_credentials",
            "400 unsupported_grant_type",
        ),
        ("client_id", "", "400 invalid_request"),
        ("client_id", "nobody", "401 invalid_client"),
        ("code", "", "400 invalid_request"),
        ("code", "vac_x", INVALID_GRANT),
        ("code", &unknown_code, INVALID_GRANT),
        ("code_verifier", "", "400 invalid_request"),
        ("code_verifier", "short", INVALID_GRANT),
    ] {
        let changed = good.map(|(found, kept)| (found, if found == name { value } else { kept }));
        let sent = changed.into_iter().filter(|(_, value)| !value.is_empty());
        let fields: Vec<_> = sent.collect();
        let reply = post_form(&place.app, "/oauth/token", &fields).await;
        assert_eq!(reply.short(), error, "{fields:?}");
        assert!(reply.json()["error_description"].is_string());
        assert_eq!(reply.header("cache-control"), "no-store");
    }
    let slash = ("resource", "https://vault.example/mcp/");
    for (more, wanted) in [
        (("code", code.as_str()), "400 invalid_request"),
        (
            ("resource", "https://other.example/mcp"),
            "400 invalid_target",
        ),
        // None of that used the code up.
        (slash, "200 -"),
    ] {
        let fields = [&good[..], &[more]].concat();
        let reply = post_form(&place.app, "/oauth/token", &fields).await;
        assert_eq!(reply.short(), wanted, "{more:?}");
    }
    let json = axum::http::Request::post("/oauth/token").header("content-type", "application/json");
    let reply = send(&place.app, json.body("{}".into()).unwrap()).await;
    assert_eq!(reply.short(), "415 invalid_request");
    let long = post_form(&place.app, "/oauth/token", &[("x", &"y".repeat(9000))]).await;
    assert_eq!(long.short(), "413 invalid_request");
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
        let named_of =
            |resource: &'static str| (!resource.is_empty()).then_some(("resource", resource));
        let address = authorize(&client, CALLBACK, named_of(consented).as_slice());
        let mut visitor = Visitor::new(&place.app);
        let answer = visitor.approve(&address, ADMIN, "default", Scopes::ALL);
        let code = answer.await.returned("code").unwrap();
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("client_id", &client),
            ("code", &code),
            ("code_verifier", VERIFIER),
        ];
        fields.extend(named_of(named));
        let reply = post_form(&place.app, "/oauth/token", &fields).await;
        let Some(opens_admin) = opens_admin else {
            assert_eq!(reply.short(), "400 invalid_target");
            continue;
        };
        let access = reply.text("access_token");
        let request = bearer(&access, "GET", "/admin/vaults", None, &[]);
        let status = send(&place.app, request).await.status;
        assert_eq!(status == 200, opens_admin, "{consented} {named}");
        assert!(place.is_good(&access).await, "all of them open /mcp");
    }
}

#[tokio::test]
async fn requirement_26_a_code_lives_a_minute_and_counts_once() {
    let place = owned().await;
    let client = register(&place.app, CALLBACK).await;
    let late = place.code(&client).await;
    place.clock.advance(CODE_SECONDS);
    let expired = exchange(&place.app, &client, &late).await;
    assert_eq!(expired.short(), INVALID_GRANT);

    let code = place.code(&client).await;
    place.clock.advance(CODE_SECONDS - 1);
    let given = Tokens::of(&client, &exchange(&place.app, &client, &code).await);
    let other = register(&place.app, CALLBACK).await;
    let foreign = exchange(&place.app, &other, &code).await;
    assert_eq!(foreign.short(), INVALID_GRANT);
    assert!(
        place.is_good(&given.access).await,
        "another client cannot end it"
    );
    place.clock.advance(3600);
    let renewed = place.renewed(&given).await;
    let again = exchange(&place.app, &client, &code).await;
    assert_eq!(again.short(), INVALID_GRANT);
    // The second use ends what the first gave.
    assert!(!place.is_good(&renewed.access).await);
    assert_eq!(place.refresh(&renewed).await.short(), INVALID_GRANT);
}

#[tokio::test]
async fn requirement_26_of_many_exchanges_at_once_one_succeeds() {
    let place = owned().await;
    let client = register(&place.app, CALLBACK).await;
    let code = place.code(&client).await;
    let mut tries = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let (app, client, code) = (place.app.clone(), client.clone(), code.clone());
        tries.spawn(async move { exchange(&app, &client, &code).await });
    }
    let replies = tries.join_all().await;
    let (won, lost): (Vec<_>, Vec<_>) = replies.into_iter().partition(|reply| reply.status == 200);
    assert_eq!(won.len(), 1);
    assert!(lost.iter().all(|reply| reply.short() == INVALID_GRANT));
    // And the others count as reuse.
    assert!(!place.is_good(&won[0].text("access_token")).await);
}

#[tokio::test]
async fn requirement_32_each_refresh_gives_a_new_pair() {
    let place = owned().await;
    let mut held = place.tokens(Scopes::ALL).await;
    for _ in 0..3 {
        place.clock.advance(3600);
        let next = place.renewed(&held).await;
        assert_ne!((&next.access, &next.refresh), (&held.access, &held.refresh));
        assert!(place.is_good(&next.access).await);
        assert!(!place.is_good(&held.access).await);
        held = next;
    }
    // 33: another client, or another kind of token, hurts nobody.
    let other = register(&place.app, CALLBACK).await;
    let renamed = held.access.replace("vat", "vrt");
    for (client, token) in [(&other, &held.refresh), (&held.client, &renamed)] {
        let reply = refresh(&place.app, client, token).await;
        assert_eq!(reply.short(), INVALID_GRANT);
    }
    assert_eq!(place.refresh(&held).await.status, 200);
}

#[tokio::test]
async fn requirement_32_a_lost_answer_may_be_asked_for_again_for_ten_minutes() {
    let place = owned().await;
    let held = place.tokens(Scopes::ALL).await;
    let lost = place.renewed(&held).await;
    place.clock.advance(GRACE_SECONDS);
    let reply = place.refresh(&held).await;
    assert_eq!(reply.json()["expires_in"], 900 - GRACE_SECONDS);
    let again = Tokens::of(&held.client, &reply);
    assert_eq!(
        (&again.access, &again.refresh),
        (&lost.access, &lost.refresh)
    );
    // The grace is counted from the rotation, and then the family is dead.
    place.clock.advance(1);
    assert_eq!(place.refresh(&held).await.short(), INVALID_GRANT);
    assert!(!place.is_good(&again.access).await);
    assert_eq!(place.refresh(&again).await.short(), INVALID_GRANT);
}

/// Whoever has a copy of the old refresh token gets the same pair only as long as nobody has used
/// it.
#[tokio::test]
async fn requirement_32_an_answer_that_was_used_is_not_given_again() {
    for used_after in [0, 1, GRACE_SECONDS] {
        let place = owned().await;
        let held = place.tokens(Scopes::ALL).await;
        let next = place.renewed(&held).await;
        place.clock.advance(used_after);
        // The access token of before tells nothing about the new pair.
        assert!(place.is_good(&held.access).await);
        let again = place.renewed(&held).await;
        assert_eq!(again.access, next.access);
        for _ in 0..2 {
            assert!(place.is_good(&next.access).await);
        }
        assert_eq!(place.refresh(&held).await.short(), INVALID_GRANT);
        assert!(!place.is_good(&next.access).await, "the family is dead");
        assert_eq!(place.refresh(&next).await.short(), INVALID_GRANT);
    }
}

/// Even where access tokens live for less than that.
#[tokio::test]
async fn requirement_32_a_repeated_answer_never_ends_before_now() {
    let place = world_at("https://vault.example", |config| {
        config.token_ttl_seconds = 60;
    });
    bootstrap(&place.app).await;
    let held = place.tokens(Scopes::ALL).await;
    let lost = place.renewed(&held).await;
    place.clock.advance(GRACE_SECONDS);
    let reply = place.refresh(&held).await;
    assert_eq!(reply.json()["expires_in"], 0);
    let again = Tokens::of(&held.client, &reply);
    assert_eq!(again.refresh, lost.refresh);
    assert_eq!(place.refresh(&again).await.status, 200);
}

#[tokio::test]
async fn requirement_32_an_old_token_ends_the_family() {
    let place = owned().await;
    // Within the grace, too: its successor was used.
    let held = place.tokens(Scopes::ALL).await;
    let first = place.renewed(&held).await;
    let newest = place.renewed(&first).await;
    assert!(place.is_good(&newest.access).await);
    assert_eq!(place.refresh(&held).await.short(), INVALID_GRANT);
    assert!(!place.is_good(&newest.access).await);
    assert_eq!(place.refresh(&newest).await.short(), INVALID_GRANT);
}

#[tokio::test]
async fn requirement_32_refreshes_at_once_end_no_session_whichever_answer_is_kept() {
    for kept in [0, 7] {
        let place = owned().await;
        let held = place.tokens(Scopes::ALL).await;
        let mut tries = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let (app, held) = (place.app.clone(), held.clone());
            tries.spawn(async move { refresh(&app, &held.client, &held.refresh).await });
        }
        let mut given = Vec::new();
        for reply in tries.join_all().await {
            let tokens = Tokens::of(&held.client, &reply);
            assert!(place.is_good(&tokens.access).await);
            given.push(tokens);
        }
        assert_eq!(given.len(), 8);
        for tokens in &given {
            assert_eq!(tokens.refresh, given[0].refresh, "one pair");
            assert_eq!(tokens.access, given[0].access, "one pair");
        }
        assert_eq!(place.refresh(&given[kept]).await.status, 200);
    }
}

#[tokio::test]
async fn requirement_32_a_repeated_answer_is_kept_nowhere() {
    let place = owned().await;
    let held = place.tokens(Scopes::ALL).await;
    let next = place.renewed(&held).await;
    let home = place.read_namespace("default").await;
    let partition = vault_service::model::grant::grants_partition(Some(&home.id));
    let grants = place.app.records.list_page(&partition, "", None, 10).await;
    let text = grants.unwrap()[0].document.as_str().to_owned();
    for tokens in [&held, &next] {
        for secret in [&tokens.access, &tokens.refresh] {
            assert!(!text.contains(&secret[4..]), "{text}");
        }
    }
}

/// What follows from a token is told by the token together with what the service keeps, so a stolen
/// token of long ago tells nothing of the pair of today.
#[tokio::test]
async fn requirement_32_every_rotation_has_a_salt_of_its_own() {
    let place = owned().await;
    let mut held = place.tokens(Scopes::ALL).await;
    let home = place.read_namespace("default").await;
    let partition = vault_service::model::grant::grants_partition(Some(&home.id));
    let mut salts = std::collections::BTreeSet::new();
    for _ in 0..3 {
        held = place.renewed(&held).await;
        let grants = place.app.records.list_page(&partition, "", None, 10).await;
        let grant: Value = grants.unwrap()[0].read().unwrap();
        let salt = grant["previous"]["salt"].as_str().unwrap().to_owned();
        assert_eq!(salt.len(), 22, "128 bits");
        salts.insert(salt);
    }
    assert_eq!(salts.len(), 3);
}

#[tokio::test]
async fn refresh_tokens_live_thirty_days_from_use_and_180_in_all() {
    let place = owned().await;
    let held = place.tokens(Scopes::ALL).await;
    place.clock.advance(REFRESH_SECONDS);
    assert_eq!(place.refresh(&held).await.short(), INVALID_GRANT);

    let mut held = place.tokens(Scopes::ALL).await;
    for _ in 0..6 {
        place.clock.advance(REFRESH_SECONDS - 1);
        held = place.renewed(&held).await;
    }
    let spent = 6 * (REFRESH_SECONDS - 1);
    place.clock.advance(GRANT_SECONDS - spent - 3);
    let last = place.refresh(&held).await;
    // No token outlives its grant.
    assert_eq!(last.json()["expires_in"], Value::from(3));
    let last = Tokens::of(&held.client, &last);
    place.clock.advance(3);
    assert!(!place.is_good(&last.access).await);
    assert_eq!(place.refresh(&last).await.short(), INVALID_GRANT);
}

#[tokio::test]
async fn requirement_33_a_refresh_may_narrow_and_never_widen() {
    let place = owned().await;
    let asking = async |held: &Tokens, scope: &str| {
        let fields = [
            ("grant_type", "refresh_token"),
            ("client_id", held.client.as_str()),
            ("refresh_token", &held.refresh),
            ("scope", scope),
        ];
        post_form(&place.app, "/oauth/token", &fields).await
    };
    let held = place.tokens(Scopes::ALL).await;
    let read = Tokens::of(&held.client, &asking(&held, "read").await);
    assert_eq!(read.scope, "read");
    let wide = asking(&read, "admin").await;
    assert_eq!(wide.short(), "400 invalid_scope");
    // A refresh token keeps what was granted.
    assert_eq!(place.renewed(&read).await.scope, "read write");

    let reader = place.tokens(Scopes::READ).await;
    let wide = asking(&reader, "read write").await;
    assert_eq!(wide.short(), "400 invalid_scope");
    assert_eq!(place.renewed(&reader).await.scope, "read");
}

#[tokio::test]
async fn requirement_33_the_user_s_current_rights_count() {
    let place = owned().await;
    let (_, user) = place.ada(Role::Member, Scopes::ALL).await;
    for (scopes, wanted) in [
        (Scopes::READ, Ok("read")),
        (Scopes::NONE, Err("400 invalid_scope")),
        (Scopes::ALL, Ok("read write")),
    ] {
        put(&place.app, user.key(), &user).await;
        let held = tokens(&place.app, ADA, "acme", Scopes::ALL).await;
        let changed = User {
            scopes,
            ..user.clone()
        };
        put(&place.app, user.key(), &changed).await;
        let fresh = place.refresh(&held).await;
        match wanted {
            Ok(scope) => assert_eq!(fresh.text("scope"), scope),
            Err(error) => assert_eq!(fresh.short(), error),
        }
    }
    let held = tokens(&place.app, ADA, "acme", Scopes::ALL).await;
    commit(&place.app, vec![Write::delete(user.key(), When::Any)]).await;
    assert_eq!(place.refresh(&held).await.short(), INVALID_GRANT);
}

#[tokio::test]
async fn requirement_43_a_client_that_the_owner_ended_comes_back_by_a_new_consent_alone() {
    let place = owned().await;
    let held = place.tokens(Scopes::ALL).await;
    let pending = place.code(&held.client).await;
    place.end_connection(&held.client.parse().unwrap()).await;
    // A consent of before the end.
    let refused = exchange(&place.app, &held.client, &pending).await;
    assert_eq!(refused.short(), "401 invalid_client");
    for _ in 0..2 {
        assert!(!place.is_good(&held.access).await);
        let refused = place.refresh(&held).await;
        assert_eq!(refused.short(), "401 invalid_client");
        // A person decides anew; nothing of before comes back.
        place.clock.advance(1);
        let code = place.code(&held.client).await;
        let again = exchange(&place.app, &held.client, &code).await;
        let again = Tokens::of(&held.client, &again);
        assert!(place.is_good(&again.access).await);
    }
    // An app that keeps asking with what ended fills no log: that it ended stands there already.
    let log = crate::common::audited(&place.app, "default").await;
    let refused = log.iter().filter(|entry| entry.action == "token.grant");
    let refused: Vec<_> = refused.map(|entry| &entry.after).collect();
    assert_eq!(refused.len(), 1, "of the code alone: {refused:?}");
}

/// The new consent of one person is not one for a code that the app got before the end, maybe from
/// somebody else.
#[tokio::test]
async fn requirement_43_a_code_of_before_the_end_stays_dead_once_the_client_is_back() {
    let place = owned().await;
    let held = place.tokens(Scopes::ALL).await;
    let client = held.client.parse().unwrap();
    let mut former = Vec::new();
    for _ in 0..2 {
        former.push(place.code(&held.client).await);
        place.clock.advance(1);
        place.end_connection(&client).await;
        place.clock.advance(1);
        let code = place.code(&held.client).await;
        let again = exchange(&place.app, &held.client, &code).await;
        let again = Tokens::of(&held.client, &again);
        for code in &former {
            let refused = exchange(&place.app, &held.client, code).await;
            assert_eq!(refused.short(), "401 invalid_client");
        }
        assert!(place.is_good(&again.access).await);
    }
}

/// A service with the limits that it has by itself, and the first owner.
async fn limited() -> World {
    let place = world_at("https://vault.example", |config| {
        config.limits = Limits::default();
    });
    bootstrap(&place.app).await;
    place
}

#[tokio::test]
async fn made_up_tokens_of_a_client_leave_its_users_alone() {
    let place = limited().await;
    let held = place.tokens(Scopes::ALL).await;
    let other = register(&place.app, CALLBACK).await;
    let made_up = format!("vrt_{}", "A".repeat(43));
    for _ in 0..60 {
        let refused = refresh(&place.app, &held.client, &made_up).await;
        assert_eq!(refused.short(), INVALID_GRANT);
    }
    let refused = refresh(&place.app, &held.client, &made_up).await;
    assert_eq!(refused.short(), "429 temporarily_unavailable");
    // The clock stands ten seconds behind the minute.
    assert_eq!(refused.header("retry-after"), "50");
    let next = place.refresh(&held).await;
    assert_eq!(next.status, 200, "from the same source: {}", next.body);
    let refused = refresh(&place.app, &other, &made_up).await;
    assert_eq!(refused.short(), INVALID_GRANT, "another client");
    let fields = [
        ("grant_type", "refresh_token"),
        ("client_id", &held.client),
        ("refresh_token", &made_up),
    ];
    let mut elsewhere = form_request("/oauth/token", &fields);
    let peer = Peer("192.0.2.1:1".parse().unwrap());
    elsewhere.extensions_mut().insert(peer);
    let refused = send(&place.app, elsewhere).await;
    assert_eq!(refused.short(), INVALID_GRANT, "another source");
    place.clock.advance(50);
    let refused = refresh(&place.app, &held.client, &made_up).await;
    assert_eq!(refused.short(), INVALID_GRANT, "the next minute");
}

#[tokio::test]
async fn a_grant_gives_tokens_ten_times_a_minute() {
    let place = limited().await;
    let (mut held, other) = (
        place.tokens(Scopes::ALL).await,
        place.tokens(Scopes::ALL).await,
    );
    for _ in 1..10 {
        held = place.renewed(&held).await;
    }
    let refused = place.refresh(&held).await;
    assert_eq!(refused.short(), "429 temporarily_unavailable");
    assert_eq!(refused.header("retry-after"), "50");
    assert_eq!(place.refresh(&other).await.status, 200, "another grant");
    place.clock.advance(50);
    assert_eq!(place.refresh(&held).await.status, 200, "nothing was lost");
}

#[tokio::test]
async fn unknown_clients_of_one_source_fail_sixty_times_a_minute_under_all_their_names() {
    let place = limited().await;
    for n in 0..61 {
        let refused = refresh(&place.app, &format!("cli_{n:026}"), "x").await;
        let wanted = match n {
            60 => "429 temporarily_unavailable",
            _ => "401 invalid_client",
        };
        assert_eq!(refused.short(), wanted, "{n}");
    }
}

#[tokio::test]
async fn requirement_12_an_unknown_client_learns_that_first() {
    let place = owned().await;
    for reply in [
        refresh(&place.app, UNKNOWN, "no token of ours").await,
        exchange(&place.app, UNKNOWN, "no code of ours").await,
    ] {
        assert_eq!(reply.short(), "401 invalid_client");
    }
}

#[tokio::test]
async fn requirement_34_a_client_with_a_secret_is_told_that_there_are_none() {
    let place = owned().await;
    let fields = [("grant_type", "refresh_token"), ("refresh_token", "x")];
    let mut request = form_request("/oauth/token", &fields);
    let secret = "Basic eDp5".parse().unwrap();
    request.headers_mut().insert("authorization", secret);
    let reply = send(&place.app, request).await;
    assert_eq!(reply.short(), "401 invalid_client");
    assert_eq!(reply.header("www-authenticate"), "Basic realm=\"vault\"");
}

/// What a holder, or a thief, of refresh tokens may do.
#[derive(Clone, Debug)]
enum Step {
    Refresh(usize),
    Use(usize),
    Wait(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0usize..8).prop_map(Step::Refresh),
        1 => (0usize..8).prop_map(Step::Use),
        2 => (0i64..400).prop_map(Step::Wait)
    ];
    prop::collection::vec(step, 1..14)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Against a model of a few lines: which tokens may be refreshed, when the family dies, and
    /// that at most one access token chain is good.
    #[test]
    fn requirement_32_any_order_of_refreshes_follows_the_model(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let place = owned().await;
            let first = place.tokens(Scopes::ALL).await;
            let client = first.client.clone();
            let mut given = vec![first];
            let (mut newest, mut previous, mut alive) = (0usize, None::<(usize, i64)>, true);
            let (mut now, mut issued) = (0i64, vec![0i64]);
            for step in steps {
                let at = match step {
                    Step::Wait(seconds) => { place.clock.advance(seconds); now += seconds; continue }
                    Step::Use(at) => {
                        let at = at % given.len();
                        let good = place.is_good(&given[at].access).await;
                        assert_eq!(good, alive && now < issued[at] + 900);
                        // The answer arrived, so it is not given again.
                        previous = previous.filter(|_| !good || at != newest);
                        continue
                    }
                    Step::Refresh(at) => at % given.len(),
                };
                let reply = place.refresh(&given[at]).await;
                let lost_answer = previous.is_some_and(|(old, since)| old == at && now <= since + GRACE_SECONDS);
                if alive && (at == newest || lost_answer) {
                    assert_eq!(reply.status, 200, "{}", reply.body);
                    let tokens = Tokens::of(&client, &reply);
                    if at == newest {
                        previous = Some((at, now));
                        given.push(tokens);
                        newest = given.len() - 1;
                        issued.push(now);
                    } else {
                        assert_eq!(tokens.refresh, given[newest].refresh, "the same pair");
                        assert_eq!(tokens.access, given[newest].access, "the same pair");
                    }
                } else {
                    assert_eq!(reply.short(), "400 invalid_grant");
                    alive = false;
                }
                assert_eq!(given[newest].scope, "read write");
            }
            for (tokens, issued) in given.iter().zip(issued) {
                assert_eq!(place.is_good(&tokens.access).await, alive && now < issued + 900);
            }
        });
    }
}
