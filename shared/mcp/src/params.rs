//! Parameters of methods that cannot be read: which member is wrong, and why.
//!
//! `rmcp` decodes a request as the first method whose parameters fit. A known method with wrong
//! parameters fits none, and arrives as a custom request. It is answered as JSON-RPC says, with
//! -32602 and the member, and not as a method that does not exist.

use rmcp::ErrorData;
use rmcp::model::{ErrorCode, JsonObject};
use serde_json::{Value, json};

/// Type of a member.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Object,
}

/// A member of the parameters of a method.
struct Member {
    /// Its path below `params`, with dots.
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

/// Methods that this server has, with the members of their parameters.
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

/// Returns the error for a request that no method could be decoded from. `meta` is the `_meta` of
/// its parameters, which the decoder may have taken out of them.
pub fn explain_request(method: &str, params: Option<&Value>, meta: &JsonObject) -> ErrorData {
    // Without a session nothing is initialized, so this method does not exist there.
    let is_removed = method == "initialize" && meta.contains_key(REVISION);
    let known = METHODS.iter().find(|(name, _)| *name == method);
    let Some((_, members)) = known.filter(|_| !is_removed) else {
        return ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method.to_owned(), None);
    };
    let (member, problem) = find_problem(members, params);
    ErrorData::invalid_params(
        format!("`{member}` {problem}"),
        Some(json!({ "member": member })),
    )
}

/// Finds the first member that is wrong. Returns its path and what is wrong with it.
fn find_problem(members: &[Member], params: Option<&Value>) -> (String, &'static str) {
    let nothing = json!({});
    let params = params.unwrap_or(&nothing);
    if !params.is_object() {
        return ("params".to_owned(), "must be an object");
    }
    let meta = optional("_meta", Kind::Object);
    for member in members.iter().chain([&meta]) {
        let path = format!("params.{}", member.path);
        let pointer = format!("/{}", member.path.replace('.', "/"));
        let problem = match (params.pointer(&pointer), member.kind) {
            (None, _) if member.required => "is missing",
            (Some(value), Kind::Text) if !value.is_string() => "must be a string",
            (Some(value), Kind::Object) if !value.is_object() => "must be an object",
            _ => continue,
        };
        return (path, problem);
    }
    // The wrong member is deeper, such as one of `_meta` that the protocol reserves.
    ("params".to_owned(), "do not fit the method")
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
}
