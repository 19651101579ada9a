//! Signing in at a host that lies about who it is, where its pages are, and to whom an answer
//! belongs.

use serde_json::{Value, json};
use vault_tests::home::{Home, Ran};
use vault_tests::host::{Answer, Host, Wire};

use crate::support::{FAILED, NETWORK, NOT_ALLOWED, connect, refused, unchanged};

const METADATA: &str = "/.well-known/oauth-authorization-server";

/// A machine with a vault, so that connecting makes nothing but the connection.
fn machine() -> Home {
    let home = Home::new();
    home.add("alpha", "x").ok();
    home
}

/// A sign-in that must end so, and leave neither connection nor token.
#[track_caller]
fn sign_in_refused(
    home: &Home,
    host: &Host,
    name: &str,
    answer: impl FnOnce(String) -> Option<String>,
    exit: i32,
    code: &str,
) -> Ran {
    let before = vault_tests::tree::snapshot(home.path(), &[]);
    let ran = connect(home, &host.address(), answer);
    assert_eq!(ran.refused(exit).code, code, "{name}");
    unchanged(home, name, &before);
    ran
}

fn good(base: &str) -> Value {
    json!({
        "issuer": base,
        "authorization_endpoint": format!("{base}/oauth/authorize"),
        "token_endpoint": format!("{base}/oauth/token"),
        "registration_endpoint": format!("{base}/oauth/register"),
        "revocation_endpoint": format!("{base}/oauth/revoke"),
        "code_challenge_methods_supported": ["S256"],
    })
}

#[test]
fn metadata_that_leads_elsewhere_is_refused_before_anything_is_sent() {
    let (home, host, elsewhere) = (machine(), Host::start(), Host::start());
    let (base, other) = (host.url.clone(), elsewhere.url.clone());
    let port = base.rsplit(':').next().unwrap().to_owned();
    let mut cases: Vec<(String, Value)> = Vec::new();
    for issuer in [
        other.clone(),
        format!("{base}/x"),
        format!("{base}//"),
        base.replace("http:", "https:"),
        base.replace("http:", "HTTP:"),
        base.replace("127.0.0.1", "localhost"),
        format!("{base}?x"),
        format!("{base}0"),
        String::new(),
        "https://vault.example".to_owned(),
    ] {
        let mut metadata = good(&base);
        metadata["issuer"] = json!(issuer);
        cases.push((format!("issuer {issuer}"), metadata));
    }
    for endpoint in [
        "authorization_endpoint",
        "token_endpoint",
        "registration_endpoint",
        "revocation_endpoint",
    ] {
        for place in [
            format!("{other}/oauth/x"),
            format!("https://127.0.0.1:{port}/x"),
            format!("http://127.0.0.1:{port}@127.0.0.2/x"),
            format!("http://localhost:{port}/x"),
            format!("{base}.evil.example/x"),
            "/oauth/x".to_owned(),
            "javascript:alert(1)".to_owned(),
            "file:///etc/passwd".to_owned(),
            String::new(),
        ] {
            let mut metadata = good(&base);
            metadata[endpoint] = json!(place);
            cases.push((format!("{endpoint} {place}"), metadata));
        }
    }
    for methods in [json!([]), json!(["plain"]), json!(["s256"])] {
        let mut metadata = good(&base);
        metadata["code_challenge_methods_supported"] = methods;
        cases.push(("no S256".to_owned(), metadata));
    }
    for (name, metadata) in cases {
        host.answers_below(METADATA, Answer::json(&metadata));
        sign_in_refused(&home, &host, &name, Some, NETWORK, "issuer_mismatch");
        assert_eq!(host.requests().len(), 1, "{name}");
    }
    assert_eq!(elsewhere.requests().len(), 0);
    // The operator's slash at the end is the one difference that is none.
    let mut metadata = good(&base);
    metadata["issuer"] = json!(format!("{base}/"));
    host.answers_below(METADATA, Answer::json(&metadata));
    connect(&home, &host.address(), |callback| {
        let (head, issuer) = callback.rsplit_once("iss=").unwrap();
        Some(format!("{head}iss={issuer}%2F"))
    })
    .ok();
}

#[test]
fn metadata_that_is_none_is_refused() {
    let (home, host) = (machine(), Host::start());
    let mut partial = good(&host.url);
    partial.as_object_mut().unwrap().remove("token_endpoint");
    let elsewhere = Host::start();
    let location = format!("{}{METADATA}", elsewhere.url);
    for (name, answer, exit, code) in [
        ("404", Answer::new(404, "no"), NETWORK, "not_a_service"),
        ("HTML", Answer::new(200, "<html>"), NETWORK, "not_a_service"),
        (
            "a member missing",
            Answer::json(&partial),
            NETWORK,
            "answer_unreadable",
        ),
        (
            "an array",
            Answer::new(200, "[]"),
            NETWORK,
            "answer_unreadable",
        ),
        (
            "a redirect",
            Answer::new(301, "").with("Location", &location),
            NETWORK,
            "redirect_refused",
        ),
        (
            "endless",
            Answer::new(200, vec![b' '; 8192]).over(Wire::Endless),
            NETWORK,
            "too_large",
        ),
        (
            "encoded",
            Answer::new(200, "x").with("Content-Encoding", "br"),
            NETWORK,
            "encoding_refused",
        ),
        ("down", Answer::new(503, ""), NETWORK, "http_503"),
        ("shut", Answer::new(403, ""), NOT_ALLOWED, "http_403"),
        ("a teapot", Answer::new(418, ""), FAILED, "http_418"),
    ] {
        host.answers_below(METADATA, answer);
        sign_in_refused(&home, &host, name, Some, exit, code);
    }
    assert_eq!(elsewhere.requests().len(), 0);
}

#[test]
fn an_answer_that_belongs_to_another_sign_in_never_becomes_a_token() {
    let (home, host) = (machine(), Host::start());
    let swap = |callback: &str, name: &str, value: Option<&str>| {
        let (head, query) = callback.split_once('?').unwrap();
        let kept: Vec<String> = query
            .split('&')
            .filter_map(|pair| {
                if pair.starts_with(&format!("{name}=")) {
                    return value.map(|value| format!("{name}={value}"));
                }
                Some(pair.to_owned())
            })
            .collect();
        format!("{head}?{}", kept.join("&"))
    };
    for (name, member, value, code) in [
        ("another state", "state", Some("another"), "state_mismatch"),
        ("no state", "state", None, "state_mismatch"),
        ("an empty state", "state", Some(""), "state_mismatch"),
        (
            "another issuer",
            "iss",
            Some("https%3A%2F%2Fevil.example"),
            "issuer_mismatch",
        ),
        ("no issuer", "iss", None, "issuer_mismatch"),
        ("denied", "code", None, "sign_in_failed"),
    ] {
        let exit = match code {
            "issuer_mismatch" => NETWORK,
            _ => NOT_ALLOWED,
        };
        host.attack(|_| None);
        sign_in_refused(
            &home,
            &host,
            name,
            |callback| Some(swap(&callback, member, value)),
            exit,
            code,
        );
        let paths: Vec<_> = host
            .requests()
            .into_iter()
            .map(|request| request.path)
            .collect();
        assert!(
            !paths.iter().any(|path| path == "/oauth/token"),
            "{name}: {paths:?}"
        );
    }
    // The one that belongs to it does, with the verifier of its own challenge.
    host.attack(|_| None);
    connect(&home, &host.address(), Some).ok();
    let token = host
        .requests()
        .into_iter()
        .find(|request| request.path == "/oauth/token")
        .unwrap();
    let form = String::from_utf8(token.body).unwrap();
    assert!(form.contains("code_verifier="), "{form}");
    assert!(form.contains("code=vac_test"), "{form}");
}

#[test]
fn registrations_and_tokens_that_are_none_leave_nothing() {
    let (home, host) = (machine(), Host::start());
    let error = |status, error: &str| {
        Answer::new(
            status,
            json!({ "error": error, "error_description": "no\u{1b}[2J" }).to_string(),
        )
    };
    for path in ["/oauth/register", "/oauth/token"] {
        for (name, answer, exit, code) in [
            (
                "refused",
                error(400, "invalid_grant"),
                NOT_ALLOWED,
                "sign_in_failed",
            ),
            (
                "busy",
                error(429, "slow_down"),
                NETWORK,
                "sign_in_unavailable",
            ),
            (
                "down",
                Answer::new(500, "x"),
                NETWORK,
                "sign_in_unavailable",
            ),
            (
                "HTML",
                Answer::new(200, "<html>"),
                NETWORK,
                "answer_unreadable",
            ),
            (
                "nothing in it",
                Answer::new(200, "{}"),
                NETWORK,
                "answer_unreadable",
            ),
            (
                "a redirect",
                Answer::new(308, "").with("Location", "/elsewhere"),
                NETWORK,
                "redirect_refused",
            ),
        ] {
            host.attack(move |request| (request.path == path).then(|| answer.clone()));
            let ran = sign_in_refused(&home, &host, name, Some, exit, code);
            assert!(!ran.stdout.contains('\u{1b}') && !ran.stderr.contains('\u{1b}'));
        }
    }
    // Signed in, but not for this vault.
    for (exit, code, cases) in [
        (
            NOT_ALLOWED,
            "no_such_vault",
            vec![
                ("none", json!({ "items": [], "next": null })),
                (
                    "another",
                    json!({ "items": [{ "slug": "other", "role": "role:owner", "kind": "hosted" }], "next": null }),
                ),
            ],
        ),
        (
            NETWORK,
            "answer_unreadable",
            vec![
                (
                    "a slug that climbs",
                    json!({ "items": [{ "slug": "../acme", "role": "role:owner", "kind": "hosted" }], "next": null }),
                ),
                ("a list without end", json!({ "items": [], "next": "more" })),
            ],
        ),
    ] {
        for (name, list) in cases {
            host.answers_below("/admin/vaults", Answer::json(&list));
            sign_in_refused(&home, &host, name, Some, exit, code);
        }
    }
}

#[test]
fn addresses_that_are_not_safe_are_wrong_usage() {
    let home = machine();
    for address in [
        "http://vault.example",
        "http://10.0.0.1",
        "http://127.0.0.1.evil.example",
        "http://localhost.evil.example",
        "http://[::ffff:10.0.0.1]",
        "ftp://127.0.0.1",
        "https://user:secret@vault.example",
        "https://vault.example/?next=x",
        "https://vault.example/v/../acme",
        "https://vault.example/v/Acme",
        "vault.example",
        "",
    ] {
        for command in ["connect", "link"] {
            let arguments: Vec<&str> = match command {
                "connect" => vec!["cloud", "connect", address, "--json"],
                _ => vec!["link", address, "--json"],
            };
            let before = vault_tests::tree::snapshot(home.path(), &[]);
            let ran = home.run(&arguments);
            assert_eq!(ran.code, 2, "{command} {address}: {}", ran.stdout);
            unchanged(&home, address, &before);
        }
    }
    refused(
        &home,
        "not connected",
        "sync --cloud --json",
        2,
        "not_connected",
    );
}

#[test]
fn what_is_kept_of_a_sign_in_is_for_its_owner_alone() {
    use std::os::unix::fs::MetadataExt as _;
    let (home, host) = (machine(), Host::start());
    connect(&home, &host.address(), Some).ok();
    let tokens = home.config().join("services");
    let folder = std::fs::read_dir(&tokens)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let file = folder.join("acme.json");
    for (path, mode) in [(&tokens, 0o700), (&folder, 0o700), (&file, 0o600)] {
        assert_eq!(
            std::fs::metadata(path).unwrap().mode() & 0o777,
            mode,
            "{}",
            path.display()
        );
    }
    let vault = vault_tests::tree::files(&home.vault());
    for (path, (_, bytes)) in vault {
        let holds = bytes
            .windows(8)
            .any(|window| window == b"vat_test" || window == b"vrt_test");
        assert!(!holds, "{path} holds a token");
    }
}
