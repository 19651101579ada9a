//! `/console/{slug}/audit`: the audit log of a vault, with filters, and its downloads as JSON lines
//! and CSV.

use askama::Template;
use axum::http::header::{self, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use vault_format::time::Timestamp;
use vault_store::StoreError;

use super::audit_change::change_lines;
use super::csv;
use super::difference::printable_line;
use super::guard::ConsolePage;
use super::names::Names;
use super::page::{PageLayout, ROWS_SHOWN, show_page};
use crate::admin::audit::{
    Filter, LogRange, MAX_EXPORTED, Period, PeriodEnd, filter_word, read_export, read_newest,
    write_lines,
};
use crate::admin::call::Items;
use crate::admin::users::find_id_by_email;
use crate::model::account::Email;
use crate::model::audit::{Entry, SERVER};
use crate::spending::count_export;
use crate::web::error_page::ErrorPage;
use crate::web::form::with_query;
use crate::web::layout::format_minute;

const ACTOR_INVALID: &str =
    "“Done by” takes the e-mail address or the id of a person, or the words: the service.";
const NO_SUCH_PERSON: &str = "No person of this vault has the e-mail address in “Done by”. \
    To find what somebody did who has left, use the id.";
const ACTION_INVALID: &str = "An action is one word, for example device.admit.";
const DAY_INVALID: &str = "“From” and “Until” take a day, written like 2026-11-21.";

/// Filters that a person entered.
#[derive(Default)]
struct LogQuery {
    filter: Filter,
    /// First second of the range, and the second after its last.
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    /// The fields of the form as they were sent, to fill the form again and for links to other
    /// pages.
    fields: Vec<(&'static str, String)>,
    /// Message about a field whose value no entry can match.
    problem: Option<&'static str>,
}

impl LogQuery {
    /// Parses the filters of a query. An unusable value becomes a message on the page, not an
    /// error.
    async fn from_query(page: &ConsolePage) -> Result<Self, StoreError> {
        let mut query = Self::default();
        for name in ["actor", "action", "target", "from", "until"] {
            let value = page.query.value(name).map(str::trim);
            let value = value.filter(|text| !text.is_empty());
            query
                .fields
                .extend(value.map(|value| (name, value.to_owned())));
        }
        if let Err(problem) = query.parse_fields(page).await? {
            query.problem = Some(problem);
        }
        Ok(query)
    }

    /// Converts the fields into a filter. The inner error is the message for the page.
    async fn parse_fields(
        &mut self,
        page: &ConsolePage,
    ) -> Result<Result<(), &'static str>, StoreError> {
        let (app, home) = (page.app(), &page.namespace);
        let email = |text: &str| text.parse::<Email>().ok();
        let (actor, target) = (self.field_value("actor"), self.field_value("target"));
        // The page calls the service by this name, so people enter it.
        let actor = if actor == "the service" {
            SERVER.to_owned()
        } else {
            actor
        };
        // The page shows e-mail addresses, but entries have the ids of people.
        if let Some(email) = email(&actor) {
            match find_id_by_email(app, home, &email).await? {
                Some(id) => self.filter.actor = Some(id),
                None => return Ok(Err(NO_SUCH_PERSON)),
            }
        } else {
            match filter_word(Some(actor)) {
                Ok(actor) => self.filter.actor = actor,
                Err(_) => return Ok(Err(ACTOR_INVALID)),
            }
        }
        match filter_word(Some(self.field_value("action"))) {
            Ok(action) => self.filter.action = action,
            Err(_) => return Ok(Err(ACTION_INVALID)),
        }
        // The entry of a sign-in is about the e-mail address, any other about the id, so the filter
        // takes both.
        if let Some(email) = email(&target) {
            let id = find_id_by_email(app, home, &email).await?;
            self.filter.targets.extend(id);
        }
        self.filter
            .targets
            .extend(Some(target).filter(|target| !target.is_empty()));
        let day = |text: String| match text.as_str() {
            "" => Ok(None),
            day => format!("{day}T00:00:00Z").parse::<Timestamp>().map(Some),
        };
        let (Ok(since), Ok(until)) = (
            day(self.field_value("from")),
            day(self.field_value("until")),
        ) else {
            return Ok(Err(DAY_INVALID));
        };
        self.since = since;
        // The end of the range is exclusive, but the day that was entered belongs to it.
        self.until = until.map(|until| until.plus_days(1));
        Ok(Ok(()))
    }

    fn field_value(&self, name: &str) -> String {
        let mut fields = self.fields.iter();
        let found = fields.find(|(field, _)| *field == name);
        found.map_or_else(String::new, |(_, value)| value.clone())
    }

    /// Returns the address `home` with these filters and `more` parameters in its query.
    fn filtered_address(&self, home: &str, more: &[(&str, &str)]) -> String {
        let fields = self.fields.iter();
        let fields: Vec<_> = fields.map(|(name, value)| (*name, &**value)).collect();
        with_query(home, &[&*fields, more].concat())
    }
}

/// The person, machine or thing that an entry is about.
struct EntryTarget {
    name: String,
    href: Option<String>,
    /// The id, unless the name already contains it.
    id: Option<String>,
}

struct AuditRow {
    at: String,
    actor: String,
    actor_href: Option<String>,
    client: Option<String>,
    source: Option<String>,
    action: String,
    target: Option<EntryTarget>,
    outcome: String,
    refused: bool,
    changes: Vec<String>,
}

#[derive(Template)]
#[template(path = "console/audit.html")]
struct AuditPage {
    shell: PageLayout,
    home: String,
    actor: String,
    action: String,
    target: String,
    from: String,
    until: String,
    filtered: bool,
    problem: Option<&'static str>,
    rows: Vec<AuditRow>,
    older: Option<String>,
    newest: Option<String>,
    json_lines: String,
    csv: String,
    most: usize,
}

/// `GET /console/{slug}/audit`: shows the newest entries first.
pub(super) async fn show_log(page: ConsolePage) -> Result<Response, ErrorPage> {
    let query = LogQuery::from_query(&page).await?;
    let home = page.address("/audit");
    let matching = match query.problem {
        Some(_) => Items {
            items: Vec::new(),
            next: None,
        },
        None => read_matching(&page, &query).await?,
    };
    let names = read_names(&page, &matching.items).await?;
    let row = |entry: &Entry| to_row(&page, &names, entry);
    let template = AuditPage {
        shell: PageLayout::for_page(&page),
        actor: query.field_value("actor"),
        action: query.field_value("action"),
        target: query.field_value("target"),
        from: query.field_value("from"),
        until: query.field_value("until"),
        filtered: !query.fields.is_empty(),
        problem: query.problem,
        rows: matching.items.iter().map(row).collect(),
        older: matching
            .next
            .map(|next| query.filtered_address(&home, &[("before", &next)])),
        newest: page
            .query
            .value("before")
            .map(|_| query.filtered_address(&home, &[])),
        json_lines: query.filtered_address(&page.address("/audit.jsonl"), &[]),
        csv: query.filtered_address(&page.address("/audit.csv"), &[]),
        most: MAX_EXPORTED,
        home,
    };
    Ok(show_page(&template))
}

/// Reads one page of the matching entries, newest first.
async fn read_matching(page: &ConsolePage, asked: &LogQuery) -> Result<Items<Entry>, StoreError> {
    // The parameter must be the key of an entry; any other text shows the newest page.
    let before = page.query.value("before").and_then(PeriodEnd::before_key);
    let end = before.unwrap_or_else(|| {
        // No entry is newer than now. The search covers a bounded number of periods, so from a day
        // far in the future it would not reach any entry.
        let now = page.app().clock.now().plus_seconds(1);
        PeriodEnd::before_second(asked.until.map_or(now, |until| until.min(now)))
    });
    let since = asked.since.unwrap_or(Timestamp::MIN);
    let log = Some(&page.namespace.id);
    let range = LogRange { since, end };
    read_newest(page.app(), log, &asked.filter, range, ROWS_SHOWN).await
}

/// Reads the names of the people, machines and apps in these entries.
async fn read_names(page: &ConsolePage, entries: &[Entry]) -> Result<Names, StoreError> {
    let (app, home) = (page.app(), &page.namespace);
    let actors = entries.iter().map(|entry| &*entry.actor);
    let targets = || entries.iter().filter_map(|entry| entry.target.as_deref());
    let mut names = Names::read_users(app, home, actors.chain(targets())).await?;
    names.add_machines(app, home, targets()).await?;
    let clients = entries.iter().filter_map(|entry| entry.client.as_deref());
    names
        .add_apps_among(app, home, clients.chain(targets()))
        .await?;
    Ok(names)
}

fn to_target(page: &ConsolePage, names: &Names, id: &str) -> EntryTarget {
    let name = names.display_name(id);
    EntryTarget {
        // The display name of an enrolment code, for example, contains its id.
        id: (!name.contains(id)).then(|| printable_line(id)),
        name: printable_line(&name),
        href: names.page_href(page, id),
    }
}

fn to_row(page: &ConsolePage, names: &Names, entry: &Entry) -> AuditRow {
    let target = |id: &str| to_target(page, names, id);
    AuditRow {
        at: format_minute(entry.at),
        actor_href: names.page_href(page, &entry.actor),
        actor: printable_line(&names.display_name(&entry.actor)),
        client: entry
            .client
            .as_deref()
            .map(|id| printable_line(&names.display_name(id))),
        source: entry.source.map(|source| source.to_string()),
        action: printable_line(&entry.action),
        target: entry.target.as_deref().map(target),
        refused: entry.outcome != "done",
        outcome: printable_line(&describe_outcome(entry)),
        changes: change_lines(entry.before.as_ref(), entry.after.as_ref()),
    }
}

/// Describes the outcome of an entry, with the number of equal refusals that it stands for.
fn describe_outcome(entry: &Entry) -> String {
    match (entry.count, entry.last_at) {
        (Some(count), Some(last)) => {
            let last = last.to_string();
            let clock = last.get(11..19).unwrap_or(&last);
            format!("{} ({count} times until {clock})", entry.outcome)
        }
        _ => entry.outcome.clone(),
    }
}

/// Reads the matching entries for a download, oldest first. Also returns the address of the next
/// part, if there is one.
async fn read_file(page: &ConsolePage) -> Result<(Vec<Entry>, Option<String>), ErrorPage> {
    let query = LogQuery::from_query(page).await?;
    // A download cannot show a message, so unusable filters are an error here.
    if query.problem.is_some() {
        return Err(ErrorPage::FormMalformed);
    }
    let after = page.query.value("after").map(str::to_owned);
    if after
        .as_deref()
        .is_some_and(|after| PeriodEnd::before_key(after).is_none())
    {
        return Err(ErrorPage::FormMalformed);
    }
    let period = Period {
        since: query.since,
        until: query.until,
    };
    let log = Some(&page.namespace.id);
    let exported = read_export(page.app(), log, &query.filter, period, after).await?;
    let next = exported.next.map(|after| {
        // A complete URL, which a person can paste from the file into the browser.
        let file = page.path.rsplit('/').next().unwrap_or_default();
        let here = page.url(&format!("/{file}"));
        query.filtered_address(&here, &[("after", &after)])
    });
    Ok((exported.items, next))
}

/// Downloads the log as JSON lines, oldest first. If there is another part, a last line with the
/// member `next` has its URL.
pub(super) async fn json_lines(page: ConsolePage) -> Result<Response, ErrorPage> {
    count_export(page.app())?;
    let (entries, next) = read_file(&page).await?;
    let next = next.map(|next| serde_json::json!({ "next": next }));
    let text = write_lines(&entries, next)?;
    Ok(file_download(
        &page,
        "audit.jsonl",
        "application/jsonl",
        text,
    ))
}

/// Downloads the log as comma-separated values, oldest first. If there is another part, a last row
/// that begins with `next` has its URL.
pub(super) async fn comma_separated(page: ConsolePage) -> Result<Response, ErrorPage> {
    count_export(page.app())?;
    let (entries, next) = read_file(&page).await?;
    let mut text = String::new();
    csv::append_row(
        &mut text,
        &[
            "at", "actor", "client", "source", "action", "target", "outcome", "before", "after",
            "id", "count", "last_at",
        ],
    );
    let value = |value: &Option<serde_json::Value>| {
        value.as_ref().map_or_else(String::new, ToString::to_string)
    };
    for entry in &entries {
        let source = entry
            .source
            .map_or_else(String::new, |source| source.to_string());
        csv::append_row(
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
                &entry
                    .count
                    .map_or_else(String::new, |count| count.to_string()),
                &entry
                    .last_at
                    .map_or_else(String::new, |last| last.to_string()),
            ],
        );
    }
    if let Some(next) = next {
        csv::append_row(&mut text, &["next", &*next]);
    }
    Ok(file_download(
        &page,
        "audit.csv",
        "text/csv; charset=utf-8",
        text,
    ))
}

/// Returns a text as a download. Its file name is `name` after the slug of the vault.
pub(super) fn file_download(
    page: &ConsolePage,
    name: &str,
    media_type: &'static str,
    text: String,
) -> Response {
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    // A download names people and machines, so no cache may keep it.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Users chose parts of the text, so a browser must not guess that it is HTML.
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
