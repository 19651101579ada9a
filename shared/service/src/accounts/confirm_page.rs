//! `/account/confirm/{id}`: the page on which a person confirms or declines dangerous acts that an
//! app asked for. The console shows the same page for its own forms.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use vault_store::StoreError;

use super::guard::{FormTask, SignedInBrowser, SignedInForm};
use super::permits::{FoundPermit, decide, find_permit};
use super::second_factor::{self, Requirement};
use super::sign_in_page::{SignInPrompt, render_sign_in_page};
use crate::app::App;
use crate::model::Versioned;
use crate::model::client::{Client, Connection, client_key, connection_key};
use crate::model::permit::{Act, Permit, PermitState};
use crate::model::user::{NamespaceRef, Role, User, user_key};
use crate::web::browser::{Browser, CONFIRM_PATH, ReturnTo, SignedIn};
use crate::web::csrf::Purpose;
use crate::web::error_page::{ErrorPage, Explanation};
use crate::web::form::Form;
use crate::web::layout::{self, Frame, MessagePage, format_minute, role_with_article};

/// An act in words.
struct Sentence {
    /// The act and its target.
    what: String,
    /// What follows from it.
    effect: String,
}

/// The app that asks.
struct AskingApp {
    name: Option<String>,
    since: String,
}

/// The page.
#[derive(Template)]
#[template(path = "confirm.html")]
struct ConfirmPage {
    frame: Frame,
    sentences: Vec<Sentence>,
    slug: Option<String>,
    /// `None` for the console.
    asked_by: Option<AskingApp>,
    asked_at: String,
    from: String,
    account: String,
    /// Address of the form.
    action: String,
    csrf: String,
    return_to: String,
    /// Whether the person may confirm now; otherwise the page offers to decline, or to sign in.
    fresh: bool,
    /// Whether the identity provider signed the person in just now, and did not state that
    /// credentials were entered.
    unstated: bool,
    /// Whether the person confirmed without ticking the box.
    unticked: bool,
}

/// What the form of the page needs besides the permit.
pub struct ConfirmForm {
    /// Address of the form.
    pub action: String,
    /// The token of the form.
    pub csrf: String,
    /// Address of the page that the form is on.
    pub return_to: String,
    /// Whether the person sent it without ticking the box.
    pub unticked: bool,
}

/// Decision of the person, as the form says it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decision {
    /// Yes.
    Confirm,
    /// Yes, but the box was not ticked: perhaps the second click of a double click.
    ConfirmUnticked,
    /// No.
    Decline,
}

/// `GET /account/confirm/{id}`: shows the page.
pub async fn show_confirmation(
    app: &App,
    id: &str,
    request: SignedInBrowser,
) -> Result<Response, ErrorPage> {
    let SignedInBrowser {
        browser, signed_in, ..
    } = &request;
    let found = find_of_app(app, signed_in, id).await?;
    let path = format!("{CONFIRM_PATH}{id}");
    let onward = ReturnTo::parse_confirm_path(&path).ok_or(ErrorPage::NotFound)?;
    let form = create_form(app, browser, onward);
    render_confirmation(app, signed_in, &found, form).await
}

fn create_form(app: &App, browser: &Browser, onward: ReturnTo<'_>) -> ConfirmForm {
    ConfirmForm {
        action: format!("{}/account/confirm", app.config.public_url.prefix()),
        csrf: browser.form_token(app, Purpose::Confirm, onward.form_subject()),
        return_to: onward.address(app),
        unticked: false,
    }
}

/// Finds a permit of an app that waits for this person. One of the console is decided in the
/// console alone, which then does its act.
async fn find_of_app(app: &App, signed_in: &SignedIn, id: &str) -> Result<FoundPermit, ErrorPage> {
    let found = find_permit(app, &signed_in.account.id, id).await?;
    require_waiting(found.filter(|found| found.client.is_some()), signed_in)
}

/// The form of the page.
pub const CONFIRM: FormTask = FormTask {
    purpose: Purpose::Confirm,
    onward: |app, form| match ReturnTo::from_form(app, form)? {
        page @ ReturnTo::Confirm(_) => Ok(page),
        _ => Err(ErrorPage::FormMalformed),
    },
    action: "confirmation.confirm",
};

/// `POST /account/confirm`: confirms or declines.
pub async fn decide_confirmation(app: &App, request: SignedInForm) -> Result<Response, ErrorPage> {
    let decision = parse_decision(&request.form)?;
    let onward = (CONFIRM.onward)(app, &request.form)?;
    let id = onward.form_subject().rsplit('/').next().unwrap_or_default();
    let signed_in = &request.signed_in;
    let found = find_of_app(app, signed_in, id).await?;
    let confirmed = decision != Decision::Decline;
    // Checked again: the page may have been open for longer than credentials are fresh. To decline
    // takes no credentials.
    if confirmed && let Some(stale) = sign_in_if_stale(app, &request.browser, signed_in, onward) {
        return Ok(stale);
    }
    if decision == Decision::ConfirmUnticked {
        let form = ConfirmForm {
            unticked: true,
            ..create_form(app, &request.browser, onward)
        };
        return render_confirmation(app, signed_in, &found, form).await;
    }
    let account = &signed_in.account.id;
    let decided = decide(app, account, &found, confirmed, request.source).await?;
    decided.ok_or_else(ended_page)?;
    let (title, line) = if confirmed {
        (
            "Confirmed",
            "Return to the app or the terminal: it continues within a few seconds. You can close this page.",
        )
    } else {
        (
            "Declined",
            "Nothing was changed. The app cannot do this, and cannot ask for it again within the next minute.",
        )
    };
    let page = MessagePage {
        frame: Frame::for_service(&app.config.public_url),
        title,
        lines: vec![line.to_owned()],
        sign_out: None,
    };
    Ok(layout::render_page(StatusCode::OK, &page, None))
}

/// Parses the decision of a form.
pub fn parse_decision(form: &Form) -> Result<Decision, ErrorPage> {
    match form.value("decision") {
        Some("confirm") if form.value("sure") == Some("yes") => Ok(Decision::Confirm),
        Some("confirm") => Ok(Decision::ConfirmUnticked),
        Some("decline") => Ok(Decision::Decline),
        _ => Err(ErrorPage::FormMalformed),
    }
}

/// Returns the permit if the person still has to decide about it.
pub fn require_waiting(
    found: Option<FoundPermit>,
    signed_in: &SignedIn,
) -> Result<FoundPermit, ErrorPage> {
    let found = found.filter(|found| found.permit.state == PermitState::Asked);
    found.ok_or_else(|| {
        Explanation {
            detail: Some(format!(
                "You are signed in as {}. A confirmation opens only for the account whose app asked.",
                signed_in.account.email
            )),
            ..ended_explanation()
        }
        .into()
    })
}

/// The page for a permit that is gone.
pub fn ended_page() -> ErrorPage {
    ended_explanation().into()
}

const fn ended_explanation() -> Explanation {
    Explanation {
        status: StatusCode::NOT_FOUND,
        title: "There is nothing to confirm here",
        lines: &[
            "This confirmation was decided before, has ended after ten minutes, or is for another account.",
            "If an app still waits, run its command again: it gives you a new address.",
        ],
        detail: None,
    }
}

/// Returns the page that asks for credentials where those of the session are older than five
/// minutes, or lack the second factor that the service demands of owners and operators.
pub fn sign_in_if_stale(
    app: &App,
    browser: &Browser,
    signed_in: &SignedIn,
    onward: ReturnTo<'_>,
) -> Option<Response> {
    if may_confirm(app, signed_in) {
        return None;
    }
    match require_second_factor(app, signed_in) {
        Requirement::NotSetUp => return Some(second_factor::render_setup_due(app, false)),
        Requirement::Unconfirmed(from) => {
            return Some(second_factor::render_unconfirmed(app, from));
        }
        Requirement::Met | Requirement::NotEntered => {}
    }
    let prompt = SignInPrompt {
        email: signed_in.account.email.as_str(),
        problem: Some("To confirm, sign in again. Nothing has been changed."),
        ..SignInPrompt::default()
    };
    Some(render_sign_in_page(app, browser, onward, prompt))
}

/// Checks the second factor: every such act is one of an owner or an operator.
fn require_second_factor(app: &App, signed_in: &SignedIn) -> Requirement {
    second_factor::check_role_requirement(app, signed_in, Role::Owner)
}

/// Whether the credentials of the session suffice to confirm.
fn may_confirm(app: &App, signed_in: &SignedIn) -> bool {
    require_second_factor(app, signed_in) == Requirement::Met
        && signed_in.session.has_fresh_credentials(app.now())
}

/// Renders the page of a permit that waits for this person.
pub async fn render_confirmation(
    app: &App,
    signed_in: &SignedIn,
    found: &FoundPermit,
    form: ConfirmForm,
) -> Result<Response, ErrorPage> {
    let permit = &found.permit;
    let mut sentences = Vec::new();
    for permitted in &permit.acts {
        sentences.push(describe_act(app, permit, &permitted.act).await?);
    }
    let page = ConfirmPage {
        frame: Frame::for_service(&app.config.public_url),
        sentences,
        slug: permit.namespace.as_ref().map(|home| home.slug.to_string()),
        asked_by: load_app(app, found).await?,
        asked_at: format_minute(permit.asked_at),
        from: permit.from.clone(),
        account: signed_in.account.email.to_string(),
        action: form.action,
        csrf: form.csrf,
        return_to: form.return_to,
        fresh: may_confirm(app, signed_in),
        unstated: signed_in.session.is_recent_unstated(app.now()),
        unticked: form.unticked,
    };
    let status = if form.unticked {
        StatusCode::UNPROCESSABLE_ENTITY
    } else {
        StatusCode::OK
    };
    Ok(layout::render_page(status, &page, None))
}

/// Loads the app that asked; `None` for the console.
async fn load_app(app: &App, found: &FoundPermit) -> Result<Option<AskingApp>, StoreError> {
    let Some(id) = &found.client else {
        return Ok(None);
    };
    let client = app.get::<Client>(&client_key(id)).await?;
    let connection = match &found.permit.namespace {
        Some(home) => app.get::<Connection>(&connection_key(&home.id, id)).await?,
        None => None,
    };
    let since = connection.map(|found| found.value.connected_at);
    let client = client.map(|found| found.value);
    let since = since.or_else(|| client.as_ref().map(|client| client.created_at));
    Ok(Some(AskingApp {
        name: client.and_then(|client| client.name),
        since: since.map_or_else(|| "at an unknown time".to_owned(), format_minute),
    }))
}

/// Finds the user whom an act is about, as they are now.
async fn find_user(
    app: &App,
    home: Option<&NamespaceRef>,
    id: &str,
) -> Result<Option<User>, StoreError> {
    let Some(home) = home else {
        return Ok(None);
    };
    let found = app.records.get_one(&user_key(&home.id, id)).await?;
    Ok(Versioned::<User>::read(found)?.map(|found| found.value))
}

/// Describes an act and its effect.
async fn describe_act(app: &App, permit: &Permit, act: &Act) -> Result<Sentence, StoreError> {
    let home = permit.namespace.as_ref();
    let slug = home.map_or_else(String::new, |home| home.slug.to_string());
    // The address of a user, and a sentence about the present role.
    let person = async |id: &str| -> Result<(String, String), StoreError> {
        let user = find_user(app, home, id).await?;
        // The id stays visible for a user who was removed since.
        Ok(user.map_or_else(
            || (id.to_owned(), String::new()),
            |user| {
                let now = format!("They are {} now. ", role_with_article(user.role));
                (user.email.to_string(), now)
            },
        ))
    };
    let (what, effect) = match act {
        Act::DeleteVault {} => (
            format!("Delete the vault {slug}."),
            "All its machines and members lose access at once, its content is removed, and its name is never given out again. This cannot be undone.".to_owned(),
        ),
        Act::ResetPin {} => (
            format!("Reset the pin of the vault {slug}."),
            "The next release may come from anybody who can publish here, with other keys. Machines refuse those until they link the vault again.".to_owned(),
        ),
        Act::InviteOwner { email, scopes } => (
            format!("Invite {email} as an owner of {slug}."),
            format!(
                "An owner can do everything in this vault{}, even remove you and delete it.",
                if scopes.has(vault_api::Scope::Write) {
                    ""
                } else {
                    " once they have the right to write"
                }
            ),
        ),
        Act::ChangeRole { user, role } => {
            let (email, now) = person(user).await?;
            (
                format!("Make {email} {} of {slug}.", role_with_article(*role)),
                format!("{now}{}", role_effect(*role)),
            )
        }
        Act::RemoveUser { user } => {
            let (email, now) = person(user).await?;
            (
                format!("Remove {email} from {slug}."),
                format!("{now}They and their apps lose access at once. Machines that they linked stay."),
            )
        }
        Act::CreateCode {
            uses,
            seconds,
            name,
        } => describe_code(&slug, *uses, *seconds, name.as_deref()),
        Act::DeleteAccount { email } => (
            format!("Delete the account {email}."),
            "The person is removed from every vault. This cannot be undone.".to_owned(),
        ),
        Act::ResetAccount { email } => (
            format!("Reset the account {email}."),
            "Its password, second factor, passkeys and connections to an identity provider are removed. Whoever opens the new link controls this account, in every vault.".to_owned(),
        ),
        Act::GrantOperator { email } => (
            format!("Make {email} an operator."),
            "An operator manages every vault and every account of this service.".to_owned(),
        ),
        Act::RevokeOperator { email } => (
            format!("Take the rights of an operator from {email}."),
            "The account stays, with its vaults.".to_owned(),
        ),
    };
    Ok(Sentence { what, effect })
}

/// Describes the creation of a code, and its effect.
fn describe_code(slug: &str, uses: u32, seconds: i64, name: Option<&str>) -> (String, String) {
    let lifetime = format_duration(seconds);
    let names = name.map_or_else(String::new, |name| {
        format!(" Only machines with the name {name} can use it.")
    });
    let (machines, admits) = if uses == 1 {
        (
            "one machine".to_owned(),
            "a machine, which reads".to_owned(),
        )
    } else {
        let machines = format!("{uses} machines");
        let admits = format!("up to {machines}, which read");
        (machines, admits)
    };
    (
        format!("Make an enrolment code for {machines} of {slug}."),
        format!(
            "For {lifetime}, whoever has the code admits {admits} every skill that machines get, without asking you.{names}"
        ),
    )
}

const fn role_effect(role: Role) -> &'static str {
    match role {
        Role::Owner => "An owner can do everything in this vault, even remove you and delete it.",
        Role::Publisher => "A publisher pushes releases and decides on drafts.",
        Role::Member => "A member uses skills and proposes changes.",
    }
}

/// Formats a duration in its largest whole unit.
fn format_duration(seconds: i64) -> String {
    let units = [
        (86_400, "day"),
        (3600, "hour"),
        (60, "minute"),
        (1, "second"),
    ];
    let (count, unit) = units
        .into_iter()
        .find(|(length, _)| seconds % length == 0)
        .map_or((seconds, "second"), |(length, unit)| {
            (seconds / length, unit)
        });
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural}")
}
