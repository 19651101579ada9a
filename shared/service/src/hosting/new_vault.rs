//! `/account/new-vault`: a signed-in person chooses the name of a hosted vault, a plan and starter
//! skills. The home page shows the progress from then on.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use vault_format::name::Slug;

use super::home_page;
use super::provisioning::{self, SignUpChoice};
use crate::accounts::guard::{FormTask, SignedInBrowser, SignedInForm};
use crate::accounts::session::redirect_to;
use crate::app::App;
use crate::error::ErrorCode;
use crate::model::audit::Actor;
use crate::model::provisioning::Reference;
use crate::starter;
use crate::web::browser::{Browser, NEW_VAULT_PATH, ReturnTo, SignedIn};
use crate::web::csrf::Purpose;
use crate::web::error_page::ErrorPage;
use crate::web::layout::{self, Frame, SignOut};

struct PlanOption {
    name: String,
    chosen: bool,
}

/// A starter skill, which becomes a draft in the new vault if it is ticked.
struct StarterOption {
    name: &'static str,
    text: &'static str,
    chosen: bool,
}

#[derive(Template)]
#[template(path = "new_vault.html")]
struct NewVaultPage {
    frame: Frame,
    email: String,
    problem: Option<String>,
    csrf: String,
    /// Address of a vault without its name, shown before the input field.
    address: String,
    slug: String,
    plans: Vec<PlanOption>,
    starters: Vec<StarterOption>,
    sign_out: SignOut,
}

/// What the person has entered, so that a refused form is shown filled in.
#[derive(Default)]
struct EnteredValues {
    slug: String,
    plan: Option<String>,
    /// Chosen starter skills; `None` before the form was sent, which means all of them.
    starters: Option<Vec<String>>,
}

pub async fn show_new_vault(app: &App, request: SignedInBrowser) -> Result<Response, ErrorPage> {
    if !app.config.hosting.sign_up {
        return Err(ErrorPage::NoSignUp);
    }
    let viewer = (&request.browser, &request.signed_in);
    Ok(render_page(app, viewer, EnteredValues::default(), None))
}

/// Renders the page with the entered values and, after a refusal, its status and the problem.
fn render_page(
    app: &App,
    (browser, signed_in): (&Browser, &SignedIn),
    filled: EnteredValues,
    refusal: Option<(StatusCode, String)>,
) -> Response {
    let (status, problem) = match refusal {
        Some((status, problem)) => (status, Some(problem)),
        None => (StatusCode::OK, None),
    };
    let plans = app.config.hosting.plans.iter().enumerate();
    let plans = plans.map(|(at, plan)| PlanOption {
        chosen: filled
            .plan
            .as_ref()
            .map_or(at == 0, |chosen| *chosen == plan.name),
        name: plan.name.clone(),
    });
    let is_chosen = |name: &str| {
        let chosen = filled.starters.as_ref();
        chosen.is_none_or(|chosen| chosen.iter().any(|chosen| chosen == name))
    };
    let starters = starter::skill_names()
        .into_iter()
        .map(|name| StarterOption {
            name,
            text: starter::skill_purpose(name).unwrap_or_default(),
            chosen: is_chosen(name),
        });
    let return_to = ReturnTo::NewVault.address(app);
    let page = NewVaultPage {
        frame: Frame::for_service(&app.config.public_url),
        email: signed_in.account.email.to_string(),
        problem,
        csrf: browser.form_token(app, Purpose::NewVault, NEW_VAULT_PATH),
        address: app.config.public_url.join("/v/"),
        plans: plans.collect(),
        starters: starters.collect(),
        slug: filled.slug,
        sign_out: SignOut {
            csrf: browser.form_token(app, Purpose::Logout, &return_to),
            return_to,
        },
    };
    layout::render_page(status, &page, None)
}

pub const SIGN_UP: FormTask = new_vault_task("vault.sign-up");
/// The form that gives another name to a sign-up whose name was taken.
pub const RENAME: FormTask = new_vault_task("vault.rename");

const fn new_vault_task(action: &'static str) -> FormTask {
    FormTask {
        purpose: Purpose::NewVault,
        onward: |_, _| Ok(ReturnTo::NewVault),
        action,
    }
}

/// `POST /account/new-vault`: reserves the name. If vaults are free here, also sets the vault up.
pub async fn sign_up(app: &App, request: SignedInForm) -> Result<Response, ErrorPage> {
    let hosting = &app.config.hosting;
    if !hosting.sign_up {
        return Err(ErrorPage::NoSignUp);
    }
    let form = &request.form;
    let names = starter::skill_names();
    let chosen = names.into_iter();
    let chosen: Vec<_> = chosen
        .filter(|name| form.value(&format!("skill-{name}")).is_some())
        .map(str::to_owned)
        .collect();
    let plan = form.value("plan").map(str::to_owned);
    // The page offers only plans that are for sale, so any other value is not from the page.
    let is_plan = match &plan {
        None => hosting.plans.is_empty(),
        Some(plan) => hosting.plan(plan).is_some(),
    };
    if !is_plan {
        return Err(ErrorPage::FormMalformed);
    }
    let slug = form.value("slug").unwrap_or_default().trim().to_owned();
    let refused = |status, problem| {
        let filled = EnteredValues {
            // No name is longer, and the page must not repeat input of any size.
            slug: slug.chars().take(63).collect(),
            plan: plan.clone(),
            starters: Some(chosen.clone()),
        };
        let viewer = (&request.browser, &request.signed_in);
        Ok(render_page(app, viewer, filled, Some((status, problem))))
    };
    let name = match parse_name(&slug) {
        Ok(name) => name,
        Err(problem) => return refused(StatusCode::UNPROCESSABLE_ENTITY, problem),
    };
    let choice = SignUpChoice {
        slug: name,
        plan: plan.clone(),
        starter_skills: chosen.iter().filter_map(|name| name.parse().ok()).collect(),
    };
    let (account, actor) = (&request.signed_in.account, to_actor(&request));
    match provisioning::sign_up(app, account, &choice, &actor).await? {
        Err(why) => refused(StatusCode::CONFLICT, why.to_string()),
        Ok(reference) => {
            // A free vault is set up at once; a paid one waits for the event that confirms the
            // payment.
            provisioning::advance_sign_up(app, &reference).await?;
            Ok(redirect_to(
                StatusCode::SEE_OTHER,
                &home_page::home_path(app),
            ))
        }
    }
}

/// `POST /account/new-vault/name`: changes the name of a sign-up that has no vault yet.
pub async fn rename_sign_up(app: &App, request: SignedInForm) -> Result<Response, ErrorPage> {
    let form = &request.form;
    let reference = form.value("reference").and_then(Reference::parse);
    let reference = reference.ok_or(ErrorPage::FormMalformed)?;
    let who = (&request.browser, &request.signed_in);
    let slug = match parse_name(form.value("slug").unwrap_or_default().trim()) {
        Ok(slug) => slug,
        Err(problem) => {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            return home_page::render_home(app, who, status, Some(problem)).await;
        }
    };
    let (account, actor) = (&request.signed_in.account, to_actor(&request));
    match provisioning::rename_sign_up(app, account, &reference, &slug, &actor).await? {
        Err(why) => {
            home_page::render_home(app, who, StatusCode::CONFLICT, Some(why.to_string())).await
        }
        Ok(()) => {
            provisioning::advance_sign_up(app, &reference).await?;
            Ok(redirect_to(
                StatusCode::SEE_OTHER,
                &home_page::home_path(app),
            ))
        }
    }
}

/// Parses the name of a new vault; fails with a sentence for the person.
fn parse_name(text: &str) -> Result<Slug, String> {
    let sentence = |code: ErrorCode| code.row().detail.to_owned();
    let slug: Slug = text.parse().map_err(|_| sentence(ErrorCode::SlugInvalid))?;
    // A vault called `admin` or `www` would look like a part of the service.
    if slug.is_reserved() {
        return Err("The service keeps this name for itself. Choose another one.".to_owned());
    }
    Ok(slug)
}

fn to_actor(request: &SignedInForm) -> Actor {
    Actor {
        user: request.signed_in.account.id.to_string(),
        client: None,
        source: request.source,
    }
}
