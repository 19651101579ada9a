//! The three headers of a signed request, and everything else of it that is signed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vault_format::request::{SignedRequest, sign_request};
use vault_format::time::Timestamp;

fuzz_target!(|data: &str| {
    let mut lines = data.splitn(5, '\n');
    let (device, timestamp, signature) = (lines.next(), lines.next(), lines.next());
    let (method, path) = (
        lines.next().unwrap_or("GET"),
        lines.next().unwrap_or("/v/acme/catalog.json"),
    );
    let now = Timestamp::from_unix(1_760_000_000);
    if let Ok(request) = SignedRequest::parse(device, timestamp, signature) {
        // What is read has one spelling.
        assert_eq!(device, Some(request.claimed_key().to_string().as_str()));
        let _ = request.verify(method, path, now);
    }
    // What we sign is good for itself and for nothing else.
    let key = vault_fuzz::secret("laptop");
    let headers = sign_request(&key, method, path, now);
    let request = SignedRequest::parse(
        Some(&headers.device),
        Some(&headers.timestamp),
        Some(&headers.signature),
    )
    .expect("our own headers");
    assert_eq!(request.verify(method, path, now), Ok(key.public()));
    assert!(request.verify(method, &format!("{path}/"), now).is_err());
});
