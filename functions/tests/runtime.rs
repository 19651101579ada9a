//! Tests of the built functions under a small Lambda Runtime API on loopback: how they start, what
//! they answer, and what they report when they cannot start.
//!
//! `./tests/bench/run functions` measures the times.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

#[expect(dead_code, reason = "the benchmarks need more of it")]
mod harness;

use std::path::Path;
use std::process::Stdio;

use harness::Running;
use harness::stores::{self, Heard, Stores, catalog_request};
use serde_json::{Value, json};
use vault_format::keys::SecretKey;

const FUNCTIONS: [(&str, &str); 5] = [
    ("oauth", env!("CARGO_BIN_EXE_oauth")),
    ("mcp", env!("CARGO_BIN_EXE_mcp")),
    ("admin", env!("CARGO_BIN_EXE_admin")),
    ("devices", env!("CARGO_BIN_EXE_devices")),
    ("catalog", env!("CARGO_BIN_EXE_catalog")),
];
/// Address on which no server listens.
const NOWHERE: &str = "http://127.0.0.1:1";

fn function(name: &str) -> &'static Path {
    let found = FUNCTIONS.iter().find(|(known, _)| *known == name);
    Path::new(found.unwrap().1)
}

fn event(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Value {
    let mut event: Value = serde_json::from_str(harness::EVENT).unwrap();
    event["rawPath"] = path.into();
    event["requestContext"]["http"]["method"] = method.into();
    for (name, value) in headers {
        event["headers"][*name] = (*value).into();
    }
    event["body"] = body.into();
    event
}

#[test]
fn each_function_starts_answers_and_keeps_its_process() {
    for (name, path) in FUNCTIONS {
        let mut running = Running::start(Path::new(path), &stores::variables(NOWHERE));
        running.ready();
        for _ in 0..5 {
            // A function refuses an unsigned request under `/v/` before it reads any store.
            let (answer, _) = running.call(&event("GET", "/v/acme/catalog.json", &[], ""));
            assert_eq!(answer["statusCode"], 401, "{name}: {answer}");
            assert_eq!(answer["headers"]["www-authenticate"], "VaultDevice");
        }
    }
}

/// A process reads the catalog's bytes once in its life. Other tests count how many records a route
/// reads.
#[test]
fn a_warm_function_reads_no_object() {
    let (stores, device) = (Stores::start(), SecretKey::from_seed([7; 32]));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(stores.publish(b"{\"a\":\"catalog\"}".to_vec(), &device));
    let variables = stores::variables(&stores.endpoint);
    let mut running = Running::start(function("catalog"), &variables);
    running.ready();
    assert_eq!(stores.heard(), [], "nothing is asked for in advance");
    let mut first = None;
    for calls in 0..5 {
        let (answer, _) = running.call(&catalog_request(&device));
        assert_eq!(answer["statusCode"], 200, "{answer}");
        let heard = stores.heard();
        let objects = heard.iter().filter(|heard| **heard == Heard::Object);
        assert_eq!(objects.count(), usize::from(calls == 0), "{heard:?}");
        let body = first.get_or_insert_with(|| answer["body"].clone());
        assert_eq!(*body, answer["body"]);
    }
}

/// If no store answers, a function answers 503 with `Retry-After` instead of a refusal. Its process
/// goes on, and still answers requests that need no store.
#[test]
fn a_store_that_is_down_is_503_and_never_a_refusal() {
    let device = SecretKey::from_seed([7; 32]);
    let mut current = catalog_request(&device);
    let path = "/v/acme/devices/current";
    let time = vault_store::clock::Clock::now(&vault_store::clock::SystemClock);
    current["headers"]["x-vault-signature"] =
        vault_format::request::sign_request(&device, "GET", path, time)
            .signature
            .into();
    current["rawPath"] = path.into();
    let bearer = format!("Bearer vat_{}", "A".repeat(43));
    let bearer = [("authorization", bearer.as_str())];
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let refresh = format!(
        "grant_type=refresh_token&client_id=cli_00000000000000000000000000&refresh_token=vrt_{}",
        "A".repeat(43)
    );
    let rows = [
        ("admin", event("GET", "/healthz", &[], "")),
        ("admin", event("GET", "/admin/vaults", &bearer, "")),
        ("oauth", event("POST", "/oauth/token", &form, &refresh)),
        ("devices", current),
        ("catalog", catalog_request(&device)),
    ];
    for (name, event) in rows {
        let mut running = Running::start(function(name), &stores::variables(NOWHERE));
        let (answer, _) = running.call(&event);
        assert_eq!(answer["statusCode"], 503, "{name} {answer}");
        let after = answer["headers"]["retry-after"].as_str();
        let healthz = event["rawPath"] == "/healthz";
        assert!(
            healthz || after.is_some_and(|text| text.parse::<u32>().is_ok()),
            "{name} {answer}"
        );
        let (alive, _) = running.call(&self::event("GET", "/v/acme/catalog.json", &[], ""));
        assert_eq!(alive["statusCode"], 401, "{name}");
    }
}

/// Returns the exit status of a function that is started with these variables, and its one line of
/// log.
fn refused(name: &str, variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let started = harness::start(function(name), "127.0.0.1:1", variables, Stdio::piped());
    let output = started.wait_with_output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(log.lines().count(), 1, "{name} {variables:?}: {log}");
    let line: Value = serde_json::from_str(&log).unwrap();
    assert_eq!(line["level"], "ERROR", "{log}");
    let said = line["error"].as_str().unwrap().to_owned();
    (output.status.code(), said)
}

#[test]
fn missing_variables_are_named_in_one_line_and_the_function_ends() {
    let good = stores::variables(NOWHERE);
    for (name, _) in FUNCTIONS {
        assert_eq!(
            refused(name, &good[2..4]),
            (Some(2), "VAULT_TABLE, VAULT_BUCKET must be set".to_owned())
        );
    }
    for missing in &good[..4] {
        let mut others = good.to_vec();
        others.retain(|variable| variable != missing);
        let said = format!("{} must be set", missing.0);
        assert_eq!(refused("catalog", &others), (Some(2), said));
    }
}

#[test]
fn a_variable_that_is_wrong_is_named_in_one_line_and_the_function_ends() {
    let good = stores::variables(NOWHERE);
    let rows = [
        ("VAULT_PUBLIC_URL", "vault.example"),
        ("VAULT_PUBLIC_URL", "http://vault.example"),
        ("VAULT_AWS_ENDPOINT", "127.0.0.1:4566"),
        ("VAULT_AWS_ENDPOINT", "htp://127.0.0.1:4566"),
        ("VAULT_LOG_LEVEL", "inof"),
        ("VAULT_TOKEN_TTL", "an hour"),
        ("VAULT_LIMIT_TOKEN", "many"),
        ("VAULT_ALLOWED_ORIGINS", "app.example"),
        ("AWS_REGION", "eu central"),
    ];
    for (variable, wrong) in rows {
        // Of two values for one variable, the later one is used.
        let variables = [&good[..], &[(variable, wrong)]].concat();
        let (code, said) = refused("oauth", &variables);
        assert_eq!(code, Some(2), "{variable}={wrong}");
        assert!(said.starts_with(&format!("{variable}: ")), "{said}");
    }
    let both = [&good[..], &[("VAULT_TABLE", ""), ("VAULT_LOG_LEVEL", "x")]].concat();
    let (_, said) = refused("devices", &both);
    let wanted = "VAULT_TABLE must be set; VAULT_LOG_LEVEL: ";
    assert!(said.starts_with(wanted), "{said}");
}

/// A function ends with status 1 if it cannot reach the Lambda service, and does not wait forever.
#[test]
fn without_the_lambda_service_a_function_ends_with_1() {
    let (code, said) = refused("catalog", &stores::variables(NOWHERE));
    assert_eq!((code, said.is_empty()), (Some(1), false));
    assert_eq!(json!(said).as_str().unwrap().lines().count(), 1);
}
