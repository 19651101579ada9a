//! `/console/{slug}/audit`: what people, apps and the service did in a vault, with filters, and as
//! files.

use askama::Template;
use axum::http::header::{self, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::MAX_PAGE;

use super::audit_change::change_lines;
use super::csv;
use super::difference::shown;
use super::guard::ConsolePage;
use super::names::Names;
use super::page::{ROWS_SHOWN, Shell, show as show_page};
use crate::admin::audit::{End, Filter, entries, filter_word, newest};
use crate::admin::call::Page;
use crate::model::audit::Entry;
use crate::model::user::is_user_id;
use crate::oauth::form::with_query;
use crate::oauth::pages::minute;
use crate::oauth::stop::Stop;

/// Most entries of one file.
const MAX_EXPORTED: usize = 5_000;
/// Most bytes of one file: an answer of a function on AWS has at most 6 MB.
const MAX_EXPORT_BYTES: usize = 4 * 1024 * 1024;
/// Most entries that one reading for a file asks for: with one more, as many as a list may have.
const PART: usize = MAX_PAGE - 1;

/// What a person asks to see.
struct Asked {
    filter: Filter,
    /// The first second, and the second behind the last.
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    /// The fields of the form as they were sent.
    fields: Vec<(&'static str, String)>,
}

impl Asked {
    /// Reads the filters of a query; what no entry can have is an empty filter with a note on the
    /// page.
    fn of(page: &ConsolePage) -> Result<Self, Stop> {
        let mut fields = Vec::new();
        let mut field = |name: &'static str| {
            let value = page.query.value(name).map(|text| text.trim().to_owned());
            let value = value.filter(|text| !text.is_empty());
            fields.extend(value.clone().map(|value| (name, value)));
            value
        };
        let word = |value| filter_word(value).map_err(|_| Stop::FormMalformed);
        let filter = Filter {
            actor: word(field("actor"))?,
            action: word(field("action"))?,
            target: field("target"),
        };
        let day = |value: Option<String>| match value {
            None => Ok(None),
            Some(text) => {
                let at: Result<Timestamp, _> = format!("{text}T00:00:00Z").parse();
                at.map(Some).map_err(|_| Stop::FormMalformed)
            }
        };
        let (since, until) = (day(field("from"))?, day(field("until"))?);
        Ok(Self {
            filter,
            since,
            // The day that is named is shown too.
            until: until.map(|until| until.plus_days(1)),
            fields,
        })
    }

    fn value(&self, name: &str) -> String {
        let mut fields = self.fields.iter();
        let found = fields.find(|(field, _)| *field == name);
        found.map_or_else(String::new, |(_, value)| value.clone())
    }

    /// An address with these filters.
    fn address(&self, home: &str, more: &[(&str, &str)]) -> String {
        let fields = self.fields.iter();
        let fields: Vec<_> = fields.map(|(name, value)| (*name, &**value)).collect();
        with_query(home, &[&*fields, more].concat())
    }
}

struct Row {
    at: String,
    actor: String,
    actor_href: Option<String>,
    client: Option<String>,
    source: Option<String>,
    action: String,
    target: Option<String>,
    outcome: String,
    refused: bool,
    changes: Vec<String>,
}

#[derive(Template)]
#[template(path = "console/audit.html")]
struct AuditPage {
    shell: Shell,
    home: String,
    actor: String,
    action: String,
    target: String,
    from: String,
    until: String,
    filtered: bool,
    rows: Vec<Row>,
    older: Option<String>,
    newest: Option<String>,
    json_lines: String,
    csv: String,
    most: usize,
}

/// The log, newest first.
pub(super) async fn show(page: ConsolePage) -> Result<Response, Stop> {
    let asked = Asked::of(&page)?;
    let home = page.address("/audit");
    let end = match page.query.value("before") {
        Some(key) => End::key(key).ok_or(Stop::FormMalformed)?,
        None => {
            // Nothing is newer than now, so the search for entries does not begin behind it.
            let now = page.app().clock.now().plus_seconds(1);
            End::second(asked.until.map_or(now, |until| until.min(now)))
        }
    };
    let since = asked.since.unwrap_or(Timestamp::MIN);
    let log = Some(&page.namespace.id);
    let found = newest(page.app(), log, &asked.filter, (since, end), ROWS_SHOWN).await?;
    let actors = found.items.iter().map(|entry| &*entry.actor);
    let names = Names::read(page.app(), &page.namespace, actors).await?;
    let row = |entry: &Entry| row(&page, &names, entry);
    let shown = AuditPage {
        shell: Shell::of(&page),
        actor: asked.value("actor"),
        action: asked.value("action"),
        target: asked.value("target"),
        from: asked.value("from"),
        until: asked.value("until"),
        filtered: !asked.fields.is_empty(),
        rows: found.items.iter().map(row).collect(),
        older: found
            .next
            .map(|next| asked.address(&home, &[("before", &next)])),
        newest: page
            .query
            .value("before")
            .map(|_| asked.address(&home, &[])),
        json_lines: asked.address(&page.address("/audit.jsonl"), &[]),
        csv: asked.address(&page.address("/audit.csv"), &[]),
        most: MAX_EXPORTED,
        home,
    };
    Ok(show_page(&shown))
}

fn row(page: &ConsolePage, names: &Names, entry: &Entry) -> Row {
    Row {
        at: minute(entry.at),
        actor_href: is_user_id(&entry.actor)
            .then(|| page.address(&format!("/people/{}", entry.actor))),
        actor: match entry.actor.as_str() {
            "server" => "the service".to_owned(),
            id => shown(&names.of(id)),
        },
        client: entry.client.as_deref().map(shown),
        source: entry.source.map(|source| source.to_string()),
        action: shown(&entry.action),
        target: entry.target.as_deref().map(shown),
        refused: entry.outcome != "done",
        outcome: shown(&entry.outcome),
        changes: change_lines(entry.before.as_ref(), entry.after.as_ref()),
    }
}

/// Entries for a file, oldest first, and where the next part begins.
async fn exported(page: &ConsolePage) -> Result<(Vec<Entry>, Option<String>), Stop> {
    let asked = Asked::of(page)?;
    let mut after = page.query.value("after").map(str::to_owned);
    if after
        .as_deref()
        .is_some_and(|after| End::key(after).is_none())
    {
        return Err(Stop::FormMalformed);
    }
    let (mut found, mut bytes) = (Vec::new(), 0);
    loop {
        let part = Page {
            limit: PART.min(MAX_EXPORTED - found.len()),
            after: after.clone(),
        };
        let times = (asked.since, asked.until);
        let log = Some(&page.namespace.id);
        let listed = entries(page.app(), log, &asked.filter, times, part).await?;
        bytes += listed.items.iter().map(size).sum::<usize>();
        found.extend(listed.items);
        after = listed.next;
        if after.is_none() || found.len() >= MAX_EXPORTED || bytes >= MAX_EXPORT_BYTES / 2 {
            break;
        }
    }
    let next = after.map(|after| {
        let file = page.path.rsplit('/').next().unwrap_or_default();
        let here = page.address(&format!("/{file}"));
        asked.address(&here, &[("after", &after)])
    });
    Ok((found, next))
}

/// The bytes of an entry in a file, roughly.
fn size(entry: &Entry) -> usize {
    let text = |value: &Option<serde_json::Value>| {
        value.as_ref().map_or(0, |value| value.to_string().len())
    };
    200 + text(&entry.before) + text(&entry.after)
}

/// The log as JSON lines, oldest first. A last line with `next` names the part that follows, if one
/// does.
pub(super) async fn json_lines(page: ConsolePage) -> Result<Response, Stop> {
    let (entries, next) = exported(&page).await?;
    let mut text = String::new();
    for entry in &entries {
        let line = serde_json::to_string(entry).map_err(|error| {
            StoreError::Corrupt(format!("an entry of the log cannot be written: {error}"))
        })?;
        text.push_str(&line);
        text.push('\n');
    }
    if let Some(next) = next {
        text.push_str(&serde_json::json!({ "next": next }).to_string());
        text.push('\n');
    }
    Ok(file(&page, "audit.jsonl", "application/jsonl", text))
}

/// The log as a table, oldest first. A last row that begins with `next` names the part that
/// follows, if one does.
pub(super) async fn comma_separated(page: ConsolePage) -> Result<Response, Stop> {
    let (entries, next) = exported(&page).await?;
    let mut text = String::new();
    csv::row(
        &mut text,
        &[
            "at", "actor", "client", "source", "action", "target", "outcome", "before", "after",
            "id",
        ],
    );
    let value = |value: &Option<serde_json::Value>| {
        value.as_ref().map_or_else(String::new, ToString::to_string)
    };
    for entry in &entries {
        let source = entry
            .source
            .map_or_else(String::new, |source| source.to_string());
        csv::row(
            &mut text,
            &[
                &*entry.at.to_string(),
                &entry.actor,
                entry.client.as_deref().unwrap_or_default(),
                &source,
                &entry.action,
                entry.target.as_deref().unwrap_or_default(),
                &entry.outcome,
                &value(&entry.before),
                &value(&entry.after),
                &entry.id,
            ],
        );
    }
    if let Some(next) = next {
        csv::row(&mut text, &["next", &*next]);
    }
    Ok(file(&page, "audit.csv", "text/csv; charset=utf-8", text))
}

/// A file that the browser saves under the name of the vault and this one.
pub(super) fn file(
    page: &ConsolePage,
    name: &str,
    media_type: &'static str,
    text: String,
) -> Response {
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    let name = format!("attachment; filename=\"{}-{name}\"", page.namespace.slug);
    if let Ok(name) = HeaderValue::from_str(&name) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
    response
}
