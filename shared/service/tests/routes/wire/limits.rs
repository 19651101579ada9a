//! Requests that are too large, too slow or not HTTP.

use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use vault_format::keys::SecretKey;
use vault_service::model::user::Scopes;

use super::faults::{Odd, served_by};
use super::{Reply, Served, assert_problem, busy, bytes_of, own, read_all};
use crate::common;
use crate::support::{key, world};

/// 414 and 431 come before the signature; far beyond, the HTTP library refuses with the same
/// status.
#[tokio::test]
async fn heads_that_are_too_large() {
    let served = busy().await;
    let path = format!("/v/{}", "a".repeat(60_000));
    let reply = served.send("GET", &path, &[], "").await;
    assert_problem(&reply, "414 path_too_long", "path");
    // Name, colon, space, value, line end; Host and Connection count too.
    let others = "Host: vault.example\r\nConnection: close\r\n".len();
    for (length, wanted) in [
        (16 * 1024 - others, "401 signature_required"),
        (16 * 1024 - others + 1, "431 headers_too_large"),
        (60_000, "431 headers_too_large"),
    ] {
        let value = "v".repeat(length - "x: \r\n".len());
        let headers = [("x", value.as_str())];
        let reply = served
            .send("GET", "/v/acme/catalog.json", &headers, "")
            .await;
        assert_problem(&reply, wanted, "headers");
    }
    let many = own(&vec![("a", "b"); 250]);
    assert_problem(
        &served.reply(&bytes_of("GET", "/v/", &many, "")).await,
        "401 signature_required",
        "250 fields",
    );
    for (what, bytes, status) in [
        (
            "a field of 1 MiB",
            bytes_of("GET", "/", &own(&[("x", &"v".repeat(1 << 20))]), ""),
            431,
        ),
        (
            "300 fields",
            bytes_of("GET", "/", &own(&vec![("a", "b"); 300]), ""),
            431,
        ),
        (
            "a target of 65 KiB",
            bytes_of("GET", &format!("/{}", "a".repeat(66_000)), &[], ""),
            414,
        ),
    ] {
        let reply = served.raw(&bytes).await;
        // Sending on while the server refuses may cost the answer, never the refusal.
        if let Some(reply) = Reply::parse(&reply) {
            assert!(
                reply.status == status || reply.status == 431,
                "{what}: {}",
                reply.status
            );
        }
    }
    assert_eq!(
        served.send("GET", "/healthz", &[], "").await.status,
        200,
        "the server goes on"
    );
}

/// Bytes that are not HTTP get 400 and a closed connection; the server does not guess.
#[tokio::test]
async fn malformed_requests() {
    let served = busy().await;
    let post = "POST /oauth/token HTTP/1.1\r\nHost: vault.example\r\n";
    for text in [
        "\r\n\r\n\r\n\0".to_owned(),
        "GET\r\n\r\n".into(),
        "GET / HTTP/9.9\r\n\r\n".into(),
        "GET /v/a b/catalog.json HTTP/1.1\r\nHost: x\r\n\r\n".into(),
        "GET /v/\u{0}/catalog.json HTTP/1.1\r\nHost: x\r\n\r\n".into(),
        "G\u{1}T / HTTP/1.1\r\nHost: x\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nbad name: x\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nx : y\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nx: a\r\n folded\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nx: \u{0}\r\n\r\n".into(),
        format!("{post}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
        format!("{post}Content-Length: -1\r\n\r\nab"),
        format!("{post}Content-Length: +1\r\n\r\nab"),
        format!("{post}Content-Length: 1, 2\r\n\r\nab"),
        format!("{post}Transfer-Encoding: gzip\r\n\r\nab"),
        format!("{post}Transfer-Encoding: chunked, gzip\r\n\r\nab"),
        "GET /healthz HTTP/1.1\r\n\r\n".into(),
        "GET /healthz HTTP/1.1\r\nHost: vault.example\r\nHost: evil.example\r\n\r\n".into(),
        "GET /healthz HTTP/1.0\r\nHost: vault.example\r\nHost: evil.example\r\n\r\n".into(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(),
        "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}".into(),
    ] {
        let mut stream = served.connect().await;
        stream.write_all(text.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let answer = read_all(&mut stream).await;
        let status = Reply::parse(&answer).map(|reply| reply.status);
        assert!(matches!(status, Some(400) | None), "{text:?}: {status:?}");
        assert!(
            answer.windows(4).filter(|four| four == b"HTTP").count() <= 1,
            "one answer at most: {text:?}"
        );
    }
    // Both framings at once: whichever counts, the rest is never taken for a second request.
    let smuggled = format!(
        "{post}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    );
    let mut stream = served.connect().await;
    stream.write_all(smuggled.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let answer = String::from_utf8(read_all(&mut stream).await).unwrap();
    assert!(!answer.contains("boot_time"), "{answer}");
    assert_eq!(served.send("GET", "/healthz", &[], "").await.status, 200);
}

/// The head of an enrolment that a device signs, with these headers about its body.
fn enrolment(served: &Served, device: &SecretKey, of_body: &[(&str, &str)]) -> Vec<u8> {
    let path = "/v/acme/devices";
    let mut headers = served.signature(device, "POST", path, 0);
    headers.extend(own(&[("Content-Type", "application/json")]));
    headers.extend(own(of_body));
    bytes_of("POST", path, &headers, "")
}

/// Bodies are counted while they are read, however they are framed.
#[tokio::test]
async fn bodies_that_are_too_large_or_cut() {
    let served = busy().await;
    let device = key(9);
    let head = enrolment(&served, &device, &[("Transfer-Encoding", "chunked")]);
    let head = String::from_utf8(head).unwrap();
    let chunk = format!("800\r\n{}\r\n", "x".repeat(0x800));
    let chunked =
        |count: usize, end: &str| format!("{head}{}{end}", chunk.repeat(count)).into_bytes();
    let end = "0\r\n\r\n";
    assert_problem(
        &served.reply(&chunked(2, end)).await,
        "400 json_invalid",
        "4 KiB",
    );
    assert_problem(
        &served.reply(&chunked(2, "1\r\nx\r\n0\r\n\r\n")).await,
        "413 body_too_large",
        "one byte more",
    );
    assert_problem(
        &served.reply(&chunked(100, end)).await,
        "413 body_too_large",
        "much more, read to its end",
    );
    assert_problem(
        &served.reply(&chunked(2, "z\r\n")).await,
        "400 request_invalid",
        "a chunk of no size",
    );

    let announced = [("Content-Length", "1000000000"), ("Expect", "100-continue")];
    let announced = enrolment(&served, &device, &announced);
    let reply = served.reply(&announced).await;
    assert_problem(
        &reply,
        "413 body_too_large",
        "announced, and never asked for",
    );

    // A sender that breaks off changes nothing.
    let cut = enrolment(&served, &device, &[("Content-Length", "100")]);
    let mut stream = served.connect().await;
    stream.write_all(&cut).await.unwrap();
    stream.write_all(b"{\"public_key\"").await.unwrap();
    drop(stream);
    assert_eq!(
        served
            .ask(&device, "GET", "/v/acme/devices/current")
            .await
            .short(),
        "401 device_unknown"
    );
}

/// A body that stalls gets 408, a head that stalls a closed connection, and a handler that stalls
/// 503.
#[tokio::test]
async fn time_limits() {
    let served = busy().await;
    let device = key(9);
    let mut slow_body = enrolment(&served, &device, &[("Content-Length", "100")]);
    slow_body.push(b'{');
    let stuck = served_by(world(), Odd::NeverAnswers).await;
    let (body, head, handler, ping) = tokio::join!(
        served.raw(&slow_body),
        served.raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\nx-slow: "),
        stuck.ask(&device, "GET", "/v/acme/catalog.json"),
        stuck.send("GET", "/healthz", &[], ""),
    );
    let body = Reply::parse(&body).unwrap();
    assert_problem(&body, "408 body_timeout", "a body that stalls");
    assert!(
        Reply::parse(&head).is_none_or(|reply| reply.status == 408),
        "a head that stalls is closed"
    );
    assert_problem(&handler, "503 unavailable", "a handler that stalls");
    assert_eq!(handler.header("retry-after"), "1");
    assert_eq!(
        (ping.status, &ping.json()["database"]["status"]),
        (503, &json!("error")),
        "the ping waits a second"
    );
}

/// A client that sends a large body with an expired token reads the refusal and not a reset
/// connection: otherwise it would not learn that it has to refresh the token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_reaches_who_is_still_sending() {
    let served = busy().await;
    common::bootstrap(&served.world.app).await;
    let token = common::sign_in(
        &served.world.app,
        common::OWNER,
        common::OWNER_PASSWORD,
        Scopes::ALL,
    )
    .await;
    let body = "x".repeat(4 * 1024 * 1024);
    let good = format!("Bearer {token}");
    for (authorization, path, wanted) in [
        (
            "Bearer vat_old",
            "/admin/vaults/default/objects/bundles",
            "401 token_invalid",
        ),
        (
            good.as_str(),
            "/admin/vaults/acme/objects/bundles",
            "404 not_found",
        ),
        (
            good.as_str(),
            "/admin/vaults/default/catalog",
            "428 precondition_required",
        ),
    ] {
        let method = if path.ends_with("catalog") {
            "PUT"
        } else {
            "POST"
        };
        // The whole body is written before the answer is read: a server that closed its end with
        // bytes unread would make the writing fail.
        for _ in 0..10 {
            let headers = own(&[("Authorization", authorization)]);
            let mut stream = served.connect().await;
            stream
                .write_all(&bytes_of(method, path, &headers, &body))
                .await
                .expect("the server takes it all");
            let reply = Reply::parse(&read_all(&mut stream).await).unwrap();
            assert_problem(&reply, wanted, path);
        }
    }
    // A client that asks with `Expect` before it sends a body is refused at once.
    let headers = own(&[("Content-Length", "1000"), ("Expect", "100-continue")]);
    let asked = bytes_of("POST", "/admin/vaults/acme/objects/bundles", &headers, "");
    assert_problem(&served.reply(&asked).await, "401 token_required", "expect");
}
