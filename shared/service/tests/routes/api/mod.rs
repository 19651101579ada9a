//! The reference of the routes, `docs/api.md` and `docs/openapi.json`: written from the route
//! table, the samples and answers that the routes really gave. Every answer that a test of this
//! program gets is held to it.

mod openapi;
mod page;
mod types;

use axum::http::{Method, header};
use serde_json::Value;
use vault_testing::page::assert_current;

use crate::calls;
use crate::common::exchange::Exchange;
use crate::common::operation::{OPERATIONS, Operation};
use types::answer;

#[tokio::test]
async fn written_pages_have_the_reference_of_the_routes() {
    assert_current("docs/openapi.json", &openapi::document());
    let examples = calls::examples().await;
    for (name, example) in &examples {
        check(example);
        assert!(example.status.as_u16() < 500, "{name}");
    }
    assert_current("docs/api.md", &page::page(&examples));
}

/// Fails unless the samples list the status and code of an answer, and its body is of the type that
/// they name.
pub fn check(exchange: &Exchange) {
    let Some(operation) = operation_of(exchange) else {
        return;
    };
    if let Err(what) = judge(operation, exchange) {
        let (name, target) = (operation.route.name, &exchange.target);
        let status = exchange.status;
        panic!("{name}: {target} answered {status}, {what}: correct tests/common/samples.txt");
    }
}

/// The route that an exchange was with, where there is one of its method and path.
fn operation_of(exchange: &Exchange) -> Option<&'static Operation> {
    let path = exchange.target.split('?').next().unwrap_or_default();
    OPERATIONS.iter().find(|operation| {
        let (mut segments, mut wanted) = (path.split('/'), operation.route.path.split('/'));
        let fits = wanted.by_ref().all(|wanted| {
            let given = segments.next();
            given.is_some_and(|given| {
                given == wanted || wanted.starts_with('{') && !given.is_empty()
            })
        });
        let method = exchange.method.as_str();
        fits && segments.next().is_none() && method == operation.route.method
    })
}

fn judge(operation: &Operation, exchange: &Exchange) -> Result<(), String> {
    let status = exchange.status.as_u16();
    let media = exchange
        .headers
        .get(header::CONTENT_TYPE)
        .map_or("", |media| media.to_str().unwrap());
    let media = media.split(';').next().unwrap_or_default();
    let body: Value = serde_json::from_slice(&exchange.body).unwrap_or_default();
    let of_status = |(known, _): &&(u16, _)| *known == status;
    let mut answers = operation.answers.iter().filter(of_status).peekable();
    if answers.peek().is_some() {
        let found = answers.find(|(_, content)| content.media == media);
        let Some((_, content)) = found else {
            return Err(format!(
                "with the media type {media:?}, which its row does not list"
            ));
        };
        let is_typed = !content.kind.is_empty() && exchange.method != Method::HEAD;
        return if is_typed {
            (answer(content.kind).check)(&body)
        } else {
            Ok(())
        };
    }
    let code = match media {
        "application/problem+json" => &body["code"],
        "application/json" if operation.route.path != "/mcp" => &body["error"],
        _ => &Value::Null,
    };
    if status == 404 && code == "not_found" && !operation.route.path.contains('{') {
        // Below a path prefix the route is elsewhere.
        return Ok(());
    }
    let listed = operation.errors.iter().any(|error| {
        error.status == status && (code.is_null() || error.code.is_none_or(|known| code == known))
    });
    // The groups' own errors have one form; HTTP's are problems everywhere.
    let form = operation.error_form().0;
    if listed && (media == form || media == "application/problem+json" || media == "text/html") {
        return Ok(());
    }
    Err(format!("{code} in {media:?}, which its row does not list"))
}
