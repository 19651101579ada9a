//! Reads the head of a JSON-RPC message before the protocol library does, and writes JSON-RPC
//! errors. The constants are the codes of these errors.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use vault_api::{JsonRpcError, JsonRpcFailure, JsonRpcVersion};
use vault_format::json::{JsonError, parse};

/// The service refuses the HTTP request.
pub const PROTOCOL: i32 = -32000;
/// The message is not JSON.
pub const NOT_JSON: i32 = -32700;
/// The message is JSON, but not a request.
pub const INVALID: i32 = -32600;
/// The parameters are valid, but the answer to them is not possible.
pub const INVALID_PARAMS: i32 = -32602;
/// The service has failed.
pub const INTERNAL: i32 = -32603;

/// The id of a JSON-RPC request: a string, a number or null.
#[derive(Clone, Debug)]
pub struct Id(Value);

impl Id {
    /// The id in an answer to a message without a readable id: null.
    pub const NONE: Self = Self(Value::Null);
}

#[derive(Deserialize)]
struct MessageHead<'m> {
    #[serde(borrow, default)]
    jsonrpc: Option<Cow<'m, str>>,
    #[serde(borrow, default)]
    id: Option<&'m RawValue>,
}

/// Returns the id of a message, after a check that it is one JSON-RPC object of bounded depth.
/// Fails with the code and the text of the error.
pub fn read_id(bytes: &[u8]) -> Result<Id, (i32, String)> {
    let head: MessageHead<'_> = parse(bytes).map_err(|error| describe_fault(bytes, &error))?;
    if head.jsonrpc.as_deref() != Some("2.0") {
        return Err((INVALID, "The message is not JSON-RPC 2.0.".to_owned()));
    }
    // A value of any other type is no JSON-RPC id, and must not be echoed.
    let id = head.id.and_then(|id| serde_json::from_str(id.get()).ok());
    Ok(Id(id
        .filter(|id: &Value| id.is_string() || id.is_number())
        .unwrap_or_default()))
}

fn describe_fault(bytes: &[u8], error: &JsonError) -> (i32, String) {
    match error {
        JsonError::NotAnObject if is_json(bytes) => {
            let is_batch = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
            let what = if is_batch {
                "Batches are not supported: send one message at a time."
            } else {
                "The message is not a JSON object."
            };
            (INVALID, what.to_owned())
        }
        JsonError::Shape(error) if error.is_data() => {
            (INVALID, "The message is not a JSON-RPC message.".to_owned())
        }
        _ => (NOT_JSON, format!("The message is not JSON: {error}.")),
    }
}

fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok()
}

/// Encodes a JSON-RPC error. `word` is the service's own error code.
pub fn error_body(code: i32, message: &str, word: &str, id: &Id) -> Vec<u8> {
    let error = JsonRpcError {
        jsonrpc: JsonRpcVersion::Two,
        id: id.0.clone(),
        error: JsonRpcFailure {
            code: code.into(),
            message: message.to_owned(),
            data: Some(json!({ "code": word })),
        },
    };
    json!(error).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_object_of_json_rpc_passes() {
        let deep = |depth: usize| {
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":1,\"x\":{}{}}}",
                "[".repeat(depth),
                "]".repeat(depth)
            )
        };
        let bomb = "[".repeat(1_000_000);
        for (text, wanted) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, Ok("1")),
            (
                r#"{"jsonrpc":"2.0","id":"a b","method":"ping"}"#,
                Ok("\"a b\""),
            ),
            (r#" {"id":-5,"jsonrpc":"2.0"} "#, Ok("-5")),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
                Ok("null"),
            ),
            (r#"{"jsonrpc":"2.0","id":{"a":1}}"#, Ok("null")),
            (
                r#"{"jsonrpc":"2.0","id":1,"params":{"x":-1.5e300}}"#,
                Ok("1"),
            ),
            (&deep(31), Ok("1")),
            (&deep(32), Err(NOT_JSON)),
            (&bomb, Err(NOT_JSON)),
            ("", Err(NOT_JSON)),
            ("{", Err(NOT_JSON)),
            ("nonsense", Err(NOT_JSON)),
            (r#"{"jsonrpc":"2.0"} x"#, Err(NOT_JSON)),
            ("\u{feff}{}", Err(NOT_JSON)),
            ("[", Err(NOT_JSON)),
            (
                r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
                Err(INVALID),
            ),
            ("[]", Err(INVALID)),
            ("1", Err(INVALID)),
            ("{}", Err(INVALID)),
            (r#"{"jsonrpc":"1.0","id":1}"#, Err(INVALID)),
            (r#"{"jsonrpc":2.0,"id":1}"#, Err(INVALID)),
        ] {
            let got = read_id(text.as_bytes()).map(|id| id.0.to_string());
            let got = got.as_ref().map(String::as_str).map_err(|(code, _)| *code);
            assert_eq!(got, wanted, "{text:.60}");
        }
        assert_eq!(read_id(b"{\"a\":\"\xff\"}").unwrap_err().0, NOT_JSON);
    }
}
