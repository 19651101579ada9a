use vault_service::model::session::{APPROVAL_SECONDS, SESSION_SECONDS};
use vault_service::model::user::{Role, Scopes};
use vault_store::records::{When, Write};

use super::{ADA, ADMIN, CONSENT, UNKNOWN, owned, world_at};
use crate::common::{
    CALLBACK, OWNER, OWNER_PASSWORD, PASSWORD, Visitor, authorize, bootstrap, commit, exchange,
    form_request, get, member, namespace, post_client, register, send, tokens,
};

#[tokio::test]
async fn requirement_25_the_walk() {
    let place = owned().await;
    let client = register(&place.app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let mut visitor = Visitor::new(&place.app);

    let page = visitor.get(&address).await;
    let before = visitor.cookie.clone();
    visitor.log_in(&page, OWNER, OWNER_PASSWORD).await;
    assert_ne!(visitor.cookie, before, "22: rotated at sign-in");
    visitor.cookie = None;

    let answer = visitor.approve(&address, ADMIN, "default", Scopes::ALL);
    let answer = answer.await;
    let headers = ["cache-control", "referrer-policy"].map(|name| answer.header(name));
    assert_eq!(headers, ["no-store", "no-referrer"]);
    let location = answer.header("location");
    assert!(
        location.starts_with("https://app.example/cb?code=vac_"),
        "{location}"
    );
    // 21: the state is unchanged; 29: the issuer is named.
    let returned = ["state", "iss"].map(|name| answer.returned(name).unwrap());
    assert_eq!(returned, ["a state", "https://vault.example"]);

    let again = visitor.get(&address).await;
    assert_eq!(again.page(), CONSENT, "24: an approval counts once");
    let code = answer.returned("code").unwrap();
    assert_eq!(exchange(&place.app, &client, &code).await.status, 200);
}

#[tokio::test]
async fn requirements_16_19_20_bad_requests_go_back_to_the_client() {
    let place = owned().await;
    let client = register(&place.app, CALLBACK).await;
    let good = authorize(&client, CALLBACK, &[]);
    for (good_part, bad_part, error) in [
        ("code_challenge=", "x=", "invalid_request"),
        ("=S256", "=plain", "invalid_request"),
        ("&code_challenge_method=S256", "", "invalid_request"),
        ("=code&", "=token&", "unsupported_response_type"),
        ("response_type=code&", "", "invalid_request"),
        ("=S256", "=S256&scope=read&scope=read", "invalid_request"),
        ("=S256", "=S256&resource=https%3A%2F%2Fx", "invalid_target"),
    ] {
        let address = good.replace(good_part, bad_part);
        // Whether or not somebody is signed in: no page stands between a bad request and its error.
        let reply = get(&place.app, &address).await;
        assert_eq!(reply.status, 302, "{address}");
        let location = reply.header("location");
        assert!(
            location.starts_with("https://app.example/cb?error="),
            "{location}"
        );
        let returned = ["error", "state", "iss"].map(|name| reply.returned(name).unwrap());
        assert_eq!(returned, [error, "a state", "https://vault.example"]);
        assert_eq!(reply.returned("code"), None);
    }
}

#[tokio::test]
async fn requirement_17_strangers_are_never_redirected() {
    const UNREGISTERED: &str = "400 This app is not registered here";
    const UNSAFE: &str = "400 This request is not safe";
    const INCOMPLETE: &str = "400 This sign-in link is incomplete";
    let place = owned().await;
    let client = register(&place.app, CALLBACK).await;
    let good = authorize(&client, CALLBACK, &[]);
    let by_address = good.replace(&client, "https%3A%2F%2Fapp.example%2Fclient.json");
    for (address, page) in [
        (good.replace(&client, UNKNOWN), UNREGISTERED),
        (by_address, UNREGISTERED),
        (good.replace("client_id=", "x="), UNREGISTERED),
        (format!("{good}&client_id={client}"), UNREGISTERED),
        (good.replace("redirect_uri=", "x="), UNSAFE),
        (format!("{good}&redirect_uri={CALLBACK}"), UNSAFE),
        ("/oauth/authorize".to_owned(), INCOMPLETE),
        (format!("{good}&x={}", "y".repeat(7000)), INCOMPLETE),
    ] {
        let reply = get(&place.app, &address).await;
        assert_eq!(reply.page(), page, "{address}");
        assert_eq!(reply.header("location"), "", "{address}");
    }
}

#[tokio::test]
async fn requirement_18_a_loopback_port_may_differ() {
    let place = owned().await;
    let client = register(&place.app, "http://127.0.0.1:33418/").await;
    let address = authorize(&client, "http://127.0.0.1:51234/", &[]);
    let mut visitor = Visitor::new(&place.app);
    let answer = visitor.approve(&address, ADMIN, "default", Scopes::READ);
    let answer = answer.await;
    let location = answer.header("location");
    assert!(
        location.starts_with("http://127.0.0.1:51234/?code="),
        "{location}"
    );
}

#[tokio::test]
async fn requirement_22_the_cookie() {
    for (url, cookie, end) in [
        ("https://vault.example", "__Host-vault_session", "; Secure"),
        (
            "https://vault.example/a",
            "__Host-vault_session",
            "; Secure",
        ),
        ("http://127.0.0.1:8080", "vault_session", ""),
    ] {
        let place = world_at(url, |_| {});
        bootstrap(&place.app).await;
        let client = register(&place.app, CALLBACK).await;
        let prefix = place.app.config.public_url.prefix();
        let address = format!("{prefix}{}", authorize(&client, CALLBACK, &[]));
        let page = get(&place.app, &address).await;
        let set = page.header("set-cookie");
        assert!(set.starts_with(&format!("{cookie}=vse_")), "{set}");
        let end = format!("; Path=/; HttpOnly; SameSite=Lax{end}");
        assert!(set.ends_with(&end) && !set.contains("Domain"), "{set}");
        let action = format!("action=\"{prefix}/oauth/login\"");
        assert!(page.body.contains(&action), "{}", page.body);
    }
}

#[tokio::test]
async fn requirement_22_a_session_lasts_eight_hours_and_ends_by_signing_out() {
    let place = owned().await;
    let client = register(&place.app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let mut visitor = Visitor::new(&place.app);
    let page = visitor.arrive(&address, OWNER, OWNER_PASSWORD).await;
    place.clock.advance(SESSION_SECONDS - 1);
    assert_eq!(visitor.get(&address).await.page(), CONSENT);
    place.clock.advance(1);
    assert_eq!(visitor.get(&address).await.page(), "200 Sign in");
    let late = visitor.allow(&page, "default", Scopes::ALL).await;
    assert_eq!(late.status, 403, "its form is too old as well");

    let mut visitor = Visitor::new(&place.app);
    let page = visitor.arrive(&address, OWNER, OWNER_PASSWORD).await;
    let cookie = visitor.cookie.clone();
    let out = visitor.log_out(&page).await;
    assert_eq!((out.status, out.header("location")), (303, &address[..]));
    let set = out.header("set-cookie");
    assert!(set.starts_with("__Host-vault_session=; ") && set.ends_with("Max-Age=0"));
    // The old cookie is dead in the store, too.
    visitor.cookie = cookie;
    assert_eq!(visitor.get(&address).await.page(), "200 Sign in");
}

#[tokio::test]
async fn requirement_23_pages_cannot_be_framed_and_load_nothing() {
    let place = owned().await;
    for (redirect, source) in [
        (CALLBACK, "https://app.example"),
        ("http://localhost:7777/callback", "http://localhost:7777"),
        ("http://[::1]:7777/", "http:"),
        ("cursor://anysphere.cursor-mcp/oauth/callback", "cursor:"),
    ] {
        let client = register(&place.app, redirect).await;
        let address = authorize(&client, redirect, &[]);
        let mut visitor = Visitor::new(&place.app);
        let sign_in = visitor.get(&address).await;
        let consent = visitor.arrive(&address, OWNER, OWNER_PASSWORD).await;
        let end = format!("; form-action 'self' {source}; frame-ancestors 'none'; base-uri 'none'");
        for page in [sign_in, consent] {
            let policy = page.header("content-security-policy");
            let start = "default-src 'none'; style-src 'sha256-";
            assert!(
                policy.starts_with(start) && policy.ends_with(&end),
                "{policy}"
            );
            for (name, value) in [
                ("x-frame-options", "DENY"),
                ("referrer-policy", "no-referrer"),
                ("cache-control", "no-store"),
                ("x-content-type-options", "nosniff"),
            ] {
                assert_eq!(page.header(name), value, "{name}");
            }
            let body = page.body;
            assert!(
                !body.contains("<script") && !body.contains("src="),
                "{body}"
            );
        }
    }
    let error = get(&place.app, "/oauth/authorize?client_id=x").await;
    let policy = error.header("content-security-policy");
    let end = "form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
    assert!(policy.ends_with(end), "{policy}");
}

#[tokio::test]
async fn requirement_14_the_consent_page_names_who_what_and_where() {
    const ON_THIS_COMPUTER: &str = "This request comes from a program on this computer.";
    const INSTALLED: &str = "This request comes from an installed program.";
    let place = owned().await;
    for (redirect, shown, warning) in [
        (CALLBACK, "app.example", None),
        ("http://127.0.0.1/", "127.0.0.1", Some(ON_THIS_COMPUTER)),
        (
            "http://localhost:3000/",
            "localhost",
            Some(ON_THIS_COMPUTER),
        ),
        ("cursor://x/cb", "cursor:", Some(INSTALLED)),
    ] {
        let client = register(&place.app, redirect).await;
        let address = authorize(&client, redirect, &[]);
        let mut visitor = Visitor::new(&place.app);
        let page = visitor.arrive(&address, OWNER, OWNER_PASSWORD).await;
        for text in [
            "<q>An app</q>",
            &format!("<strong>{shown}</strong>"),
            OWNER,
            "<strong>default</strong>",
            "value=\"read\" checked",
            "it cannot do what needs your confirmation",
            "it can disconnect apps and change who may read and write",
            warning.unwrap_or_default(),
        ] {
            assert!(page.body.contains(text), "{text} in {}", page.body);
        }
        assert_eq!(page.body.contains("class=\"note\""), warning.is_some());
        // The plain client of the interface gets all of it on the person's own computer alone.
        let ticked = page.body.contains("value=\"write\" checked");
        assert_eq!(ticked, warning == Some(ON_THIS_COMPUTER), "{shown}");
    }
}

/// “Write” is ticked from the start where the request names it, or names neither scope nor
/// resource, for a program on the person's own computer: whatever the person's role.
#[tokio::test]
async fn write_is_ticked_in_advance_where_the_request_expects_it_on_this_computer() {
    const MEMBER: &str = "member@example.org";
    let place = owned().await;
    let acme = namespace(&place.app, "acme").await;
    member(&place.app, MEMBER, &acme, Role::Member, Scopes::ALL).await;
    let base = place.app.config.public_url.base().to_owned();
    let loopback = "http://127.0.0.1:4000/callback";
    for (redirect, more, ticked) in [
        (loopback, vec![("scope", "read write")], true),
        (loopback, vec![], true),
        (loopback, vec![("scope", "read")], false),
        (loopback, vec![("resource", &*base)], false),
        (
            loopback,
            vec![("resource", &*base), ("scope", "write")],
            true,
        ),
        (CALLBACK, vec![("scope", "read write")], false),
        (CALLBACK, vec![], false),
    ] {
        let client = register(&place.app, redirect).await;
        let address = authorize(&client, redirect, &more);
        let mut visitor = Visitor::new(&place.app);
        let page = visitor.arrive(&address, MEMBER, PASSWORD).await;
        let is_ticked = page.body.contains("value=\"write\" checked");
        assert_eq!(is_ticked, ticked, "{redirect} {more:?}: {}", page.body);
        // That line is for owners.
        assert!(
            !page
                .body
                .contains("it cannot do what needs your confirmation")
        );
    }
}

#[tokio::test]
async fn requirement_12_a_client_s_name_is_text() {
    let place = owned().await;
    let metadata = serde_json::json!({ "client_name": "<b>\"vault\" & 'co'</b>", "redirect_uris": [CALLBACK] });
    let client = post_client(&place.app, &metadata).await.text("client_id");
    let mut visitor = Visitor::new(&place.app);
    let address = authorize(&client, CALLBACK, &[]);
    let escaped = "&#60;b&#62;&#34;vault&#34; &#38; &#39;co&#39;";
    for page in [
        visitor.get(&address).await,
        visitor.arrive(&address, OWNER, OWNER_PASSWORD).await,
    ] {
        let body = page.body;
        assert!(!body.contains("<b>") && body.contains(escaped), "{body}");
    }
}

#[tokio::test]
async fn requirement_24_forged_forms_do_nothing() {
    const EXPIRED: &str = "403 This form has expired";
    let place = owned().await;
    let client = register(&place.app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let mut visitor = Visitor::new(&place.app);
    let sign_in = visitor.get(&address).await;
    let consent = visitor.arrive(&address, OWNER, OWNER_PASSWORD).await;
    let csrf = consent.hidden("/oauth/consent", "csrf");
    let return_to = consent.hidden("/oauth/consent", "return_to");
    let approve = [
        ("csrf", csrf.as_str()),
        ("return_to", &return_to),
        ("namespace", "default"),
        ("decision", "approve"),
        ("scope", "read"),
    ];
    let cookie = visitor.cookie.clone().unwrap();
    let cookie = ("cookie", cookie.as_str());
    let post = async |headers: &[(&'static str, &str)], changed: (&str, &str)| {
        let fields = approve.map(|(name, value)| {
            let swapped = name == changed.0;
            (name, if swapped { changed.1 } else { value })
        });
        let sent = fields.into_iter().filter(|(_, value)| !value.is_empty());
        let fields: Vec<_> = sent.collect();
        let mut request = form_request("/oauth/consent", &fields);
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        send(&place.app, request).await
    };

    let made_up = format!("__Host-vault_session=vse_{}", "A".repeat(43));
    for (why, headers) in [
        ("no cookie", &[][..]),
        ("another cookie", &[("cookie", made_up.as_str())]),
        ("an origin", &[cookie, ("origin", "https://evil.example")]),
        ("a site", &[cookie, ("sec-fetch-site", "cross-site")]),
        ("a sibling", &[cookie, ("sec-fetch-site", "same-site")]),
        ("a frame without origin", &[cookie, ("origin", "null")]),
    ] {
        let reply = post(headers, ("", "")).await;
        assert_eq!(reply.page(), EXPIRED, "{why}");
    }
    let elsewhere = [cookie, ("origin", "null"), ("sec-fetch-site", "cross-site")];
    assert_eq!(post(&elsewhere, ("", "")).await.page(), EXPIRED);
    let of_login = sign_in.hidden("/oauth/login", "csrf");
    let of_other_request = format!("{return_to}&x=1");
    for changed in [
        ("csrf", ""),
        ("csrf", "AAAAAAAAAAAAAAAAAAAAAA.1795219200.AAAA"),
        ("csrf", &of_login),
        ("return_to", &of_other_request),
    ] {
        let reply = post(&[cookie], changed).await;
        assert_eq!(reply.page(), EXPIRED, "{changed:?}");
    }
    for changed in [
        ("return_to", "https://evil.example/"),
        ("return_to", "/oauth/authorize"),
        ("return_to", "/oauth/authorize?a=\r\nX: y"),
        ("decision", "maybe"),
        ("namespace", "../x"),
    ] {
        let reply = post(&[cookie], changed).await;
        assert_eq!(reply.status, 400, "{changed:?}");
    }
    let page = visitor.get(&address).await;
    assert_eq!(page.page(), CONSENT, "nothing was decided");
    let own = [cookie, ("origin", "https://vault.example")];
    for headers in [&own[..], &[cookie]] {
        assert_eq!(post(headers, ("", "")).await.status, 303);
    }
    let fields = [
        ("csrf", of_login.as_str()),
        ("email", OWNER),
        ("password", OWNER_PASSWORD),
    ];
    let mut foreign = form_request("/oauth/login", &fields);
    let origin = "https://evil.example".parse().unwrap();
    foreign.headers_mut().insert("origin", origin);
    let reply = send(&place.app, foreign).await;
    assert_eq!(reply.status, 403, "the sign-in form, too");
}

#[tokio::test]
async fn requirement_24_a_consent_form_counts_once_and_an_approval_waits_two_minutes() {
    let place = owned().await;
    let client = register(&place.app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let mut visitor = Visitor::new(&place.app);
    let page = visitor.arrive(&address, OWNER, OWNER_PASSWORD).await;
    for why in ["a click", "a second click"] {
        let decided = visitor.allow(&page, "default", Scopes::ALL).await;
        assert_eq!(decided.status, 303, "{why}");
    }
    assert_eq!(visitor.get(&address).await.status, 302);
    let replayed = visitor.allow(&page, "default", Scopes::ALL).await;
    assert_eq!(replayed.status, 303);
    let page = visitor.get(&address).await;
    assert_eq!(page.page(), CONSENT, "the replay decided nothing");

    visitor.allow(&page, "default", Scopes::ALL).await;
    place.clock.advance(APPROVAL_SECONDS);
    let page = visitor.get(&address).await;
    assert_eq!(page.status, 200);
    visitor.allow(&page, "default", Scopes::ALL).await;
    // An approval is for exactly one request, and for one browser.
    let other = authorize(&client, CALLBACK, &[("scope", "read")]);
    assert_eq!(visitor.get(&other).await.status, 200);
    let elsewhere = Visitor::new(&place.app).get(&address).await;
    assert_eq!(elsewhere.page(), "200 Sign in");
}

#[tokio::test]
async fn a_refusal_goes_back_as_access_denied() {
    let place = owned().await;
    let client = register(&place.app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let mut visitor = Visitor::new(&place.app);
    let page = visitor.arrive(&address, OWNER, OWNER_PASSWORD).await;
    let denied = visitor.decide(&page, "deny", "default", Scopes::ALL).await;
    assert_eq!(denied.status, 303);
    let answer = visitor.get(&address).await;
    assert_eq!(answer.status, 302);
    let returned = ["error", "iss"].map(|name| answer.returned(name).unwrap());
    assert_eq!(returned, ["access_denied", "https://vault.example"]);
    // And the person may think again.
    assert_eq!(visitor.get(&address).await.status, 200);
}

#[tokio::test]
async fn requirement_21_scopes_are_what_was_asked_what_the_user_has_and_what_was_ticked() {
    const READER: &str = "reader@example.org";
    const WRITER: &str = "writer@example.org";
    const BOTH: &str = "read write";
    let place = owned().await;
    let acme = namespace(&place.app, "acme").await;
    for (email, scopes) in [(READER, Scopes::READ), (WRITER, Scopes::ALL)] {
        member(&place.app, email, &acme, Role::Member, scopes).await;
    }
    let client = register(&place.app, CALLBACK).await;
    let write = Scopes::parse_known("write");
    // An app that the person let write before has the box ticked the next time.
    let mut writes_already = false;
    for (email, asked, ticked, granted) in [
        (WRITER, BOTH, Scopes::ALL, Some(BOTH)),
        (WRITER, BOTH, Scopes::READ, Some("read")),
        (WRITER, "read", Scopes::ALL, Some("read")),
        (WRITER, "write", Scopes::ALL, Some("write")),
        (WRITER, "openid read", Scopes::ALL, Some("read")),
        (WRITER, BOTH, Scopes::NONE, None),
        (READER, BOTH, Scopes::ALL, Some("read")),
        (READER, BOTH, write, None),
    ] {
        let address = authorize(&client, CALLBACK, &[("scope", asked)]);
        let mut visitor = Visitor::new(&place.app);
        let page = visitor.arrive(&address, email, PASSWORD).await;
        let is_ticked = page.body.contains("value=\"write\" checked");
        let knows_app = email == WRITER && asked.contains("write") && writes_already;
        assert_eq!(is_ticked, knows_app, "{email} {asked}: {}", page.body);
        visitor.allow(&page, "acme", ticked).await;
        let answer = visitor.get(&address).await;
        let Some(granted) = granted else {
            assert_eq!(answer.status, 200, "{email} {asked} {ticked}");
            let alert = "role=\"alert\">Tick at least one thing";
            assert!(answer.body.contains(alert), "{}", answer.body);
            continue;
        };
        let tokens = exchange(&place.app, &client, &answer.returned("code").unwrap()).await;
        assert_eq!(tokens.text("scope"), granted, "{email} {asked} {ticked}");
        writes_already |= granted.contains("write");
    }
    // Nothing that was asked for is there.
    let address = authorize(&client, CALLBACK, &[("scope", "openid profile")]);
    let refused = get(&place.app, &address).await;
    assert_eq!(refused.returned("error").as_deref(), Some("invalid_scope"));
    // Nothing that was asked for can be given.
    let address = authorize(&client, CALLBACK, &[("scope", "write")]);
    let mut reader = Visitor::new(&place.app);
    let page = reader.arrive(&address, READER, PASSWORD).await;
    assert_eq!(page.page(), "403 Your account has no vault yet");
    assert!(!page.body.contains("new-vault"), "{}", page.body);
    // Where people may create vaults, the page says where.
    let mut config = (*place.app.config).clone();
    config.hosting.sign_up = true;
    let mut app = place.app.clone();
    app.config = config.into();
    let page = Visitor::new(&app).arrive(&address, READER, PASSWORD).await;
    assert_eq!(page.page(), "403 Your account has no vault yet");
    let new = app.config.public_url.join("/account/new-vault");
    assert!(page.body.contains(&new), "{}", page.body);
}

#[tokio::test]
async fn an_account_with_several_namespaces_chooses_one() {
    let place = owned().await;
    place.ada(Role::Owner, Scopes::ALL).await;
    let beta = namespace(&place.app, "beta").await;
    member(&place.app, ADA.0, &beta, Role::Member, Scopes::READ).await;
    let client = register(&place.app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let mut ada = Visitor::new(&place.app);
    let page = ada.arrive(&address, ADA.0, ADA.1).await;
    assert_eq!(page.heading(), "Allow this app to use one of your vaults?");
    for text in [
        "value=\"acme\" required>",
        "value=\"beta\" required>",
        "with read access only",
    ] {
        assert!(page.body.contains(text), "{text} in {}", page.body);
    }
    ada.allow(&page, "beta", Scopes::ALL).await;
    let code = ada.get(&address).await.returned("code").unwrap();
    let scope = exchange(&place.app, &client, &code).await.text("scope");
    assert_eq!(scope, "read", "cut to what ada may do in beta");

    let page = ada.get(&address).await;
    ada.allow(&page, "default", Scopes::ALL).await;
    let page = ada.get(&address).await;
    assert_eq!(page.status, 200, "default is the owner's alone");

    let fixed = authorize(&client, CALLBACK, &[("vault_namespace", "acme")]);
    let page = ada.get(&fixed).await;
    let field = "<input type=\"hidden\" name=\"namespace\" value=\"acme\">";
    assert!(page.body.contains(field), "{}", page.body);
    ada.allow(&page, "beta", Scopes::ALL).await;
    let page = ada.get(&fixed).await;
    assert_eq!(page.status, 200, "vault_namespace fixes the choice");
    for slug in ["default", "nobody", "../x"] {
        let address = authorize(&client, CALLBACK, &[("vault_namespace", slug)]);
        let page = ada.get(&address).await.page();
        assert_eq!(
            page, "403 Your account has no access to this vault",
            "{slug}"
        );
    }
}

#[tokio::test]
async fn an_account_without_a_namespace_gets_a_page_and_never_a_code() {
    let place = owned().await;
    let (_, user) = place.ada(Role::Member, Scopes::READ).await;
    let client = register(&place.app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let mut ada = Visitor::new(&place.app);
    let page = ada.arrive(&address, ADA.0, ADA.1).await;
    ada.allow(&page, "acme", Scopes::READ).await;
    commit(&place.app, vec![Write::delete(user.key(), When::Any)]).await;
    let page = ada.get(&address).await;
    assert_eq!(page.page(), "403 Your account has no vault yet");
    assert_eq!(page.header("location"), "");
    assert_eq!(ada.log_out(&page).await.status, 303);
    assert_eq!(ada.get(&address).await.page(), "200 Sign in");
}

#[tokio::test]
async fn a_head_request_uses_up_no_decision() {
    let place = owned().await;
    let client = register(&place.app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let mut visitor = Visitor::new(&place.app);
    let page = visitor.arrive(&address, OWNER, OWNER_PASSWORD).await;
    visitor
        .decide(&page, "approve", "default", Scopes::ALL)
        .await;
    let head = axum::http::Request::head(&address).body(axum::body::Body::empty());
    let looked = visitor.send(head.unwrap()).await;
    assert_eq!((looked.status, looked.header("location")), (200, ""));
    let answer = visitor.get(&address).await;
    assert!(answer.returned("code").is_some(), "{}", answer.status);
}

/// A person with more vaults than the page offers finds the one of yesterday on it, whatever its
/// name is.
#[tokio::test]
async fn of_many_vaults_those_are_offered_that_were_used_last() {
    let place = owned().await;
    let app = &place.app;
    for n in 0..60 {
        let home = namespace(app, &format!("vault-{n:02}")).await;
        member(app, ADA.0, &home, Role::Member, Scopes::READ).await;
    }
    for slug in ["vault-03", "vault-59"] {
        let held = tokens(app, ADA, slug, Scopes::READ).await;
        assert!(place.is_good(&held.access).await);
        place.clock.advance(1);
    }
    let client = register(app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[]);
    let page = Visitor::new(app).arrive(&address, ADA.0, ADA.1).await;
    let choices = page.body.split("name=\"namespace\" value=\"").skip(1);
    let choices: Vec<_> = choices.map(|it| it.split('"').next().unwrap()).collect();
    assert_eq!(choices.len(), 51);
    assert_eq!(choices[..3], ["vault-59", "vault-03", "vault-00"]);
    assert_eq!(choices[50], "*");
    // One that is not on the list is typed, as people type.
    assert!(page.body.contains("<option value=\"vault-58\">"));
    let other = |name| {
        let client = &client;
        async move {
            let address = authorize(client, CALLBACK, &[]);
            let mut visitor = Visitor::new(app);
            let page = visitor.arrive(&address, ADA.0, ADA.1).await;
            let fields = [
                ("namespace", "*"),
                ("other", name),
                ("scope", "read"),
                ("decision", "approve"),
            ];
            visitor.fill(&page, "/oauth/consent", &fields).await;
            visitor.get(&address).await
        }
    };
    let chosen = other(" Vault-58 ").await;
    assert!(chosen.returned("code").is_some(), "{}", chosen.body);
    for (name, problem) in [
        ("default", "You have no vault of this name"),
        ("", "Choose a vault"),
    ] {
        let unusable = other(name).await;
        assert!(unusable.body.contains(problem), "{}", unusable.body);
    }
}

/// A vault that gives the app nothing takes no place in the list from one that does.
#[tokio::test]
async fn vaults_that_cannot_give_what_is_asked_are_not_offered() {
    let place = owned().await;
    let app = &place.app;
    for n in 0..60 {
        let home = namespace(app, &format!("vault-{n:02}")).await;
        let scopes = if n < 51 { Scopes::READ } else { Scopes::ALL };
        member(app, ADA.0, &home, Role::Member, scopes).await;
    }
    let client = register(app, CALLBACK).await;
    let address = authorize(&client, CALLBACK, &[("scope", "write")]);
    let page = Visitor::new(app).arrive(&address, ADA.0, ADA.1).await;
    let choices = page
        .body
        .matches("name=\"namespace\" value=\"vault-5")
        .count();
    assert_eq!(choices, 9, "{}", page.body);
}
