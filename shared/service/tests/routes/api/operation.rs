//! What the samples say of each route, and what follows from who may call it and from HTTP.

use std::sync::LazyLock;

use vault_service::error::ErrorCode;
use vault_service::route::{Auth, Group, Route};

use super::types::{Type, rows, split_note};
use crate::common::samples::{Sample, samples};

/// One route, described.
pub struct Operation {
    pub route: &'static Route,
    pub summary: &'static str,
    pub parameters: Vec<Parameter>,
    /// Media types and types of the bodies that it takes.
    pub bodies: Vec<Content>,
    /// What it answers when all is well.
    pub answers: Vec<Answer>,
    pub errors: Vec<Failure>,
}

/// A body: its media type, empty for none, and the type where it is JSON or a form.
pub struct Content {
    pub media: &'static str,
    pub kind: Option<Type>,
}

/// An answer when all is well.
pub struct Answer {
    pub status: u16,
    pub content: Content,
}

/// An error; a page for people has no code.
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
pub struct Failure {
    pub status: u16,
    pub code: Option<&'static str>,
}

/// A parameter.
pub struct Parameter {
    pub name: &'static str,
    /// `path`, `query` or `header`.
    pub place: &'static str,
    pub kind: Type,
    pub note: &'static str,
}

/// All routes, in the order of the table.
pub static OPERATIONS: LazyLock<Vec<Operation>> =
    LazyLock::new(|| samples().iter().map(Operation::of).collect());

impl Operation {
    fn of(sample: &Sample) -> Self {
        let route = sample.route;
        let mut operation = Self {
            route,
            summary: "",
            parameters: variables(route.path)
                .map(|name| Parameter::of(route, name))
                .collect(),
            bodies: Vec::new(),
            answers: Vec::new(),
            errors: Vec::new(),
        };
        let mut codes = Vec::new();
        for line in &sample.description {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "summary" => operation.summary = rest,
                "query" | "header" => {
                    let parameters = rest.split(' ').map(|name| Parameter::of(route, name));
                    operation.parameters.extend(parameters);
                }
                "body" => operation.bodies.push(Content::of(route, rest)),
                "errors" => codes.extend(rest.split(' ')),
                status => operation.answers.push(Answer {
                    status: status
                        .parse()
                        .unwrap_or_else(|_| missing(route, &format!("{line:?} is unknown"))),
                    content: Content::of(route, rest),
                }),
            }
        }
        if operation.summary.is_empty() || operation.answers.is_empty() {
            missing(
                route,
                "it needs a line `summary` and a line with status and type of the answer",
            );
        }
        codes.extend(operation.common_codes());
        operation.errors = codes
            .into_iter()
            .map(|code| Failure::of(route, code))
            .collect();
        operation.errors.sort_unstable();
        operation.errors.dedup();
        operation
    }

    /// Whether it answers with pages for people.
    pub fn is_page(&self) -> bool {
        let empty = |answer: &Answer| answer.content.media.is_empty() && answer.status != 200;
        self.answers
            .iter()
            .any(|answer| answer.content.media == "text/html" || empty(answer))
            && (self.route.group == Group::OAuth || matches!(self.route.auth, Auth::Session(_)))
    }

    /// The media type and the type of its errors; HTTP's own are problems on every route.
    pub fn error_form(&self) -> (&'static str, &'static str) {
        match self.route.group {
            _ if self.is_page() => ("text/html", ""),
            Group::OAuth if self.route.method == "POST" => ("application/json", "OAuthError"),
            Group::Mcp => ("application/json", "JsonRpcError"),
            _ => ("application/problem+json", "Problem"),
        }
    }

    /// The errors that follow from who may call it, from its path and from HTTP.
    fn common_codes(&self) -> Vec<&'static str> {
        let mut codes = vec![
            "path_too_long",
            "headers_too_large",
            "internal",
            "unavailable",
        ];
        let route = self.route;
        if self.is_page() {
            codes.extend(["500", "503"]);
        } else if route.group == Group::OAuth && !self.bodies.is_empty() {
            codes.extend(["500:server_error", "503:temporarily_unavailable"]);
            codes.extend(["400:invalid_request", "408:invalid_request"]);
            codes.extend(["413:invalid_request", "415:invalid_request"]);
        } else if !self.bodies.is_empty() {
            codes.extend([
                "request_invalid",
                "body_timeout",
                "body_too_large",
                "media_type",
            ]);
        }
        if self.is_page() && !self.bodies.is_empty() {
            codes.extend(["408", "413", "415"]);
        }
        let token = ["token_required", "token_invalid", "vault_suspended"];
        if matches!(
            route.auth,
            Auth::BearerWrite | Auth::PublisherWrite | Auth::OwnerWrite | Auth::OperatorWrite
        ) {
            codes.push("insufficient_scope");
        }
        match route.auth {
            Auth::Public | Auth::Session(_) | Auth::ClientOrBearer => {}
            Auth::Account => codes.extend(["token_required", "token_invalid"]),
            Auth::Bearer | Auth::BearerWrite => codes.extend(token),
            Auth::Publisher | Auth::PublisherWrite => {
                codes.extend(token);
                codes.extend(["publisher_required", "second_factor_required"]);
            }
            Auth::Owner | Auth::OwnerWrite => {
                codes.extend(token);
                codes.extend(["owner_required", "second_factor_required"]);
            }
            Auth::Operator | Auth::OperatorWrite => {
                codes.extend(token);
                codes.extend(["operator_required", "operator_elevation_required"]);
                codes.push("second_factor_required");
            }
            Auth::Device => {
                codes.extend([
                    "signature_required",
                    "signature_invalid",
                    "timestamp_out_of_range",
                ]);
                codes.extend([
                    "vault_suspended",
                    "vault_not_found",
                    "not_found",
                    "rate_limited",
                ]);
            }
        }
        if route.group == Group::Admin && route.path.contains('{') {
            codes.push("not_found");
        }
        codes
    }
}

impl Content {
    fn of(route: &Route, text: &'static str) -> Self {
        let (word, kind) = text.split_once(' ').unwrap_or((text, ""));
        let media = match word {
            "json" => "application/json",
            "form" => "application/x-www-form-urlencoded",
            "html" => "text/html",
            "bytes" => "application/octet-stream",
            "lines" => "application/jsonl",
            "table" => "text/csv",
            "pack" => "application/vnd.vault.pack",
            "empty" => "",
            _ => missing(route, &format!("the media type {word:?} is unknown")),
        };
        let kind = (!kind.is_empty()).then(|| Type::parse(kind));
        Self { media, kind }
    }
}

impl Failure {
    fn of(route: &Route, code: &'static str) -> Self {
        if let Some((status, code)) = code.split_once(':') {
            let (status, code) = (status.parse().unwrap(), Some(code));
            return Self { status, code };
        }
        if let Ok(status) = code.parse() {
            return Self { status, code: None };
        }
        let found = ErrorCode::ALL.iter().find(|known| known.row().code == code);
        let Some(found) = found else {
            missing(
                route,
                &format!("the error {code} is not in shared/service/src/error.rs"),
            );
        };
        let (status, code) = (found.row().status.as_u16(), Some(code));
        Self { status, code }
    }
}

impl Parameter {
    /// The row of `parameters.txt` for this parameter of a route.
    fn of(route: &Route, name: &'static str) -> Self {
        let kind = route.name.split('.').next().unwrap_or_default();
        let own = format!("{kind}.{name}");
        for line in rows(include_str!("parameters.txt")) {
            let (line, note) = split_note(line);
            let mut words = line.splitn(3, ' ');
            let key = words.next().unwrap();
            if key == name || key == own {
                let place = words.next().unwrap();
                let kind = Type::parse(words.next().unwrap());
                return Self {
                    name,
                    place,
                    kind,
                    note,
                };
            }
        }
        panic!(
            "{}: describe the parameter {name} in tests/routes/api/parameters.txt",
            route.name
        )
    }
}

/// The names of the variables in a path.
fn variables(path: &'static str) -> impl Iterator<Item = &'static str> {
    path.split('{')
        .skip(1)
        .map(|rest| rest.split('}').next().unwrap())
}

fn missing(route: &Route, what: &str) -> ! {
    panic!(
        "{}: correct its rows in tests/common/samples.txt: {what}",
        route.name
    )
}
