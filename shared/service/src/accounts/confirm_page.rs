//! `/account/confirm/{id}`: the page on which a person confirms or declines dangerous acts that an
//! app asked for. The console shows the same page for its own forms.
//!
//! An *act* is a change that needs the person's confirmation each time, such as the deletion of a
//! vault. A *permit* is the stored request for it: one or more acts, with the person's decision.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use vault_store::StoreError;

use super::guard::{FormTask, SignedInBrowser, SignedInForm};
use super::permits::{FoundPermit, decide, find_permit, name_machine};
use super::second_factor::{self, Requirement};
use super::sign_in_page::{SignInPrompt, render_sign_in_page};
use crate::app::App;
use crate::model::Versioned;
use crate::model::client::{Client, Connection, client_key, connection_key};
use crate::model::permit::{Act, Permit, PermitState};
use crate::model::user::{NamespaceRef, Role, User, role_with_article, user_key};
use crate::web::browser::{Browser, CONFIRM_PATH, ReturnTo, SignedIn};
use crate::web::csrf::Purpose;
use crate::web::error_page::{ErrorPage, Explanation};
use crate::web::form::Form;
use crate::web::layout::{self, Frame, MessagePage, SignOut, format_minute};

/// An act, described to the person.
struct Sentence {
    /// What the act does, and to whom.
    what: String,
    effect: String,
}

struct AskingApp {
    /// Name that the app registered for itself.
    name: Option<String>,
    /// Time since which the vault, or else the service, knows the app.
    since: String,
}

#[derive(Template)]
#[template(path = "confirm.html")]
struct ConfirmPage {
    frame: Frame,
    sentences: Vec<Sentence>,
    slug: Option<String>,
    /// The app that asks; `None` if the console does.
    asked_by: Option<AskingApp>,
    asked_at: String,
    from: String,
    account: String,
    /// Address that the form is sent to.
    action: String,
    csrf: String,
    return_to: String,
    readiness: Readiness,
    sign_out: SignOut,
    /// Whether the person pressed "confirm" without ticking the box before.
    unticked: bool,
}

/// Whether the person may confirm now, and what is missing otherwise.
enum Readiness {
    Ready,
    /// The session has no credentials of the last five minutes.
    CredentialsOld,
    /// The identity provider signed the person in just now, but did not state that the person
    /// entered credentials.
    CredentialsUnstated,
    /// The account has no second factor, and needs one.
    SecondFactorAbsent,
    /// The person signed in without the second factor of the account.
    SecondFactorNotEntered,
    /// The second factor of the account was set up without credentials, so it counts from this time
    /// on only.
    SecondFactorNew(String),
}

impl Readiness {
    fn of_session(app: &App, signed_in: &SignedIn) -> Self {
        match require_second_factor(app, signed_in) {
            Requirement::NotSetUp => return Self::SecondFactorAbsent,
            Requirement::NotEntered => return Self::SecondFactorNotEntered,
            Requirement::Unconfirmed(from) => return Self::SecondFactorNew(format_minute(from)),
            Requirement::Met => {}
        }
        let (session, now) = (&signed_in.session, app.now());
        if session.has_fresh_credentials(now) {
            Self::Ready
        } else if session.is_recent_unstated(now) {
            Self::CredentialsUnstated
        } else {
            Self::CredentialsOld
        }
    }
}

/// Addresses and tokens of the form, which differ between the account page and the console.
pub struct ConfirmForm {
    /// Address that the form is sent to.
    pub action: String,
    /// Form token, bound to the page that contains the form.
    pub csrf: String,
    /// Address of the page that contains the form.
    pub return_to: String,
    /// Button that signs out, for a person who wants to use another account.
    pub sign_out: SignOut,
    /// Whether the person sent the form without ticking the box.
    pub unticked: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decision {
    /// The person confirms and has ticked the box.
    Confirm,
    /// The person confirms, but the box is not ticked: perhaps the second click of a double click.
    ConfirmUnticked,
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
    let path = format!("{CONFIRM_PATH}{id}");
    let onward = ReturnTo::parse_confirm_path(&path).ok_or_else(ended_page)?;
    let found_permit = find_app_permit(app, browser, signed_in, onward).await?;
    let form = create_form(app, browser, onward);
    render_confirmation(app, signed_in, &found_permit, form).await
}

fn create_form(app: &App, browser: &Browser, onward: ReturnTo<'_>) -> ConfirmForm {
    ConfirmForm {
        action: format!("{}/account/confirm", app.config.public_url.prefix()),
        csrf: browser.form_token(app, Purpose::Confirm, onward.form_subject()),
        return_to: onward.address(app),
        sign_out: sign_out_button(app, browser, onward),
        unticked: false,
    }
}

/// Returns the button that signs out and then leads back to the page `onward`.
pub fn sign_out_button(app: &App, browser: &Browser, onward: ReturnTo<'_>) -> SignOut {
    let return_to = onward.address(app);
    let csrf = browser.form_token(app, Purpose::Logout, &return_to);
    SignOut { csrf, return_to }
}

/// Finds the permit of an app that the page `onward` is about and that waits for this person. A
/// permit of the console is not found: the console decides it and performs the act.
async fn find_app_permit(
    app: &App,
    browser: &Browser,
    signed_in: &SignedIn,
    onward: ReturnTo<'_>,
) -> Result<FoundPermit, ErrorPage> {
    let id = onward.form_subject().rsplit('/').next().unwrap_or_default();
    let found_permit = find_permit(app, &signed_in.account.id, id).await?;
    let found_permit = found_permit.filter(|found_permit| found_permit.client.is_some());
    require_waiting(found_permit, signed_in, || {
        sign_out_button(app, browser, onward)
    })
}

/// The form with which a person confirms or declines the permit of an app.
pub const CONFIRM: FormTask = FormTask {
    purpose: Purpose::Confirm,
    onward: |app, form| match ReturnTo::from_form(app, form)? {
        page @ ReturnTo::Confirm(_) => Ok(page),
        _ => Err(ErrorPage::FormMalformed),
    },
    action: "confirmation.confirm",
};

/// `POST /account/confirm`: records the person's decision about a permit.
pub async fn decide_confirmation(app: &App, request: SignedInForm) -> Result<Response, ErrorPage> {
    let decision = parse_decision(&request.form)?;
    let onward = (CONFIRM.onward)(app, &request.form)?;
    let signed_in = &request.signed_in;
    let found_permit = find_app_permit(app, &request.browser, signed_in, onward).await?;
    let confirmed = decision != Decision::Decline;
    // Checked again, because the page may have been open for longer than credentials stay fresh.
    // Declining takes no credentials.
    if confirmed && let Some(stale) = sign_in_if_stale(app, &request.browser, signed_in, onward) {
        return Ok(stale);
    }
    if decision == Decision::ConfirmUnticked {
        let form = ConfirmForm {
            unticked: true,
            ..create_form(app, &request.browser, onward)
        };
        return render_confirmation(app, signed_in, &found_permit, form).await;
    }
    let account = &signed_in.account.id;
    let decided = decide(app, account, &found_permit, confirmed, request.source).await?;
    decided.ok_or_else(ended_page)?;
    let (title, line) = if confirmed {
        (
            "Confirmed",
            "Return to the program that asked. If it waits, it continues within a few seconds. If it has ended, run the same command again within five minutes.",
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

/// Parses the decision from the fields `decision` and `sure` (the box) of a form.
pub fn parse_decision(form: &Form) -> Result<Decision, ErrorPage> {
    match form.value("decision") {
        Some("confirm") if form.value("sure") == Some("yes") => Ok(Decision::Confirm),
        Some("confirm") => Ok(Decision::ConfirmUnticked),
        Some("decline") => Ok(Decision::Decline),
        _ => Err(ErrorPage::FormMalformed),
    }
}

/// Returns the permit if it still waits for the decision. Otherwise fails with an error page, which
/// offers to sign in with another account.
pub fn require_waiting(
    found_permit: Option<FoundPermit>,
    signed_in: &SignedIn,
    sign_out: impl FnOnce() -> SignOut,
) -> Result<FoundPermit, ErrorPage> {
    let found_permit =
        found_permit.filter(|found_permit| found_permit.permit.state == PermitState::Asked);
    found_permit.ok_or_else(|| {
        Explanation {
            detail: Some(format!(
                "You are signed in as {}. A confirmation opens only for the account whose app asked.",
                signed_in.account.email
            )),
            sign_out: Some(sign_out()),
            ..ended_explanation()
        }
        .into()
    })
}

/// Returns the error page for a permit that has ended, was decided, or never existed.
pub fn ended_page() -> ErrorPage {
    ended_explanation().into()
}

const fn ended_explanation() -> Explanation {
    Explanation {
        status: StatusCode::NOT_FOUND,
        title: "There is nothing to confirm here",
        lines: &[
            "This confirmation was decided before, has ended after ten minutes, or is for another account.",
            "Check the address. If an app still waits, run its command again: it gives you a new address.",
        ],
        detail: None,
        sign_out: None,
    }
}

/// Returns the page that asks for credentials, if those of the session are older than five minutes
/// or lack the second factor that the service requires of owners and operators.
pub fn sign_in_if_stale(
    app: &App,
    browser: &Browser,
    signed_in: &SignedIn,
    onward: ReturnTo<'_>,
) -> Option<Response> {
    match require_second_factor(app, signed_in) {
        Requirement::NotSetUp => return Some(second_factor::render_setup_due(app, false)),
        Requirement::Unconfirmed(from) => {
            return Some(second_factor::render_unconfirmed(app, from));
        }
        Requirement::Met if signed_in.session.has_fresh_credentials(app.now()) => return None,
        Requirement::Met | Requirement::NotEntered => {}
    }
    let prompt = SignInPrompt {
        email: signed_in.account.email.as_str(),
        problem: Some("To confirm, sign in again. Nothing has been changed."),
        ..SignInPrompt::default()
    };
    Some(render_sign_in_page(app, browser, onward, prompt))
}

/// Checks the second factor as for an owner: only owners and operators can be asked for an act.
fn require_second_factor(app: &App, signed_in: &SignedIn) -> Requirement {
    second_factor::check_role_requirement(app, signed_in, Role::Owner)
}

/// Renders the page of a permit that waits for this person.
pub async fn render_confirmation(
    app: &App,
    signed_in: &SignedIn,
    found_permit: &FoundPermit,
    form: ConfirmForm,
) -> Result<Response, ErrorPage> {
    let permit = &found_permit.permit;
    let mut sentences = Vec::new();
    for permitted in &permit.acts {
        sentences.push(describe_act(app, permit, &permitted.act).await?);
    }
    let page = ConfirmPage {
        frame: Frame::for_service(&app.config.public_url),
        sentences,
        slug: permit.namespace.as_ref().map(|home| home.slug.to_string()),
        asked_by: load_app(app, found_permit).await?,
        asked_at: format_minute(permit.asked_at),
        from: permit.from.clone(),
        account: signed_in.account.email.to_string(),
        action: form.action,
        csrf: form.csrf,
        return_to: form.return_to,
        readiness: Readiness::of_session(app, signed_in),
        sign_out: form.sign_out,
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
async fn load_app(app: &App, found_permit: &FoundPermit) -> Result<Option<AskingApp>, StoreError> {
    let Some(id) = &found_permit.client else {
        return Ok(None);
    };
    let client = app.get::<Client>(&client_key(id)).await?;
    let connection = match &found_permit.permit.namespace {
        Some(home) => app.get::<Connection>(&connection_key(&home.id, id)).await?,
        None => None,
    };
    let since = connection.map(|connection| connection.value.connected_at);
    let client = client.map(|client| client.value);
    let since = since.or_else(|| client.as_ref().map(|client| client.created_at));
    Ok(Some(AskingApp {
        name: client.and_then(|client| client.name),
        since: since.map_or_else(|| "at an unknown time".to_owned(), format_minute),
    }))
}

/// Loads the user of a vault whom an act is about, in the present state.
async fn find_user(
    app: &App,
    home: Option<&NamespaceRef>,
    id: &str,
) -> Result<Option<User>, StoreError> {
    let Some(home) = home else {
        return Ok(None);
    };
    let record = app.records.get_one(&user_key(&home.id, id)).await?;
    Ok(Versioned::<User>::read(record)?.map(|user| user.value))
}

/// Describes an act and its consequence, with the present names of its target.
async fn describe_act(app: &App, permit: &Permit, act: &Act) -> Result<Sentence, StoreError> {
    let home = permit.namespace.as_ref();
    let slug = home.map_or_else(String::new, |home| home.slug.to_string());
    let user = match act.user_id() {
        Some(id) => find_user(app, home, id).await?,
        None => None,
    };
    let machine = name_machine(app, home, act).await?;
    let target = match &user {
        Some(user) => user.email.as_str(),
        // The page shows the id of a user who was removed meanwhile.
        None => machine.as_deref().or(act.user_id()).unwrap_or_default(),
    };
    let now = user.as_ref().map_or_else(String::new, |user| {
        format!("They are {} now. ", role_with_article(user.role))
    });
    Ok(Sentence {
        what: act.describe(&slug, target),
        effect: describe_effect(act, &now),
    })
}

/// Describes the consequence of an act; `now` is a sentence about the present role of the user.
fn describe_effect(act: &Act, now: &str) -> String {
    match act {
        Act::DeleteVault {} => "All its machines and members lose access at once, its content is removed, and its name is never given out again. This cannot be undone.".to_owned(),
        Act::ResetPin {} => "The next release may come from anybody who can publish here, with other keys. Machines refuse those until they link the vault again.".to_owned(),
        // The scopes need no mention: an owner can grant the missing ones to themselves.
        Act::InviteOwner { .. } => role_effect(Role::Owner).to_owned(),
        Act::ChangeInvitation { role, .. } => {
            format!("They have not accepted yet. {}", role_effect(*role))
        }
        Act::ChangeRole { role, .. } => format!("{now}{}", role_effect(*role)),
        Act::RemoveUser { .. } => {
            format!("{now}They and their apps lose access at once. Machines that they linked stay.")
        }
        Act::CreateCode {
            uses,
            seconds,
            name,
        } => describe_code_effect(*uses, *seconds, name.as_deref()),
        Act::AdmitMachine { .. } => "It reads every skill that machines get. Its name is its own choice: compare the fingerprint with the one that the machine shows.".to_owned(),
        Act::DeleteAccount { .. } => {
            "The person is removed from every vault. This cannot be undone.".to_owned()
        }
        Act::ResetAccount { .. } => "Its password, second factor, passkeys and connections to an identity provider are removed. Whoever opens the new link controls this account, in every vault.".to_owned(),
        Act::GrantOperator { .. } => {
            "An operator manages every vault and every account of this service.".to_owned()
        }
        Act::RevokeOperator { .. } => "The account stays, with its vaults.".to_owned(),
    }
}

/// Describes how many machines an enrolment code admits, for how long, and under which name.
fn describe_code_effect(uses: u32, seconds: i64, name: Option<&str>) -> String {
    let lifetime = format_duration(seconds);
    let names = name.map_or_else(String::new, |name| {
        format!(" Only machines with the name {name} can use it.")
    });
    let admits = if uses == 1 {
        "a machine, which reads".to_owned()
    } else {
        format!("up to {uses} machines, which read")
    };
    format!(
        "For {lifetime}, whoever has the code admits {admits} every skill that machines get, without asking you.{names}"
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
