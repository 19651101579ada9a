//! `docs/api.md`: the routes for people, each with an answer that it really gave.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use vault_service::model::user::Role;
use vault_service::route::{Auth, Group};

use super::types::listing;
use crate::common::exchange::Exchange;
use crate::common::operation::{Content, OPERATIONS, Operation, Parameter};

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
            let _ = write!(page, "\n```http\n{}```\n", example.text());
        }
    }
    page + "\n## Types\n\n`name?` may be absent.\n" + &listing()
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
    for (status, answer) in &operation.answers {
        let _ = writeln!(page, "- {status}: {}", content(answer));
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
    let field = |field: &Parameter| {
        let mark = if field.required { "" } else { "?" };
        let note = field.note.trim_end_matches('.');
        let note = if note.is_empty() {
            String::new()
        } else {
            format!(" ({note})")
        };
        format!("`{}{mark}`{note}", field.name)
    };
    let fields: Vec<_> = content.fields.iter().map(field).collect();
    match (content.media, content.kind) {
        ("", _) => "nothing".to_owned(),
        (media, "") if fields.is_empty() => media.to_owned(),
        (media, "") => format!("{media}: {}", fields.join(", ")),
        (media, kind) => format!("{media}, `{kind}`"),
    }
}
