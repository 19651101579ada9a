//! `docs/api.md`: the routes for people, each with an answer that it really gave.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use vault_service::model::user::Role;
use vault_service::route::{Auth, Group};

use super::operation::{Content, OPERATIONS, Operation};
use super::types::{Type, rows};
use crate::common::exchange::Exchange;

/// The page with these examples, by the name of the route.
pub fn page(examples: &BTreeMap<&str, Exchange>) -> String {
    let mut page = include_str!("intro.txt").to_owned();
    let groups = [
        (Group::Admin, "Administration and health"),
        (Group::Devices, "Machines"),
        (Group::Catalog, "Catalogs and bundles"),
        (Group::Mcp, "Tools for agents"),
        (Group::OAuth, "Sign-in and tokens"),
    ];
    for (group, title) in groups {
        let _ = write!(page, "\n## {title}\n");
        for operation in OPERATIONS.iter().filter(|known| known.route.group == group) {
            describe(&mut page, operation);
            let example = &examples[operation.route.name];
            let _ = write!(page, "\n```http\n{}```\n", example_text(example));
        }
    }
    let types: Vec<_> = rows(include_str!("types.txt")).collect();
    page + "\n## Types\n\n`name?` may be absent, `X | null` may be null, `[X]` is a list.\n\n```text\n"
        + &types.join("\n")
        + "\n```\n"
}

fn describe(page: &mut String, operation: &Operation) {
    let route = operation.route;
    let (name, method, path) = (route.name, route.method, route.path);
    let _ = write!(
        page,
        "\n### {method} {path}\n\n`{name}`. {}\n\n",
        operation.summary
    );
    let _ = writeln!(page, "- For: {}", caller(route.auth));
    for parameter in &operation.parameters {
        let (name, place, note) = (parameter.name, parameter.place, parameter.note);
        let _ = writeln!(page, "- `{name}` ({place}): {note}");
    }
    for body in &operation.bodies {
        let _ = writeln!(page, "- Body: {}", content(body));
    }
    for answer in &operation.answers {
        let _ = writeln!(page, "- {}: {}", answer.status, content(&answer.content));
    }
    let mut errors: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    for error in &operation.errors {
        let codes = errors.entry(error.status).or_default();
        codes.extend(error.code.map(|code| format!(" `{code}`")));
    }
    let errors: Vec<_> = errors
        .into_iter()
        .map(|(status, codes)| format!("{status}{}", codes.concat()))
        .collect();
    let _ = writeln!(
        page,
        "- Errors ({}): {}",
        operation.error_form().0,
        errors.join(", ")
    );
}

const fn caller(auth: Auth) -> &'static str {
    match auth {
        Auth::Public => "anybody",
        Auth::ClientOrBearer => "a client that names itself, or an access token",
        Auth::Account | Auth::Bearer => "an access token",
        Auth::BearerWrite => "an access token with the scope `write`",
        Auth::Publisher => "an access token of an owner or a publisher",
        Auth::PublisherWrite => {
            "an access token of an owner or a publisher, with the scope `write`"
        }
        Auth::Owner => "an access token of an owner",
        Auth::OwnerWrite => "an access token of an owner, with the scope `write`",
        Auth::Operator => "an access token of an operator",
        Auth::OperatorWrite => "an access token of an operator, with the scope `write`",
        Auth::Device => "a device, which signs the request",
        Auth::Session(None) => "a signed-in browser",
        Auth::Session(Some(Role::Member)) => "a signed-in browser of a member of the vault",
        Auth::Session(Some(Role::Publisher)) => {
            "a signed-in browser of an owner or a publisher of the vault"
        }
        Auth::Session(Some(Role::Owner)) => "a signed-in browser of an owner of the vault",
    }
}

fn content(content: &Content) -> String {
    match (&content.kind, content.media) {
        (_, "") => "nothing".to_owned(),
        (Some(Type::Name(name)), media) => format!("{media}, `{name}`"),
        (_, media) => media.to_owned(),
    }
}

/// Request and answer, without what differs from one service to the next.
fn example_text(example: &Exchange) -> String {
    let mut text = format!("{} {}\n", example.method, wrap(&shorten(&example.target)));
    for (name, shown) in [
        ("authorization", "Bearer vat_…"),
        ("x-vault-device", "…"),
        ("x-vault-timestamp", "…"),
        ("x-vault-signature", "…"),
        ("cookie", "…"),
        ("if-match", "\"…\""),
        ("content-type", ""),
    ] {
        if let Some(value) = example.request_headers.get(name) {
            let value = if shown.is_empty() {
                value.to_str().unwrap()
            } else {
                shown
            };
            let _ = writeln!(text, "{name}: {value}");
        }
    }
    add_body(&mut text, &example.request_body);
    let _ = writeln!(text, "\n{}", example.status);
    for name in ["content-type", "location", "etag"] {
        if let Some(value) = example.headers.get(name) {
            let _ = writeln!(text, "{name}: {}", wrap(&shorten(value.to_str().unwrap())));
        }
    }
    if example
        .headers
        .get("content-type")
        .is_none_or(|media| !media.as_bytes().starts_with(b"text/html"))
    {
        add_body(&mut text, &example.body);
    }
    text
}

fn add_body(text: &mut String, body: &[u8]) {
    const MOST: usize = 900;
    if body.is_empty() {
        return;
    }
    let body = shorten(&String::from_utf8_lossy(body));
    let short: String = body.chars().take(MOST).collect();
    let end = if body.chars().count() > MOST {
        "…"
    } else {
        ""
    };
    let _ = writeln!(text, "\n{}{end}", wrap(short.trim_end()));
}

/// Cuts what is random, long or measured: runs of more than 44 letters and digits, and the time
/// that the database took.
fn shorten(text: &str) -> String {
    let latency = "\"latency_ms\":";
    if let Some((before, after)) = text.split_once(latency) {
        let after = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
        return format!("{before}{latency}0{after}");
    }
    let mut shortened = String::new();
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_-+/=.".contains(c);
    for run in text.split_inclusive(|c: char| !is_word(c)) {
        let word = run.trim_end_matches(|c: char| !is_word(c));
        if word.len() > 44 && !word.contains("://") {
            shortened.push_str(&word[..12]);
            shortened.push('…');
            shortened.push_str(&run[word.len()..]);
        } else {
            shortened.push_str(run);
        }
    }
    shortened
}

/// Breaks long lines between members and between parameters.
fn wrap(text: &str) -> String {
    const WIDTH: usize = 130;
    let mut wrapped = String::new();
    let mut width = 0;
    for part in text.split_inclusive([',', '&']) {
        let length = part.chars().count();
        if width > 0 && width + length > WIDTH {
            wrapped.push_str("\n  ");
            width = 2;
        }
        wrapped.push_str(part);
        width += length;
    }
    wrapped
}
