//! `/console/{slug}/machines/codes`: the enrolment codes of a vault, and whether a machine needs
//! one. An enrolment code is a secret text that admits machines without a further decision.

use askama::Template;
use axum::response::Response;

use super::guard::{ConsoleForm, ConsolePage};
use super::machines::link_command;
use super::names::Names;
use super::outcome::{Outcome, Unchanged};
use super::page::{PageLayout, ROWS_SHOWN, show_page};
use crate::admin::enrolment::{self, MAX_USES, code_act, create_code, end_code, set_enrolment};
use crate::admin::principal::Principal;
use crate::error::ErrorCode;
use crate::model::client::ClientId;
use crate::model::enrolment::Enrolment;
use crate::web::error_page::ErrorPage;
use crate::web::form::with_query;
use crate::web::layout::format_minute;
use vault_api::{EnrolmentCode, NewEnrolmentCode};

/// Lifetimes that a new code can have, in seconds, with their names on the page.
const LIFETIMES: [(i64, &str); 4] = [
    (3600, "1 hour"),
    (24 * 3600, "1 day"),
    (7 * 24 * 3600, "7 days"),
    (30 * 24 * 3600, "30 days"),
];

/// An enrolment code that still admits machines, without its secret text.
struct EnrolmentCodeRow {
    id: String,
    used: u32,
    uses: u32,
    name: Option<String>,
    created_by: String,
    /// The app that created the code; `None` if a person did in the console.
    created_through: Option<String>,
    ends: String,
}

/// A code that this request created. Only this page shows its secret text.
struct NewCode {
    code: String,
    command: String,
    uses: u32,
    ends: String,
}

#[derive(Template)]
#[template(path = "console/codes.html")]
struct CodesPage {
    shell: PageLayout,
    csrf: String,
    here: String,
    list_href: String,
    required: bool,
    may_write: bool,
    most_uses: u32,
    lives: [(i64, &'static str); 4],
    made: Option<NewCode>,
    rows: Vec<EnrolmentCodeRow>,
    next: Option<String>,
}

pub(super) async fn show_codes(page: ConsolePage) -> Result<Response, ErrorPage> {
    let required = page.namespace.enrolment == Enrolment::Codes;
    render_codes(&page, required, None).await
}

/// Renders the page. `made` is a code that this request created.
async fn render_codes(
    page: &ConsolePage,
    required: bool,
    made: Option<EnrolmentCode>,
) -> Result<Response, ErrorPage> {
    let (app, namespace) = (page.app(), &page.namespace);
    let after = page.query.value("after");
    // The parameter must be the hash of a code; any other text shows the first page.
    let after = after.filter(|after| after.len() == 64 && after.is_ascii());
    let (codes, next) = enrolment::read_codes_page(app, namespace, after, ROWS_SHOWN).await?;
    let makers = codes.iter().map(|code| code.created_by.as_str());
    let mut names = Names::read_users(app, namespace, makers).await?;
    let app_of = |code: &EnrolmentCode| code.client_id.as_ref().and_then(|id| id.parse().ok());
    let apps: Vec<ClientId> = codes.iter().filter_map(app_of).collect();
    names.add_apps(app, namespace, &apps).await?;
    let here = page.address("/machines/codes");
    let rows = codes.into_iter().map(|code| EnrolmentCodeRow {
        created_by: names.display_name(&code.created_by),
        created_through: app_of(&code).map(|id| names.app_name(&id)),
        ends: format_minute(code.expires_at),
        id: code.id,
        used: code.used,
        uses: code.uses,
        name: code.name,
    });
    let made = made.and_then(|made| {
        // The text of a code is returned only when it is created.
        let code = made.code?;
        Some(NewCode {
            command: format!("{} --code {code}", link_command(page)),
            code,
            uses: made.uses,
            ends: format_minute(made.expires_at),
        })
    });
    let template = CodesPage {
        shell: PageLayout::for_page(page),
        csrf: page.form_token(),
        list_href: page.address("/machines"),
        required,
        may_write: page.may_write(),
        most_uses: MAX_USES,
        lives: LIFETIMES,
        made,
        rows: rows.collect(),
        next: next.map(|next| with_query(&here, &[("after", &next)])),
        here,
    };
    Ok(show_page(&template))
}

pub(super) async fn show_new_code(
    page: &ConsolePage,
    made: EnrolmentCode,
) -> Result<Response, ErrorPage> {
    let required = page.namespace.enrolment == Enrolment::Codes;
    // The page is the answer itself and not a redirect: only this answer knows the text of the
    // code, and an address must not contain it.
    render_codes(page, required, Some(made)).await
}

/// `POST /console/{slug}/machines/codes`: creates a code, ends one, or changes whether machines
/// need one.
pub(super) async fn change_codes(form: ConsoleForm) -> Result<Response, ErrorPage> {
    let acting = form.page.as_acting_user();
    match form.required_field("change")? {
        "create" => {
            let number = |name: &str| form.form.value(name).map(str::parse::<i64>);
            let uses = number("uses").transpose().ok().flatten();
            let life = number("life").transpose().ok().flatten();
            let uses = uses.and_then(|uses| u32::try_from(uses).ok());
            let new_code = NewEnrolmentCode {
                // A missing or invalid number counts as 0, which is refused as out of bounds.
                uses: Some(uses.unwrap_or(0)),
                expires_in: Some(life.unwrap_or(0)),
                name: form.form.value("name").map(str::to_owned),
            };
            // Reloading the page with the code sends the form again. The write that marks the form
            // as used keeps this from creating a second code.
            let act = code_act(&new_code);
            let by = Principal::from_user(acting, &form.page.user);
            let creation = create_code(&by, new_code, Some(form.single_use_write()?)).await;
            match form.confirm_outcome(act, creation).await? {
                Ok(Some(made)) => show_new_code(&form.page, made).await,
                Ok(None) => Ok(form.redirect_refused(Unchanged::CodeMade)),
                Err(to_confirmation) => Ok(to_confirmation),
            }
        }
        "end" => match end_code(acting, form.required_field("code")?).await {
            Ok(_) => Ok(form.redirect_back(Outcome::CodeEnded)),
            Err(refusal) if refusal.code() == ErrorCode::NotFound => {
                Ok(form.redirect_refused(Unchanged::CodeEnded))
            }
            Err(refusal) => Err(refusal.into()),
        },
        "require" => {
            set_enrolment(acting, Enrolment::Codes).await?;
            Ok(form.redirect_back(Outcome::CodesRequired))
        }
        "open" => {
            set_enrolment(acting, Enrolment::Open).await?;
            Ok(form.redirect_back(Outcome::CodesOptional))
        }
        _ => Err(ErrorPage::FormMalformed),
    }
}
