//! Explains requests whose parameters cannot be read: which member is wrong, and why.
//!
//! `rmcp` decodes a request as the first method whose parameters fit. A known method with wrong
//! parameters fits none and arrives as a custom request. As JSON-RPC requires, the answer is -32602
//! with the name of the member, and not that the method does not exist.
//!
//! If all parameters of a method are optional, `rmcp` drops those that it cannot read and serves
//! the request without them: a list would start again from the beginning. This module rejects such
//! messages before `rmcp` reads them.

use std::borrow::Cow;

use rmcp::ErrorData;
use rmcp::model::{ErrorCode, JsonObject};
use serde::Deserialize;
use serde_json::{Value, json};

/// The JSON type that a member must have.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Kind {
    Text,
    Object,
}

/// A member of the parameters of a method.
#[derive(Eq, PartialEq)]
struct Member {
    /// Path of the member below `params`, with dots.
    path: &'static str,
    kind: Kind,
    required: bool,
}

const fn required(path: &'static str, kind: Kind) -> Member {
    Member {
        path,
        kind,
        required: true,
    }
}

const fn optional(path: &'static str, kind: Kind) -> Member {
    Member {
        path,
        kind,
        required: false,
    }
}

const CURSOR: Member = optional("cursor", Kind::Text);
const URI: Member = required("uri", Kind::Text);

/// Member of `_meta` with the revision of the protocol. Only requests without a session have it.
const REVISION: &str = "io.modelcontextprotocol/protocolVersion";

/// The methods of this server, with the members of their parameters that it checks.
const METHODS: &[(&str, &[Member])] = &[
    (
        "initialize",
        &[
            required("protocolVersion", Kind::Text),
            required("capabilities", Kind::Object),
            required("clientInfo", Kind::Object),
            required("clientInfo.name", Kind::Text),
            required("clientInfo.version", Kind::Text),
        ],
    ),
    ("ping", &[]),
    (
        "tools/call",
        &[
            required("name", Kind::Text),
            optional("arguments", Kind::Object),
        ],
    ),
    ("tools/list", &[CURSOR]),
    ("resources/list", &[CURSOR]),
    ("resources/templates/list", &[CURSOR]),
    ("resources/read", &[URI]),
    ("resources/directory/read", &[URI, CURSOR]),
    ("skills/list", &[CURSOR]),
    ("skills/get", &[URI]),
];

/// Returns the error for a request that could not be decoded as any method. `meta` is the `_meta`
/// of the parameters, from which the decoder may have removed it.
pub fn explain_request(method: &str, params: Option<&Value>, meta: &JsonObject) -> ErrorData {
    // Without a session nothing is initialized, so this method does not exist there.
    let is_removed = method == "initialize" && meta.contains_key(REVISION);
    let known = METHODS.iter().find(|(name, _)| *name == method);
    let Some((_, members)) = known.filter(|_| !is_removed) else {
        return ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method.to_owned(), None);
    };
    // If no listed member is wrong, the fault lies deeper, for example in a member that the
    // protocol reserves in `_meta`.
    let problem = find_problem(members, params);
    invalid_params(problem.unwrap_or_else(|| ("params".to_owned(), "do not fit the method")))
}

/// The members of a request that this module reads before `rmcp` does.
#[derive(Deserialize)]
struct RequestHead<'m> {
    id: Value,
    #[serde(borrow)]
    method: Cow<'m, str>,
    #[serde(default)]
    params: Option<Value>,
}

/// Returns the JSON-RPC answer to a request for a list whose parameters `rmcp` would drop because it
/// cannot read them; `None` for every other message.
pub fn refuse_dropped_params(message: &[u8]) -> Option<Vec<u8>> {
    // Leave messages of any other shape to the protocol.
    let head: RequestHead<'_> = serde_json::from_slice(message).ok()?;
    let mut lists = METHODS.iter().filter(|(_, members)| *members == [CURSOR]);
    let (_, members) = lists.find(|(name, _)| *name == head.method)?;
    let error = invalid_params(find_problem(members, head.params.as_ref())?);
    let answer = json!({ "jsonrpc": "2.0", "id": head.id, "error": error });
    Some(answer.to_string().into_bytes())
}

fn invalid_params((member, problem): (String, &str)) -> ErrorData {
    ErrorData::invalid_params(
        format!("`{member}` {problem}"),
        Some(json!({ "member": member })),
    )
}

/// Finds the first member that is wrong. Returns its path and what is wrong with it.
fn find_problem(members: &[Member], params: Option<&Value>) -> Option<(String, &'static str)> {
    let nothing = json!({});
    let params = params.unwrap_or(&nothing);
    if !params.is_object() {
        return Some(("params".to_owned(), "must be an object"));
    }
    let meta = optional("_meta", Kind::Object);
    for member in members.iter().chain([&meta]) {
        let path = format!("params.{}", member.path);
        let pointer = format!("/{}", member.path.replace('.', "/"));
        let problem = match (params.pointer(&pointer), member.kind) {
            (None, _) if member.required => "is missing",
            (Some(Value::Null), _) if !member.required => continue,
            (Some(value), Kind::Text) if !value.is_string() => "must be a string",
            (Some(value), Kind::Object) if !value.is_object() => "must be an object",
            _ => continue,
        };
        return Some((path, problem));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_method_with_wrong_parameters_names_the_member() {
        for (method, params, wanted) in [
            ("tools/call", json!({}), "`params.name` is missing"),
            (
                "tools/call",
                json!({ "name": 7 }),
                "`params.name` must be a string",
            ),
            (
                "tools/call",
                json!({ "name": "get_skill", "arguments": [] }),
                "`params.arguments` must be an object",
            ),
            ("resources/read", json!({}), "`params.uri` is missing"),
            (
                "resources/list",
                json!({ "cursor": 1 }),
                "`params.cursor` must be a string",
            ),
            (
                "skills/get",
                json!({ "name": "x" }),
                "`params.uri` is missing",
            ),
            (
                "resources/directory/read",
                json!([]),
                "`params` must be an object",
            ),
            (
                "initialize",
                json!({}),
                "`params.protocolVersion` is missing",
            ),
            (
                "initialize",
                json!({ "protocolVersion": "1", "capabilities": {}, "clientInfo": {} }),
                "`params.clientInfo.name` is missing",
            ),
            (
                "ping",
                json!({ "_meta": 1 }),
                "`params._meta` must be an object",
            ),
        ] {
            let error = explain_request(method, Some(&params), &JsonObject::new());
            assert_eq!(error.code, ErrorCode::INVALID_PARAMS, "{method} {params}");
            assert_eq!(error.message, wanted, "{method} {params}");
        }
        assert_eq!(
            explain_request("tools/call", None, &JsonObject::new()).message,
            "`params.name` is missing"
        );
        let revision = JsonObject::from_iter([(REVISION.to_owned(), json!("2026-07-28"))]);
        let removed = explain_request("initialize", Some(&json!({})), &revision);
        assert_eq!(removed.code, ErrorCode::METHOD_NOT_FOUND);
        let unknown = explain_request("prompts/get", None, &JsonObject::new());
        assert_eq!(unknown.code, ErrorCode::METHOD_NOT_FOUND);
    }

    #[test]
    fn a_cursor_that_is_no_text_is_refused_before_it_is_dropped() {
        let refuse = |message: Value| {
            let answer = refuse_dropped_params(message.to_string().as_bytes())?;
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            assert_eq!(answer["id"], message["id"]);
            assert_eq!(answer["error"]["code"], -32602);
            answer["error"]["data"]["member"]
                .as_str()
                .map(str::to_owned)
        };
        for method in [
            "tools/list",
            "resources/list",
            "resources/templates/list",
            "skills/list",
        ] {
            let ask = |params| {
                refuse(json!({ "jsonrpc": "2.0", "id": "a", "method": method, "params": params }))
            };
            for cursor in [json!(1), json!({}), json!(["after:a"]), json!(true)] {
                let found = ask(json!({ "cursor": cursor }));
                assert_eq!(found.as_deref(), Some("params.cursor"), "{method} {cursor}");
            }
            for params in [
                json!({}),
                json!(null),
                json!({ "cursor": null }),
                json!({ "cursor": "x" }),
            ] {
                assert_eq!(ask(params.clone()), None, "{method} {params}");
            }
        }
        for other in [
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }),
            json!({ "jsonrpc": "2.0", "method": "tools/list", "params": { "cursor": 1 } }),
            json!({ "jsonrpc": "2.0", "id": 1, "method": "ping", "params": { "cursor": 1 } }),
            json!([]),
        ] {
            assert_eq!(refuse(other), None);
        }
    }
}
