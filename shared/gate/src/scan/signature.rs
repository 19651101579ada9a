//! Recognises files that consist only of a signature: envelopes (DSSE, also in a Sigstore bundle)
//! and web signatures (JWS). Addresses in a signed payload are identifiers that nothing fetches.

use crate::base64::decode_base64;
use crate::rule::has;
use serde_json::{Map, Value};

/// Tells whether a file is nothing but a signature, over an in-toto statement or a JSON web token.
/// A file with anything else in it, such as a script, is not.
pub(super) fn is_signature(bytes: &[u8]) -> bool {
    // Only the form is checked and no key, so anyone can make such a file. That is why the caller
    // also checks whether a command of the skill reads it.
    let bytes = bytes.trim_ascii();
    // Test the beginning first, which is enough for most files.
    let is_word =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'=');
    if bytes.starts_with(b"{") && has(bytes, "\"payload\"") {
        matches!(serde_json::from_slice(bytes), Ok(Value::Object(object)) if signed_by(&object))
    } else {
        bytes.len() > 64
            && bytes[..64].iter().all(is_word)
            && std::str::from_utf8(bytes).is_ok_and(is_compact)
    }
}

/// Tells whether an object is a DSSE envelope, a bundle with one, or a JWS in JSON.
fn signed_by(object: &Map<String, Value>) -> bool {
    if let Some(Value::Object(envelope)) = object.get("dsseEnvelope") {
        // The recursion is no deeper than the JSON, whose depth the parser bounds.
        return object.contains_key("verificationMaterial") && signed_by(envelope);
    }
    let Some(payload) = object.get("payload").and_then(Value::as_str) else {
        return false;
    };
    if object.contains_key("payloadType") {
        return object.get("signatures").is_some_and(Value::is_array) && is_statement(payload);
    }
    let is_signed = object.contains_key("signatures") || object.contains_key("signature");
    is_signed && is_claims(payload)
}

/// Tells whether a text is a compact JWS: head, claims and signature in base64, separated by full
/// stops.
fn is_compact(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    let [head, claims, signature] = parts[..] else {
        return false;
    };
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'=');
    signature.bytes().all(is_letter)
        && decode_object(head).is_some_and(|head| head.contains_key("alg"))
        && is_claims(claims)
}

fn decode_object(part: &str) -> Option<Map<String, Value>> {
    let bytes = decode_base64(part.trim_end_matches('=').as_bytes());
    serde_json::from_slice(&bytes).ok()
}

fn is_statement(payload: &str) -> bool {
    decode_object(payload).is_some_and(|object| {
        let kind = object.get("_type").and_then(Value::as_str);
        kind.is_some_and(|kind| kind.starts_with("https://in-toto.io/Statement/"))
            && object.contains_key("subject")
            && object.contains_key("predicateType")
    })
}

fn is_claims(payload: &str) -> bool {
    decode_object(payload).is_some_and(|object| {
        let has = |key: &str| object.contains_key(key);
        has("iss") && (has("exp") || has("iat")) && (has("sub") || has("aud"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The payload `{"_type":"https://in-toto.io/Statement/v1","subject":[],"predicateType":"x"}`,
    /// and the same with a line break.
    const STATEMENT: &str = "eyJfdHlwZSI6Imh0dHBzOi8vaW4tdG90by5pby9TdGF0ZW1lbnQvdjEiLCJzdWJqZWN0IjpbXSwicHJlZGljYXRlVHlwZSI6IngifQ==";
    const BROKEN: &str = "ewogIl90eXBlIjoiaHR0cHM6Ly9pbi10b3RvLmlvL1N0YXRlbWVudC92MSIsInN1YmplY3QiOltdLCJwcmVkaWNhdGVUeXBlIjoieCJ9";
    /// The parts `{"alg":"HS256","typ":"JWT"}` and `{"iss":"https://a.example","sub":"b","exp":1}`.
    const TOKEN: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL2EuZXhhbXBsZSIsInN1YiI6ImIiLCJleHAiOjF9.c2ln";

    #[test]
    fn a_signature_is_known_by_the_whole_file() {
        let envelope = format!(
            r#"{{"payloadType":"application/vnd.in-toto+json","payload":"{STATEMENT}","signatures":[{{"sig":"AA"}}]}}"#
        );
        let bundle = format!(r#"{{"verificationMaterial":{{}},"dsseEnvelope":{envelope}}}"#);
        let broken = envelope.replace(STATEMENT, BROKEN);
        for text in [&envelope, &broken, &bundle, TOKEN, &format!("{TOKEN}\n")] {
            assert!(is_signature(text.as_bytes()), "{text}");
        }
        for text in [
            format!("CONFIG = '{STATEMENT}'\n"),
            format!("token = {TOKEN}"),
            format!(r#"{{"payload":"{STATEMENT}"}}"#),
            envelope.replace(STATEMENT, "eyJ1cmwiOiJodHRwczovL2EuZXhhbXBsZSJ9"),
            "a.b.c".to_owned(),
        ] {
            assert!(!is_signature(text.as_bytes()), "{text}");
        }
    }
}
