//! `tests/vectors/device-requests.json`: what a device signs, and what is refused before any
//! look-up.

use serde_json::Value;

use crate::support;
use vault_format::keys::SecretKey;
use vault_format::request::{SignedRequest, sign_request};
use vault_format::time::Timestamp;

fn vectors() -> Value {
    serde_json::from_slice(&std::fs::read(support::folder().join("device-requests.json")).unwrap())
        .unwrap()
}

fn header<'a>(request: &'a Value, name: &str) -> Option<&'a str> {
    request["headers"][name].as_str()
}

#[test]
fn every_request_ends_as_expected() {
    let vectors = vectors();
    let requests = vectors["requests"].as_array().unwrap();
    let enrolments = vectors["enrolments"].as_array().unwrap();
    assert_eq!((requests.len(), enrolments.len()), (52, 8));
    for request in requests.iter().chain(enrolments) {
        let now = Timestamp::from_unix(request["server_now"].as_i64().unwrap());
        let (method, path) = (
            request["method"].as_str().unwrap(),
            request["path"].as_str().unwrap(),
        );
        let parsed = SignedRequest::parse(
            header(request, "X-Vault-Device"),
            header(request, "X-Vault-Timestamp"),
            header(request, "X-Vault-Signature"),
        );
        let verified = parsed.and_then(|parsed| parsed.verify(method, path, now));
        let expected = request["expect"].as_str().unwrap();
        assert_eq!(
            verified.is_ok(),
            expected == "signature_ok",
            "{}: {verified:?}",
            request["name"]
        );
        if let Ok(key) = verified {
            assert_eq!(
                Some(key.to_string().as_str()),
                header(request, "X-Vault-Device")
            );
        }
    }
}

#[test]
fn signing_gives_the_headers() {
    let vectors = vectors();
    let keys: Vec<_> = vectors["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| {
            let secret = SecretKey::from_seed(
                support::unhex(key["seed_hex"].as_str().unwrap())
                    .try_into()
                    .unwrap(),
            );
            assert_eq!(
                secret.public().to_string(),
                key["public_key"].as_str().unwrap()
            );
            secret
        })
        .collect();
    let mut signed = 0;
    for request in vectors["requests"].as_array().unwrap() {
        let key = keys.iter().find(|key| {
            Some(key.public().to_string().as_str()) == header(request, "X-Vault-Device")
        });
        let (Some(key), "signature_ok") = (key, request["expect"].as_str().unwrap()) else {
            continue;
        };
        let (method, path) = (
            request["method"].as_str().unwrap(),
            request["path"].as_str().unwrap(),
        );
        let seconds = header(request, "X-Vault-Timestamp")
            .unwrap()
            .parse()
            .unwrap();
        let headers = sign_request(key, method, path, Timestamp::from_unix(seconds));
        assert_eq!(
            Some(headers.device.as_str()),
            header(request, "X-Vault-Device")
        );
        assert_eq!(
            Some(headers.timestamp.as_str()),
            header(request, "X-Vault-Timestamp")
        );
        assert_eq!(
            Some(headers.signature.as_str()),
            header(request, "X-Vault-Signature"),
            "{}",
            request["name"]
        );
        let bytes = request["signed_bytes_utf8"].as_str().unwrap();
        assert_eq!(key.sign(bytes.as_bytes()).to_string(), headers.signature);
        signed += 1;
    }
    assert_eq!(signed, 16);
}
