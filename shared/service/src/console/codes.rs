//! `/console/{slug}/machines/codes`: enrolment codes, and whether machines need one.

use askama::Template;
use axum::response::Response;

use super::guard::{ConsoleForm, ConsolePage};
use super::machines::link_command;
use super::names::Names;
use super::outcome::{Outcome, Unchanged};
use super::page::{ROWS_SHOWN, Shell, show as show_page};
use crate::admin::enrolment::{self, MOST_USES, create_code, end_code, set_enrolment};
use crate::error::ErrorCode;
use crate::model::enrolment::Enrolment;
use crate::web::error_page::ErrorPage;
use crate::web::form::with_query;
use crate::web::layout::minute;
use vault_api::{EnrolmentCode, NewEnrolmentCode};

/// Lifetimes that a new code can have, in seconds, with their names on the page.
const LIVES: [(i64, &str); 4] = [
    (3600, "1 hour"),
    (24 * 3600, "1 day"),
    (7 * 24 * 3600, "7 days"),
    (30 * 24 * 3600, "30 days"),
];

/// A code in the list.
struct Row {
    id: String,
    used: u32,
    uses: u32,
    name: Option<String>,
    created_by: String,
    ends: String,
}

/// A code that was just made.
struct Made {
    code: String,
    command: String,
    uses: u32,
    ends: String,
}

#[derive(Template)]
#[template(path = "console/codes.html")]
struct CodesPage {
    shell: Shell,
    csrf: String,
    here: String,
    list_href: String,
    required: bool,
    may_write: bool,
    most_uses: u32,
    lives: [(i64, &'static str); 4],
    made: Option<Made>,
    rows: Vec<Row>,
    /// Address of the next page of the list.
    next: Option<String>,
}

/// Shows the codes.
pub(super) async fn show(page: ConsolePage) -> Result<Response, ErrorPage> {
    let required = page.namespace.enrolment == Enrolment::Codes;
    shown(&page, required, None).await
}

/// Renders the page. `made` is a code that was made just now.
async fn shown(
    page: &ConsolePage,
    required: bool,
    made: Option<EnrolmentCode>,
) -> Result<Response, ErrorPage> {
    let (app, namespace) = (page.app(), &page.namespace);
    let after = page.query.value("after");
    // The parameter has to be the hash of a code; anything else begins the list.
    let after = after.filter(|after| after.len() == 64 && after.is_ascii());
    let (codes, next) = enrolment::codes(app, namespace, after, ROWS_SHOWN).await?;
    let makers = codes.iter().map(|code| code.created_by.as_str());
    let names = Names::read(app, namespace, makers).await?;
    let here = page.address("/machines/codes");
    let rows = codes.into_iter().map(|code| Row {
        created_by: names.of(&code.created_by),
        ends: minute(code.expires_at),
        id: code.id,
        used: code.used,
        uses: code.uses,
        name: code.name,
    });
    let made = made.and_then(|made| {
        // Only the answer to its creation has the text of a code.
        let code = made.code?;
        Some(Made {
            command: format!("{} --code {code}", link_command(page)),
            code,
            uses: made.uses,
            ends: minute(made.expires_at),
        })
    });
    let shown = CodesPage {
        shell: Shell::of(page),
        csrf: page.form_token(),
        list_href: page.address("/machines"),
        required,
        may_write: page.may_write(),
        most_uses: MOST_USES,
        lives: LIVES,
        made,
        rows: rows.collect(),
        next: next.map(|next| with_query(&here, &[("after", &next)])),
        here,
    };
    Ok(show_page(&shown))
}

/// Handles the forms of the page: makes a code, ends one, or changes whether codes are needed.
pub(super) async fn change(form: ConsoleForm) -> Result<Response, ErrorPage> {
    let acting = form.page.acting();
    match form.field("change")? {
        "create" => {
            let number = |name: &str| form.form.value(name).map(str::parse::<i64>);
            let uses = number("uses").transpose().ok().flatten();
            let life = number("life").transpose().ok().flatten();
            let uses = uses.and_then(|uses| u32::try_from(uses).ok());
            let asked = NewEnrolmentCode {
                // A field without a number counts as 0, which is refused like any number out of
                // bounds.
                uses: Some(uses.unwrap_or(0)),
                expires_in: Some(life.unwrap_or(0)),
                name: form.form.value("name").map(str::to_owned),
            };
            // Reloading the page with the code sends its form again. The mark keeps that from
            // making a second code.
            let Some(made) = create_code(acting, asked, Some(form.mark()?)).await? else {
                return Ok(form.refused(Unchanged::CodeMade));
            };
            let required = form.page.namespace.enrolment == Enrolment::Codes;
            // No redirect: the text of the code is known to this answer alone, and must not stand
            // in an address.
            shown(&form.page, required, Some(made)).await
        }
        "end" => match end_code(acting, form.field("code")?).await {
            Ok(_) => Ok(form.back(Outcome::CodeEnded)),
            Err(refusal) if refusal.code() == ErrorCode::NotFound => {
                Ok(form.refused(Unchanged::CodeEnded))
            }
            Err(refusal) => Err(refusal.into()),
        },
        "require" => {
            set_enrolment(acting, Enrolment::Codes).await?;
            Ok(form.back(Outcome::CodesRequired))
        }
        "open" => {
            set_enrolment(acting, Enrolment::Open).await?;
            Ok(form.back(Outcome::CodesOptional))
        }
        _ => Err(ErrorPage::FormMalformed),
    }
}
