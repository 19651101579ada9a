//! What the log says of requests, and what it does not.

use std::io;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tracing::subscriber::DefaultGuard;
use vault_service::model::user::Scopes;
use vault_store::objects::{Class, Objects};

use super::{BUNDLE, busy, bytes_of};
use crate::common;
use crate::hooks::{deliver, shop, signature};
use crate::support::{key, world};

/// What the log writes: one JSON line a request, under the id that the answer names, and nothing
/// that was secret or sent.
#[tokio::test]
async fn log_lines() {
    let (log, _recording) = Log::record();

    let served = busy().await;
    let app = &served.world.app;
    common::bootstrap(app).await;
    let token = common::sign_in(app, common::OWNER, common::OWNER_PASSWORD, Scopes::ALL).await;
    let device = key(9);
    let public = device.public().to_string();
    let secret = "a-body-that-nobody-may-see";
    let body = json!({"public_key": public, "hostname": secret}).to_string();
    let mut replies = vec![
        served
            .enrol(&device, "acme", "application/json", &body)
            .await,
        served.enrol(&device, "acme", "text/plain", secret).await,
        served.ask(&device, "GET", "/v/acme/catalog.json").await,
        served
            .send("GET", "/v/acme/catalog.json?query-of-somebody", &[], "")
            .await,
        served
            .send(
                "GET",
                "/admin/vaults/default",
                &[("Authorization", &format!("Bearer {token}"))],
                "",
            )
            .await,
        served
            .send(
                "GET",
                "/admin/vaults/default",
                &[
                    ("Authorization", "Bearer vat_guess"),
                    ("Cookie", "session-of-somebody=1"),
                ],
                "",
            )
            .await,
        served
            .send(
                "POST",
                "/oauth/token",
                &[("Content-Type", "application/x-www-form-urlencoded")],
                "grant_type=refresh_token&client_id=x&refresh_token=vrt_guess",
            )
            .await,
    ];
    let signatures = served.signature(&device, "GET", BUNDLE, 0);
    replies.push(
        served
            .reply(&bytes_of("GET", BUNDLE, &signatures, ""))
            .await,
    );

    let mut requests = 0;
    for line in log.lines() {
        if line["message"] == "request" {
            requests += 1;
            assert_eq!(
                line["request_id"].as_str().map(str::len),
                Some(26),
                "{line}"
            );
            assert!(
                line["status"].is_u64() && line["ms"].is_u64() && line["method"].is_string(),
                "{line}"
            );
        }
    }
    assert!(requests >= replies.len(), "{requests}");
    for reply in &replies {
        if let Some(id) = reply.json()["request_id"].as_str() {
            assert!(log.text().contains(id), "the answer's id is in the log");
        }
    }
    log.assert_free_of(&[
        secret,
        &public,
        &signatures[2].1,
        &token,
        "vat_",
        "vrt_",
        "vac_",
        "guess",
        common::OWNER_PASSWORD,
        common::OWNER,
        common::VERIFIER,
        "session-of-somebody",
        "query-of-somebody",
        "$argon2",
        "Bearer",
    ]);
}

/// What a person types, what an app sends along and what an address carries stays out of the log,
/// and no name or path forges a line.
#[tokio::test]
async fn no_secret_of_a_sign_in_stands_in_the_log_and_no_line_is_forged() {
    let (log, _recording) = Log::record();

    let served = busy().await;
    let app = &served.world.app;
    common::bootstrap(app).await;
    let link = common::invite(app, "new@example.org").await.unwrap();
    let invitation = link.rsplit('/').next().unwrap();
    let accepted = common::Visitor::new(app)
        .accept(&link, common::PASSWORD)
        .await;
    assert_eq!(accepted.status, 200);
    let json = [("Content-Type", "application/json")];
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    let evil = json!({
        "client_name": "evil\"\n{\"level\":\"ERROR\",\"message\":\"forged\"}\u{1b}[31m",
        "redirect_uris": [common::CALLBACK],
    });
    let registered = served
        .send("POST", "/oauth/register", &json, &evil.to_string())
        .await;
    assert_eq!(registered.status, 201);
    let client = registered.json()["client_id"].as_str().unwrap().to_owned();
    let address = common::authorize(&client, common::CALLBACK, &[("scope", "read")]);
    let mut visitor = common::Visitor::new(app);
    let page = visitor.get(&address).await;
    let wrong = visitor
        .log_in(&page, common::OWNER, "a-typed-password")
        .await;
    assert_eq!(wrong.status, 422);
    let page = visitor.get(&address).await;
    let page = visitor
        .log_in(&page, common::OWNER, common::OWNER_PASSWORD)
        .await;
    assert_eq!(page.status, 303);
    let cookie = visitor.cookie.clone().unwrap();
    for (method, path, headers, body) in [
        (
            "GET",
            format!("/oauth/authorize?client_id={client}&state=state-of-an-app"),
            &[][..],
            "",
        ),
        (
            "GET",
            format!("/oauth/invite/vin_{}", "Q".repeat(43)),
            &[],
            "",
        ),
        ("GET", "/x%0a%7B\"forged\":1%7D%1b[31m".to_owned(), &[], ""),
        (
            "POST",
            "/oauth/login".to_owned(),
            &form,
            "email=ann@example.org&password=a-typed-password",
        ),
    ] {
        served.send(method, &path, headers, body).await;
    }

    for line in log.lines() {
        assert_ne!(line["level"], "ERROR", "{line}");
    }
    log.assert_free_of(&[
        invitation,
        &cookie,
        common::PASSWORD,
        "vin_",
        "QQQQ",
        "state-of-an-app",
        "a-typed-password",
        common::OWNER_PASSWORD,
        common::VERIFIER,
        "forged",
        "\u{1b}",
        "\\u001b",
    ]);
}

/// Background work that skips a part logs the line that the alarm on AWS counts, and no other does.
#[tokio::test]
async fn a_run_that_skips_a_part_logs_the_line_of_the_alarm() {
    let sought = line_of_alarm("incomplete_work");
    let (log, _recording) = Log::record();
    let world = world();
    let namespace = world.acme().await;
    let count = || {
        let lines = log.lines();
        let counted = lines.iter().filter(|line| line["message"] == sought);
        counted.count()
    };
    assert_eq!((world.work().await.skipped, count()), (0, 0));
    let current = world.current("acme").await;
    let list = namespace.object_key(Class::Closures, current.closure);
    Objects::delete_object(&*world.memory, &list).await.unwrap();
    let fresh = world.restarted();
    fresh.clock.advance(24 * 3600);
    assert_eq!((fresh.work().await.skipped, count()), (1, 1));
    assert_eq!((fresh.work().await.skipped, count()), (0, 1), "not due");
}

/// The garbage collection of a vault that gets more garbage than the runs collect logs the line of an
/// alarm of its own, once for every three days, and none about failed work.
#[tokio::test]
async fn a_collection_that_is_late_logs_the_line_of_its_alarm() {
    let (log, _recording) = Log::record();
    let world = world();
    let busy = world.acme().await;
    world.add_uploads(&busy, 2_500).await;
    world.put(&busy, b"garbage").await;
    let count = |name: &str| {
        let (lines, sought) = (log.lines(), line_of_alarm(name));
        let counted = lines.iter().filter(|line| line["message"] == sought);
        counted.count()
    };
    for (day, counted) in [0, 0, 0, 1, 1].into_iter().enumerate() {
        world.step().await;
        let counts = (count("late_collection"), count("incomplete_work"));
        assert_eq!(counts, (counted, 0), "day {day}");
        world.clock.advance(24 * 3600);
    }
    let lines = log.lines();
    let late = lines
        .iter()
        .find(|line| line["message"] == line_of_alarm("late_collection"));
    assert_eq!(
        late.map(|line| (&line["slug"], &line["days"])),
        Some((&json!("acme"), &json!(3)))
    );
}

/// An event that is too large leaves a line in the log, whatever else comes from its network.
#[tokio::test]
async fn a_payment_event_that_is_too_large_is_in_the_log_behind_forged_ones() {
    let (log, _recording) = Log::record();
    let world = shop().await;
    for _ in 0..3 {
        let forged = deliver(&world, "{}", "t=1,v1=00").await;
        assert_eq!(forged.short(), "400 payment_signature_invalid");
    }
    let large = " ".repeat(64 * 1024 + 1);
    let header = signature(&large, world.now().unix());
    for _ in 0..3 {
        let answer = deliver(&world, &large, &header).await;
        assert_eq!(answer.short(), "413 body_too_large");
    }
    let lines = log.lines();
    let errors: Vec<_> = lines
        .iter()
        .filter(|line| {
            line["message"]
                .as_str()
                .is_some_and(|text| text.starts_with("payment:"))
        })
        .map(|line| line["error"].as_str().unwrap())
        .collect();
    assert_eq!(errors, ["payment_signature_invalid", "body_too_large"]);
}

/// Returns the line that a metric filter of `infra` counts.
fn line_of_alarm(filter: &str) -> &'static str {
    let alarms = include_str!("../../../../../infra/alarms.tf");
    let head = format!("\"aws_cloudwatch_log_metric_filter\" \"{filter}\"");
    let (_, filter) = alarms.split_once(&head).unwrap();
    let (_, sought) = filter.split_once(r#"{ $.message = \""#).unwrap();
    let (sought, _) = sought.split_once(r#"\" }"#).unwrap();
    sought
}

/// The JSON lines that a test's thread logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Records until the guard is dropped.
    fn record() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    fn lines(&self) -> Vec<Value> {
        let parse = |line: &str| {
            serde_json::from_str(line).unwrap_or_else(|_| panic!("a JSON line: {line}"))
        };
        self.text().lines().map(parse).collect()
    }

    fn assert_free_of(&self, secrets: &[&str]) {
        let text = self.text();
        for secret in secrets {
            assert!(!text.contains(secret), "{secret} is in the log:\n{text}");
        }
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
