//! `docs/openapi.json`: the routes for programs, in version 3.1 of `OpenAPI`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use vault_service::route::{Auth, Group};

use super::types::schemas;
use crate::common::operation::{OPERATIONS, Operation, Parameter};

/// HTTP's own refusals, which every route answers before its group is asked.
const OF_HTTP: [u16; 4] = [414, 431, 500, 503];

static SCHEMAS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(schemas);

/// The document, with its members in alphabetical order.
pub fn document() -> String {
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for operation in &*OPERATIONS {
        let method = operation.route.method.to_ascii_lowercase();
        let methods = paths.entry(operation.route.path).or_default();
        methods.insert(method, described(operation));
    }
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "vault",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            "description": "The routes of the vault service, written from its route table. docs/api.md has the same with examples.",
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": { "schemas": &*SCHEMAS, "securitySchemes": {
            "token": { "type": "http", "scheme": "bearer", "description": "An access token (docs/oauth.md)." },
            "device": {
                "type": "apiKey", "in": "header", "name": "X-Vault-Signature",
                "description": "A device's signature, with X-Vault-Device and X-Vault-Timestamp.",
            },
            "session": { "type": "apiKey", "in": "cookie", "name": "session", "description": "A signed-in browser." },
        } },
    });
    serde_json::to_string(&sorted(document)).unwrap() + "\n"
}

/// The same value: the order of members must not depend on how `serde_json` was built.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members: BTreeMap<_, _> = members.into_iter().collect();
            members
                .into_iter()
                .map(|(name, value)| (name, sorted(value)))
                .collect()
        }
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        value => value,
    }
}

fn described(operation: &Operation) -> Value {
    let group = operation.route.group.function_name();
    let mut described = json!({
        "operationId": operation.route.name,
        "summary": operation.summary,
        "x-since": operation.route.since.as_str(),
        "x-stability": operation.route.since.stability(),
        "tags": [if operation.route.path == "/healthz" { "health" } else { group }],
        "parameters": operation.parameters.iter().map(parameter).collect::<Vec<_>>(),
        "security": security(operation.route.auth),
        "responses": responses(operation),
    });
    if !operation.bodies.is_empty() {
        let mut content = Map::new();
        for body in &operation.bodies {
            add(&mut content, body.media, body.schema());
        }
        described["requestBody"] = json!({ "required": true, "content": content });
    }
    described
}

fn parameter(parameter: &Parameter) -> Value {
    json!({
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "description": parameter.note,
        "schema": parameter.schema,
    })
}

fn security(auth: Auth) -> Value {
    match auth {
        Auth::Public => json!([]),
        Auth::Session(_) => json!([{ "session": [] }]),
        Auth::ClientOrBearer => json!([{}, { "token": [] }]),
        Auth::Device => json!([{ "device": [] }]),
        _ => json!([{ "token": [] }]),
    }
}

/// Answers and errors by status; for each its media types.
fn responses(operation: &Operation) -> Map<String, Value> {
    let mut contents: BTreeMap<u16, Map<String, Value>> = BTreeMap::new();
    for (status, body) in &operation.answers {
        let content = contents.entry(*status).or_default();
        if !body.media.is_empty() {
            add(content, body.media, body.schema());
        }
    }
    let (media, kind) = operation.error_form();
    let mut codes: BTreeMap<u16, BTreeSet<&str>> = BTreeMap::new();
    for error in &operation.errors {
        codes.entry(error.status).or_default().extend(error.code);
        let content = contents.entry(error.status).or_default();
        if !OF_HTTP[..2].contains(&error.status) {
            add(content, media, reference(kind));
        }
        if OF_HTTP.contains(&error.status) {
            add(content, "application/problem+json", reference("Problem"));
        }
        if error.code == Some("not_found") && !operation.route.path.contains('{') {
            // Where the route is not served, it is like any other path where nothing is.
            add(content, "application/problem+json", reference("Problem"));
        }
        let has_page = operation.route.group == Group::Mcp || operation.route.auth == Auth::Device;
        if error.status == 401 && has_page {
            // Browsers are shown what this address is for.
            add(content, "text/html", reference(""));
        }
    }
    let mut responses = Map::new();
    for (status, content) in contents {
        let codes: Vec<_> = codes.get(&status).into_iter().flatten().copied().collect();
        let plain = if status < 300 {
            "The answer."
        } else {
            "A redirect."
        };
        let description = match codes.join(", ") {
            codes if !codes.is_empty() => codes,
            _ if status < 400 => plain.to_owned(),
            _ => "A page that says what is wrong.".to_owned(),
        };
        let mut response = json!({ "description": description });
        if !content.is_empty() {
            response["content"] = Value::Object(content);
        }
        responses.insert(status.to_string(), response);
    }
    responses
}

fn add(content: &mut Map<String, Value>, media: &str, schema: Option<Value>) {
    let value = schema.map_or_else(|| json!({}), |schema| json!({ "schema": schema }));
    content.insert(media.to_owned(), value);
}

fn reference(kind: &str) -> Option<Value> {
    // A reference to nothing is valid, and lets every body pass.
    let is_listed = kind.is_empty() || SCHEMAS.contains_key(kind);
    assert!(
        is_listed,
        "{kind}: list this type in tests/routes/api/types.rs"
    );
    let path = format!("#/components/schemas/{kind}");
    (!kind.is_empty()).then(|| json!({ "$ref": path }))
}
