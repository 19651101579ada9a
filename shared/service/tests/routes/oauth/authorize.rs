use vault_service::model::session::{APPROVAL_SECONDS, SESSION_SECONDS};
use vault_service::model::user::{Role, Scopes};

use super::{owned, place_at};
use crate::common::{
    CALLBACK, OWNER, OWNER_PASSWORD, PASSWORD, Visitor, authorize, bootstrap, exchange,
    form_request, get, member, namespace, register, send,
};

const ADMIN: (&str, &str) = (OWNER, OWNER_PASSWORD);

#[tokio::test]
async fn requirement_25_the_walk() {
    let place = owned().await;
    let client = register(&place.app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let mut visitor = Visitor::new(&place.app);

    let page = visitor.get(&address).await;
    assert_eq!((page.status, page.heading()), (200, "Sign in"));
    let before = visitor.cookie.clone().unwrap();
    let back = visitor.log_in(&page, OWNER, OWNER_PASSWORD).await;
    assert_eq!(
        (back.status, back.header("location")),
        (303, address.as_str())
    );
    assert_ne!(
        visitor.cookie.clone().unwrap(),
        before,
        "22: rotated at sign-in"
    );

    let page = visitor.get(&address).await;
    assert_eq!(
        (page.status, page.heading()),
        (200, "Allow this app to use your vault?")
    );
    let back = visitor
        .decide(&page, "approve", "default", Scopes::ALL)
        .await;
    assert_eq!(
        (back.status, back.header("location")),
        (303, address.as_str())
    );

    let answer = visitor.get(&address).await;
    assert_eq!(
        (
            answer.status,
            answer.header("cache-control"),
            answer.header("referrer-policy")
        ),
        (302, "no-store", "no-referrer")
    );
    assert!(
        answer
            .header("location")
            .starts_with("https://app.example/cb?code=vac_"),
        "{}",
        answer.header("location")
    );
    assert_eq!(
        answer.returned("state").as_deref(),
        Some("a state"),
        "21: unchanged"
    );
    assert_eq!(
        answer.returned("iss").as_deref(),
        Some("https://vault.example"),
        "29"
    );

    let again = visitor.get(&address).await;
    assert_eq!(
        (again.status, again.heading()),
        (200, "Allow this app to use your vault?"),
        "24: an approval counts once"
    );
    let code = answer.returned("code").unwrap();
    assert_eq!(exchange(&place.app, &client, &code).await.status, 200);
}

#[tokio::test]
async fn requirements_16_19_20_bad_requests_go_back_to_the_client() {
    let place = owned().await;
    let client = register(&place.app, CALLBACK).await;
    let good = authorize(&client, CALLBACK, &[]);
    for (address, error) in [
        (good.replace("code_challenge=", "x="), "invalid_request"),
        (good.replace("=S256", "=plain"), "invalid_request"),
        (
            good.replace("&code_challenge_method=S256", ""),
            "invalid_request",
        ),
        (
            good.replace("response_type=code", "response_type=token"),
            "unsupported_response_type",
        ),
        (good.replace("response_type=code&", ""), "invalid_request"),
        (format!("{good}&scope=read&scope=read"), "invalid_request"),
        (
            format!("{good}&resource=https%3A%2F%2Fother.example"),
            "invalid_target",
        ),
    ] {
        // Whether or not somebody is signed in: no page stands between a bad request and its error.
        let reply = get(&place.app, &address).await;
        assert_eq!(
            (reply.status, reply.returned("error").as_deref()),
            (302, Some(error)),
            "{address}"
        );
        assert!(
            reply
                .header("location")
                .starts_with("https://app.example/cb?error="),
            "{}",
            reply.header("location")
        );
        assert_eq!(reply.returned("state").as_deref(), Some("a state"));
        assert_eq!(
            reply.returned("iss").as_deref(),
            Some("https://vault.example")
        );
        assert_eq!(reply.returned("code"), None);
    }
}

#[tokio::test]
async fn requirement_17_strangers_are_never_redirected() {
    let place = owned().await;
    let client = register(&place.app, CALLBACK).await;
    let good = authorize(&client, CALLBACK, &[]);
    for (address, heading) in [
        (
            good.replace(&client, "cli_00000000000000000000000000"),
            "This app is not registered here",
        ),
        (
            good.replace(&client, "https%3A%2F%2Fapp.example%2Fclient.json"),
            "This app is not registered here",
        ),
        (
            good.replace("client_id=", "x="),
            "This app is not registered here",
        ),
        (
            format!("{good}&client_id={client}"),
            "This app is not registered here",
        ),
        (
            good.replace("app.example", "evil.example"),
            "This request is not safe",
        ),
        (
            good.replace("redirect_uri=", "x="),
            "This request is not safe",
        ),
        (
            format!("{good}&redirect_uri=https%3A%2F%2Fapp.example%2Fcb"),
            "This request is not safe",
        ),
        (
            authorize(&client, "https://app.example/cb/../x", &[]),
            "This request is not safe",
        ),
        (
            "/oauth/authorize".to_owned(),
            "This sign-in link is incomplete",
        ),
        (
            format!("{good}&x={}", "y".repeat(7000)),
            "This sign-in link is incomplete",
        ),
    ] {
        let reply = get(&place.app, &address).await;
        assert_eq!(
            (reply.status, reply.heading(), reply.header("location")),
            (400, heading, ""),
            "{address}"
        );
    }
}

#[tokio::test]
async fn requirement_18_a_loopback_port_may_differ() {
    let place = owned().await;
    let client = register(&place.app, "http://127.0.0.1:33418/").await;
    let address = authorize(&client, "http://127.0.0.1:51234/", &[]);
    let answer = Visitor::new(&place.app)
        .approve(&address, ADMIN, "default", Scopes::READ)
        .await;
    assert!(
        answer
            .header("location")
            .starts_with("http://127.0.0.1:51234/?code="),
        "{}",
        answer.header("location")
    );
    assert_eq!(
        get(
            &place.app,
            &authorize(&client, "http://127.0.0.1:51234/x", &[])
        )
        .await
        .status,
        400
    );
}

#[tokio::test]
async fn requirement_22_the_cookie() {
    for (url, cookie) in [
        ("https://vault.example", "__Host-vault_session=vse_"),
        ("https://vault.example/a", "__Host-vault_session=vse_"),
        ("http://127.0.0.1:8080", "vault_session=vse_"),
    ] {
        let place = place_at(url, |_| {});
        bootstrap(&place.app).await;
        let client = register_at(&place.app).await;
        let prefix = place.app.config.public_url.prefix();
        let address = format!("{prefix}{}", authorize(&client, CALLBACK, &[]));
        let page = get(&place.app, &address).await;
        let set = page.header("set-cookie").to_owned();
        assert!(set.starts_with(cookie), "{set}");
        let secure = if url.starts_with("https") {
            "; Secure"
        } else {
            ""
        };
        assert!(
            set.ends_with(&format!("; Path=/; HttpOnly; SameSite=Lax{secure}")),
            "{set}"
        );
        assert!(!set.contains("Domain"), "{set}");
        assert!(
            page.body
                .contains(&format!("action=\"{prefix}/oauth/login\""))
        );
    }
}

async fn register_at(app: &vault_service::App) -> String {
    let path = format!("{}/oauth/register", app.config.public_url.prefix());
    let body = serde_json::json!({ "redirect_uris": [CALLBACK] }).to_string();
    let request = axum::http::Request::post(path)
        .header("content-type", "application/json")
        .body(body.into())
        .unwrap();
    send(app, request).await.text("client_id")
}

#[tokio::test]
async fn requirement_22_a_session_lasts_eight_hours_and_ends_by_signing_out() {
    let place = owned().await;
    let client = register(&place.app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let mut visitor = Visitor::new(&place.app);
    let page = visitor.arrive(&address, OWNER, OWNER_PASSWORD).await;
    place.clock.advance(SESSION_SECONDS - 1);
    assert_eq!(
        visitor.get(&address).await.heading(),
        "Allow this app to use your vault?"
    );
    place.clock.advance(1);
    assert_eq!(visitor.get(&address).await.heading(), "Sign in");
    let late = visitor
        .decide(&page, "approve", "default", Scopes::ALL)
        .await;
    assert_eq!(late.status, 403, "its form is too old as well");

    let mut visitor = Visitor::new(&place.app);
    let page = visitor.arrive(&address, OWNER, OWNER_PASSWORD).await;
    let (csrf, return_to) = (
        page.hidden("/oauth/logout", "csrf"),
        page.hidden("/oauth/logout", "return_to"),
    );
    let cookie = visitor.cookie.clone();
    let out = visitor
        .post(
            "/oauth/logout",
            &[("csrf", &csrf), ("return_to", &return_to)],
        )
        .await;
    assert_eq!(
        (out.status, out.header("location")),
        (303, address.as_str())
    );
    assert!(
        out.header("set-cookie")
            .starts_with("__Host-vault_session=; ")
            && out.header("set-cookie").ends_with("Max-Age=0")
    );
    visitor.cookie = cookie;
    assert_eq!(
        visitor.get(&address).await.heading(),
        "Sign in",
        "the old cookie is dead in the store, too"
    );
}

#[tokio::test]
async fn requirement_23_pages_cannot_be_framed_and_load_nothing() {
    let place = owned().await;
    for (redirect, source) in [
        (CALLBACK, "https://app.example"),
        (
            "http://localhost:7777/oauth/callback",
            "http://localhost:7777",
        ),
        ("http://[::1]:7777/", "http:"),
        ("cursor://anysphere.cursor-mcp/oauth/callback", "cursor:"),
    ] {
        let client = register(&place.app, redirect).await;
        let address = authorize(&client, redirect, &[]);
        let mut visitor = Visitor::new(&place.app);
        let sign_in = visitor.get(&address).await;
        let consent = visitor.arrive(&address, OWNER, OWNER_PASSWORD).await;
        for page in [sign_in, consent] {
            let policy = page.header("content-security-policy");
            assert!(
                policy.starts_with("default-src 'none'; style-src 'sha256-"),
                "{policy}"
            );
            let form_action =
                format!("; form-action 'self' {source}; frame-ancestors 'none'; base-uri 'none'");
            assert!(policy.ends_with(&form_action), "{policy}");
            assert_eq!(
                (
                    page.header("x-frame-options"),
                    page.header("referrer-policy")
                ),
                ("DENY", "no-referrer")
            );
            assert_eq!(
                (
                    page.header("cache-control"),
                    page.header("x-content-type-options")
                ),
                ("no-store", "nosniff")
            );
            assert!(
                !page.body.contains("<script") && !page.body.contains("src="),
                "{}",
                page.body
            );
        }
    }
    let error = get(&place.app, "/oauth/authorize?client_id=x").await;
    assert!(
        error
            .header("content-security-policy")
            .ends_with("form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
    );
}

#[tokio::test]
async fn requirement_14_the_consent_page_names_who_what_and_where() {
    let place = owned().await;
    for (redirect, shown, warning) in [
        (CALLBACK, "<strong>app.example</strong>", None),
        (
            "http://127.0.0.1/",
            "<strong>127.0.0.1</strong>",
            Some("This request comes from a program on this computer."),
        ),
        (
            "http://localhost:3000/cb",
            "<strong>localhost</strong>",
            Some("This request comes from a program on this computer."),
        ),
        (
            "cursor://x/cb",
            "<strong>cursor:</strong>",
            Some("This request comes from an installed program."),
        ),
    ] {
        let client = register(&place.app, redirect).await;
        let page = Visitor::new(&place.app)
            .arrive(&authorize(&client, redirect, &[]), OWNER, OWNER_PASSWORD)
            .await;
        for text in [
            "<q>An app</q>",
            shown,
            OWNER,
            "<strong>default</strong>",
            "value=\"read\" checked",
            "value=\"write\" checked",
        ] {
            assert!(page.body.contains(text), "{text} in {}", page.body);
        }
        assert_eq!(page.body.contains("class=\"note\""), warning.is_some());
        assert!(
            page.body.contains(warning.unwrap_or_default()),
            "{}",
            page.body
        );
    }
}

#[tokio::test]
async fn requirement_12_a_client_s_name_is_text() {
    let place = owned().await;
    let body = serde_json::json!({ "client_name": "<b>\"vault\" & 'co'</b>", "redirect_uris": [CALLBACK] }).to_string();
    let request = axum::http::Request::post("/oauth/register")
        .header("content-type", "application/json")
        .body(body.into())
        .unwrap();
    let client = send(&place.app, request).await.text("client_id");
    let mut visitor = Visitor::new(&place.app);
    let address = authorize(&client, CALLBACK, &[]);
    for page in [
        visitor.get(&address).await,
        visitor.arrive(&address, OWNER, OWNER_PASSWORD).await,
    ] {
        assert!(!page.body.contains("<b>"), "{}", page.body);
        assert!(
            page.body
                .contains("&#60;b&#62;&#34;vault&#34; &#38; &#39;co&#39;"),
            "{}",
            page.body
        );
    }
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
async fn requirement_24_forged_forms_do_nothing() {
    let place = owned().await;
    let client = register(&place.app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let mut visitor = Visitor::new(&place.app);
    let sign_in = visitor.get(&address).await;
    let consent = visitor.arrive(&address, OWNER, OWNER_PASSWORD).await;
    let (csrf, return_to) = (
        consent.hidden("/oauth/consent", "csrf"),
        consent.hidden("/oauth/consent", "return_to"),
    );
    let approve = [
        ("csrf", csrf.as_str()),
        ("return_to", &return_to),
        ("namespace", "default"),
        ("decision", "approve"),
        ("scope", "read"),
    ];
    let cookie = visitor.cookie.clone().unwrap();

    let with = |headers: &[(&'static str, &str)], fields: &[(&str, &str)]| {
        let mut request = form_request("/oauth/consent", fields);
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        request
    };
    let login_token = sign_in.hidden("/oauth/login", "csrf");
    let swapped = |name: &str, value: &'static str| {
        approve.map(|(found, kept)| (found, if found == name { value } else { kept }))
    };
    let of_login = approve.map(|(name, value)| {
        (
            name,
            if name == "csrf" {
                login_token.as_str()
            } else {
                value
            },
        )
    });
    let elsewhere = format!("{return_to}&x=1");
    let of_other_request = approve.map(|(name, value)| {
        (
            name,
            if name == "return_to" {
                elsewhere.as_str()
            } else {
                value
            },
        )
    });
    for (why, request) in [
        ("no cookie", with(&[], &approve)),
        (
            "another cookie",
            with(
                &[(
                    "cookie",
                    &format!("__Host-vault_session=vse_{}", "A".repeat(43)),
                )],
                &approve,
            ),
        ),
        ("no token", with(&[("cookie", &cookie)], &approve[1..])),
        (
            "a made-up token",
            with(
                &[("cookie", &cookie)],
                &swapped("csrf", "AAAAAAAAAAAAAAAAAAAAAA.1795219200.AAAA"),
            ),
        ),
        (
            "the token of the sign-in form",
            with(&[("cookie", &cookie)], &of_login),
        ),
        (
            "the token of another request",
            with(&[("cookie", &cookie)], &of_other_request),
        ),
        (
            "a foreign origin",
            with(
                &[("cookie", &cookie), ("origin", "https://evil.example")],
                &approve,
            ),
        ),
        (
            "a foreign site",
            with(
                &[("cookie", &cookie), ("sec-fetch-site", "cross-site")],
                &approve,
            ),
        ),
        (
            "a sibling site",
            with(
                &[("cookie", &cookie), ("sec-fetch-site", "same-site")],
                &approve,
            ),
        ),
        (
            "a frame without origin",
            with(&[("cookie", &cookie), ("origin", "null")], &approve),
        ),
        (
            "a frame without origin, elsewhere",
            with(
                &[
                    ("cookie", &cookie),
                    ("origin", "null"),
                    ("sec-fetch-site", "cross-site"),
                ],
                &approve,
            ),
        ),
    ] {
        let reply = send(&place.app, request).await;
        assert_eq!(
            (reply.status, reply.heading()),
            (403, "This form has expired"),
            "{why}"
        );
    }
    for (why, fields) in [
        (
            "another place to go",
            swapped("return_to", "https://evil.example/"),
        ),
        (
            "another page of ours",
            swapped("return_to", "/oauth/authorize"),
        ),
        (
            "a line break",
            swapped("return_to", "/oauth/authorize?a=\r\nX: y"),
        ),
    ] {
        assert_eq!(
            send(&place.app, with(&[("cookie", &cookie)], &fields))
                .await
                .status,
            400,
            "{why}"
        );
    }
    for (why, fields) in [
        ("no decision", swapped("decision", "maybe")),
        ("no namespace", swapped("namespace", "../x")),
    ] {
        assert_eq!(
            send(&place.app, with(&[("cookie", &cookie)], &fields))
                .await
                .status,
            400,
            "{why}"
        );
    }
    assert_eq!(
        visitor.get(&address).await.heading(),
        "Allow this app to use your vault?",
        "nothing was decided"
    );
    for headers in [
        &[
            ("cookie", cookie.as_str()),
            ("origin", "https://vault.example"),
        ][..],
        &[("cookie", &cookie)],
    ] {
        assert_eq!(send(&place.app, with(headers, &approve)).await.status, 303);
    }
    let mut foreign = form_request(
        "/oauth/login",
        &[
            ("csrf", &login_token),
            ("email", OWNER),
            ("password", OWNER_PASSWORD),
        ],
    );
    foreign
        .headers_mut()
        .insert("origin", "https://evil.example".parse().unwrap());
    assert_eq!(
        send(&place.app, foreign).await.status,
        403,
        "the sign-in form, too"
    );
}

#[tokio::test]
async fn requirement_24_a_consent_form_counts_once_and_an_approval_waits_two_minutes() {
    let place = owned().await;
    let client = register(&place.app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let mut visitor = Visitor::new(&place.app);
    let page = visitor.arrive(&address, OWNER, OWNER_PASSWORD).await;
    assert_eq!(
        visitor
            .decide(&page, "approve", "default", Scopes::ALL)
            .await
            .status,
        303
    );
    assert_eq!(
        visitor
            .decide(&page, "approve", "default", Scopes::ALL)
            .await
            .status,
        303,
        "a second click"
    );
    assert_eq!(visitor.get(&address).await.status, 302);
    assert_eq!(
        visitor
            .decide(&page, "approve", "default", Scopes::ALL)
            .await
            .status,
        303,
        "a replay"
    );
    let page = visitor.get(&address).await;
    assert_eq!(
        page.heading(),
        "Allow this app to use your vault?",
        "decided nothing"
    );

    visitor
        .decide(&page, "approve", "default", Scopes::ALL)
        .await;
    place.clock.advance(APPROVAL_SECONDS);
    let page = visitor.get(&address).await;
    assert_eq!(page.status, 200);
    visitor
        .decide(&page, "approve", "default", Scopes::ALL)
        .await;
    let other = authorize(&client, CALLBACK, &[("scope", "read")]);
    assert_eq!(
        visitor.get(&other).await.status,
        200,
        "an approval is for exactly one request"
    );
    assert_eq!(
        Visitor::new(&place.app).get(&address).await.heading(),
        "Sign in",
        "and for one browser"
    );
}

#[tokio::test]
async fn a_refusal_goes_back_as_access_denied() {
    let place = owned().await;
    let client = register(&place.app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let mut visitor = Visitor::new(&place.app);
    let page = visitor.arrive(&address, OWNER, OWNER_PASSWORD).await;
    assert_eq!(
        visitor
            .decide(&page, "deny", "default", Scopes::ALL)
            .await
            .status,
        303
    );
    let answer = visitor.get(&address).await;
    assert_eq!(
        (answer.status, answer.returned("error").as_deref()),
        (302, Some("access_denied"))
    );
    assert_eq!(
        answer.returned("iss").as_deref(),
        Some("https://vault.example"),
        "29: on errors, too"
    );
    assert_eq!(
        visitor.get(&address).await.status,
        200,
        "and the person may think again"
    );
}

#[tokio::test]
async fn requirement_21_scopes_are_what_was_asked_what_the_user_has_and_what_was_ticked() {
    let place = owned().await;
    let acme = namespace(&place.app, "acme").await;
    member(
        &place.app,
        "reader@example.org",
        &acme,
        Role::Member,
        Scopes::READ,
    )
    .await;
    member(
        &place.app,
        "writer@example.org",
        &acme,
        Role::Member,
        Scopes::ALL,
    )
    .await;
    let client = register(&place.app, CALLBACK).await;
    let write = Scopes::known("write");
    for (email, asked, ticked, granted) in [
        (
            "writer@example.org",
            "read write",
            Scopes::ALL,
            Some("read write"),
        ),
        (
            "writer@example.org",
            "read write",
            Scopes::READ,
            Some("read"),
        ),
        ("writer@example.org", "read", Scopes::ALL, Some("read")),
        ("writer@example.org", "write", Scopes::ALL, Some("write")),
        (
            "writer@example.org",
            "openid",
            Scopes::ALL,
            Some("read write"),
        ),
        ("writer@example.org", "read write", Scopes::NONE, None),
        (
            "reader@example.org",
            "read write",
            Scopes::ALL,
            Some("read"),
        ),
        ("reader@example.org", "read write", write, None),
    ] {
        let address = authorize(&client, CALLBACK, &[("scope", asked)]);
        let mut visitor = Visitor::new(&place.app);
        let page = visitor.arrive(&address, email, PASSWORD).await;
        assert!(
            !page.body.contains("value=\"write\" checked"),
            "a member has to tick it: {}",
            page.body
        );
        visitor.decide(&page, "approve", "acme", ticked).await;
        let answer = visitor.get(&address).await;
        let Some(granted) = granted else {
            assert_eq!(answer.status, 200, "{email} {asked} {ticked}");
            assert!(
                answer
                    .body
                    .contains("role=\"alert\">Tick at least one thing"),
                "{}",
                answer.body
            );
            continue;
        };
        let tokens = exchange(&place.app, &client, &answer.returned("code").unwrap()).await;
        assert_eq!(tokens.text("scope"), granted, "{email} {asked} {ticked}");
    }
    let page = Visitor::new(&place.app)
        .arrive(
            &authorize(&client, CALLBACK, &[("scope", "write")]),
            "reader@example.org",
            PASSWORD,
        )
        .await;
    assert_eq!(
        (page.status, page.heading()),
        (403, "Your account has no vault yet"),
        "nothing that was asked for can be given"
    );
}

#[tokio::test]
async fn an_account_with_several_namespaces_chooses_one() {
    let place = owned().await;
    let (acme, beta) = (
        namespace(&place.app, "acme").await,
        namespace(&place.app, "beta").await,
    );
    member(
        &place.app,
        "ada@example.org",
        &acme,
        Role::Owner,
        Scopes::ALL,
    )
    .await;
    member(
        &place.app,
        "ada@example.org",
        &beta,
        Role::Member,
        Scopes::READ,
    )
    .await;
    let client = register(&place.app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let mut ada = Visitor::new(&place.app);
    let page = ada.arrive(&address, "ada@example.org", PASSWORD).await;
    assert_eq!(page.heading(), "Allow this app to use one of your vaults?");
    for text in [
        "value=\"acme\" required checked",
        "value=\"beta\" required>",
        "with read access only",
    ] {
        assert!(page.body.contains(text), "{text} in {}", page.body);
    }
    ada.decide(&page, "approve", "beta", Scopes::ALL).await;
    let code = ada.get(&address).await.returned("code").unwrap();
    assert_eq!(
        exchange(&place.app, &client, &code).await.text("scope"),
        "read",
        "cut to what ada may do in beta"
    );

    let page = ada.get(&address).await;
    ada.decide(&page, "approve", "default", Scopes::ALL).await;
    assert_eq!(
        ada.get(&address).await.status,
        200,
        "default is the owner's alone"
    );

    let fixed = authorize(&client, CALLBACK, &[("vault_namespace", "acme")]);
    let page = ada.get(&fixed).await;
    assert!(
        page.body
            .contains("<input type=\"hidden\" name=\"namespace\" value=\"acme\">"),
        "{}",
        page.body
    );
    ada.decide(&page, "approve", "beta", Scopes::ALL).await;
    assert_eq!(
        ada.get(&fixed).await.status,
        200,
        "vault_namespace fixes the choice"
    );
    for slug in ["default", "nobody", "../x"] {
        let page = ada
            .get(&authorize(&client, CALLBACK, &[("vault_namespace", slug)]))
            .await;
        assert_eq!(
            (page.status, page.heading()),
            (403, "Your account has no access to this vault"),
            "{slug}"
        );
    }
}

#[tokio::test]
async fn an_account_without_a_namespace_gets_a_page_and_never_a_code() {
    let place = owned().await;
    let acme = namespace(&place.app, "acme").await;
    let user = member(
        &place.app,
        "ada@example.org",
        &acme,
        Role::Member,
        Scopes::READ,
    )
    .await;
    let client = register(&place.app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let mut ada = Visitor::new(&place.app);
    let page = ada.arrive(&address, "ada@example.org", PASSWORD).await;
    ada.decide(&page, "approve", "acme", Scopes::READ).await;
    let gone = vec![vault_store::records::Write::delete(
        user.key(),
        vault_store::records::When::Any,
    )];
    assert!(place.app.records.commit(gone).await.unwrap().is_done());
    let page = ada.get(&address).await;
    assert_eq!(
        (page.status, page.heading(), page.header("location")),
        (403, "Your account has no vault yet", "")
    );
    let (csrf, return_to) = (
        page.hidden("/oauth/logout", "csrf"),
        page.hidden("/oauth/logout", "return_to"),
    );
    assert_eq!(
        ada.post(
            "/oauth/logout",
            &[("csrf", &csrf), ("return_to", &return_to)]
        )
        .await
        .status,
        303
    );
    assert_eq!(ada.get(&address).await.heading(), "Sign in");
}
