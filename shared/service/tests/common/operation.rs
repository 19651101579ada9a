//! What the samples say of each route, and what follows from who may call it and from HTTP.

use std::sync::LazyLock;

use serde_json::{Value, json};
use vault_service::error::ErrorCode;
use vault_service::route::{Auth, Group, Route};

use super::samples::{Sample, samples};

/// One route, described.
pub struct Operation {
    pub route: &'static Route,
    pub summary: &'static str,
    pub parameters: Vec<Parameter>,
    /// The bodies that it takes.
    pub bodies: Vec<Content>,
    /// What it answers when all is well: status and body.
    pub answers: Vec<(u16, Content)>,
    pub errors: Vec<Failure>,
}

/// A body: its media type, empty for none; the name of its type, empty for none; the fields of a
/// form.
pub struct Content {
    pub media: &'static str,
    pub kind: &'static str,
    pub fields: Vec<Parameter>,
}

/// An error; a page for people has no code.
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
pub struct Failure {
    pub status: u16,
    pub code: Option<&'static str>,
}

/// A parameter, or a field of a form.
pub struct Parameter {
    pub name: &'static str,
    /// `path`, `query`, `header` or `form`.
    pub place: &'static str,
    pub required: bool,
    pub schema: Value,
    pub note: &'static str,
}

/// All routes, in the order of the table.
pub static OPERATIONS: LazyLock<Vec<Operation>> =
    LazyLock::new(|| samples().iter().map(Operation::of).collect());

impl Operation {
    fn of(sample: &Sample) -> Self {
        let route = sample.route;
        let variables = route.path.split(['{', '}']).skip(1).step_by(2);
        let mut operation = Self {
            route,
            summary: "",
            parameters: variables
                .map(|name| Parameter::of(route, "path", name))
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
                    let names = rest.split(' ');
                    let parameters = names.map(|name| Parameter::of(route, word, name));
                    operation.parameters.extend(parameters);
                }
                "body" => operation.bodies.push(Content::of(route, rest)),
                "errors" => codes.extend(rest.split(' ')),
                status => {
                    let status = status.parse().unwrap_or_else(|_| missing(route, line));
                    operation.answers.push((status, Content::of(route, rest)));
                }
            }
        }
        if operation.summary.is_empty() || operation.answers.is_empty() {
            missing(route, "a summary, or an answer");
        }
        codes.extend(operation.common_codes());
        let errors = codes.into_iter().map(|code| Failure::of(route, code));
        operation.errors = errors.collect();
        operation.errors.sort_unstable();
        operation.errors.dedup();
        operation
    }

    /// Whether it answers with pages for people.
    pub fn is_page(&self) -> bool {
        let is_page = |(status, content): &(u16, Content)| {
            content.media == "text/html" || content.media.is_empty() && *status != 200
        };
        let is_for_people =
            self.route.group == Group::OAuth || matches!(self.route.auth, Auth::Session(_));
        is_for_people && self.answers.iter().any(is_page)
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
    fn common_codes(&self) -> impl Iterator<Item = &'static str> {
        let (route, has_body) = (self.route, !self.bodies.is_empty());
        let of_body = match (self.is_page(), route.group) {
            (true, _) if has_body => "500 503 408 413 415",
            (true, _) => "500 503",
            (false, Group::OAuth) if has_body => {
                "500:server_error 503:temporarily_unavailable 400:invalid_request \
                 408:invalid_request 413:invalid_request 415:invalid_request"
            }
            (false, _) if has_body => "request_invalid body_timeout body_too_large media_type",
            (false, _) => "",
        };
        let of_scope = match route.auth {
            Auth::BearerWrite | Auth::PublisherWrite | Auth::OwnerWrite | Auth::OperatorWrite => {
                "insufficient_scope"
            }
            _ => "",
        };
        let of_caller = match route.auth {
            Auth::Public | Auth::Session(None) | Auth::ClientOrBearer => "",
            Auth::Session(Some(_)) => "429",
            Auth::Account => "token_required token_invalid rate_limited",
            Auth::Bearer | Auth::BearerWrite => {
                "token_required token_invalid vault_suspended rate_limited"
            }
            Auth::Publisher | Auth::PublisherWrite => {
                "token_required token_invalid vault_suspended publisher_required \
                 second_factor_required rate_limited"
            }
            Auth::Owner | Auth::OwnerWrite => {
                "token_required token_invalid vault_suspended owner_required \
                 second_factor_required rate_limited"
            }
            Auth::Operator | Auth::OperatorWrite => {
                "token_required token_invalid vault_suspended operator_required \
                 operator_elevation_required second_factor_required rate_limited"
            }
            Auth::Device => {
                "signature_required signature_invalid timestamp_out_of_range vault_suspended \
                 not_found rate_limited"
            }
        };
        let is_below = route.group == Group::Admin && route.path.contains('{');
        let of_path = if is_below { "not_found" } else { "" };
        let of_http = "path_too_long headers_too_large internal unavailable";
        let all = [of_http, of_body, of_scope, of_caller, of_path];
        all.into_iter().flat_map(str::split_whitespace)
    }
}

impl Content {
    fn of(route: &Route, text: &'static str) -> Self {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let media = match word {
            "json" => "application/json",
            "form" => "application/x-www-form-urlencoded",
            "html" => "text/html",
            "bytes" => "application/octet-stream",
            "lines" => "application/jsonl",
            "table" => "text/csv",
            "pack" => "application/vnd.vault.pack",
            "empty" => "",
            _ => missing(route, word),
        };
        let is_form = word == "form";
        let fields = rest.split(' ').filter(|_| is_form);
        let fields = fields.map(|name| Parameter::of(route, "form", name));
        Self {
            media,
            kind: if is_form { "" } else { rest },
            fields: fields.collect(),
        }
    }

    /// What it is in JSON Schema; `None` for what is neither JSON nor a form.
    pub fn schema(&self) -> Option<Value> {
        if self.media == "application/json" {
            return Some(match self.kind {
                "" => json!({ "type": "object" }),
                kind => json!({ "$ref": format!("#/components/schemas/{kind}") }),
            });
        }
        let described = |field: &Parameter| {
            let mut schema = field.schema.clone();
            if !field.note.is_empty() {
                schema["description"] = field.note.into();
            }
            (field.name.to_owned(), schema)
        };
        let required = self.fields.iter().filter(|field| field.required);
        let required: Vec<_> = required.map(|field| field.name).collect();
        let properties: serde_json::Map<_, _> = self.fields.iter().map(described).collect();
        (!properties.is_empty())
            .then(|| json!({ "type": "object", "properties": properties, "required": required }))
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
        let status = found.unwrap_or_else(|| missing(route, code)).row().status;
        let (status, code) = (status.as_u16(), Some(code));
        Self { status, code }
    }
}

impl Parameter {
    /// The row of `parameters.txt` for this parameter of a route.
    fn of(route: &Route, place: &'static str, text: &'static str) -> Self {
        let name = text.trim_end_matches('?');
        let kind = route.name.split('.').next().unwrap_or_default();
        let own = format!("{kind}.{name}");
        let rows = include_str!("parameters.txt").lines();
        let rows = rows.filter_map(|line| line.split_once(" -- "));
        let found = rows.map(|(row, note)| (row.splitn(3, ' ').collect::<Vec<_>>(), note));
        let mut found =
            found.filter(|(row, _)| (row[0] == name || row[0] == own) && row[1] == place);
        let (kind, note) = match found.next() {
            Some((row, note)) => (row[2], note),
            None if place == "form" => ("string", ""),
            None => missing(route, name),
        };
        Self {
            name,
            place,
            required: place == "path" || place == "form" && !text.ends_with('?'),
            schema: schema_of(kind),
            note,
        }
    }
}

/// A type of `parameters.txt` in JSON Schema.
fn schema_of(kind: &str) -> Value {
    let pattern = kind.strip_prefix('/').and_then(|it| it.strip_suffix('/'));
    match kind {
        "string" | "integer" => json!({ "type": kind }),
        "date" | "date-time" => json!({ "type": "string", "format": kind }),
        _ if pattern.is_some() => json!({ "type": "string", "pattern": pattern }),
        _ if kind.starts_with(|first: char| first.is_ascii_uppercase()) => {
            json!({ "$ref": format!("#/components/schemas/{kind}") })
        }
        _ => match kind.split_once("..") {
            Some((least, most)) => {
                let bound = |text: &str| text.parse::<u64>().unwrap();
                json!({ "type": "integer", "minimum": bound(least), "maximum": bound(most) })
            }
            None => words(kind),
        },
    }
}

/// Words, and a type whose words are allowed too.
fn words(kind: &str) -> Value {
    let is_type = |word: &&str| word.starts_with(|first: char| first.is_ascii_uppercase());
    let (types, words): (Vec<_>, Vec<_>) = kind.split('|').partition(is_type);
    let words = json!({ "type": "string", "enum": words });
    match types.first() {
        Some(kind) => json!({ "anyOf": [words, schema_of(kind)] }),
        None => words,
    }
}

fn missing(route: &Route, what: &str) -> ! {
    panic!(
        "{}: correct its rows in tests/common/samples.txt, or describe it in parameters.txt beside \
         it: {what}",
        route.name
    )
}
