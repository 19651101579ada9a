//! The guard of the console. Before a handler runs, the guard checks the signed-in browser, the
//! membership in the vault of the path, the role and the second factor, and for a form also that a
//! page of the console sent it.
//!
//! A person who is not a member gets the same answer as for a vault that does not exist.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use vault_store::StoreError;
use vault_store::records::{Document, When, Write};

use super::form_action::FormAction;
use super::outcome::{DONE, REFUSED, Unchanged};
use super::{Access, Cache, Handler, Outcome, PAGES, role_needed};
use crate::accounts::guard::{SignedInBrowser, prove_form, require_signed_in};
use crate::accounts::memberships::load_members;
use crate::accounts::second_factor::{self, Requirement};
use crate::accounts::session::redirect_to;
use crate::accounts::sign_in_page::{SignInPrompt, render_sign_in_page};
use crate::admin::principal::Principal;
use crate::app::{ActingUser, App};
use crate::budget::Rank;
use crate::budget::charge::Charge;
use crate::error::{ErrorCode, Fault, Refusal};
use crate::guard::{RefusedAct, audit_refusal};
use crate::http::{LogFields, client_address};
use crate::model::audit::Actor;
use crate::model::namespace::{Namespace, Status};
use crate::model::permit::Act;
use crate::model::session::spent_key;
use crate::model::user::{Role, Scope, User};
use crate::path_params::PathParams;
use crate::route::RouteRow;
use crate::spending::Spending;
use crate::web::browser::{
    Browser, CONSOLE_PATH, PostedForm, ReturnTo, SignedIn, read_posted_form,
};
use crate::web::csrf::{FORM_SECONDS, Purpose};
use crate::web::error_page::ErrorPage;
use crate::web::form::{Form, with_query};

/// A person whose session is valid, with the browser of the session. They need not be a member of
/// any vault.
pub(super) struct SignedInVisitor {
    pub(super) app: App,
    pub(super) browser: Browser,
    pub(super) signed_in: SignedIn,
}

impl SignedInVisitor {
    fn new(app: &App, proven: SignedInBrowser) -> Self {
        Self {
            app: app.clone(),
            browser: proven.browser,
            signed_in: proven.signed_in,
        }
    }
}

/// A page of a vault that the person may open. Only the guard creates one, so its handler checks no
/// rights again.
pub(super) struct ConsolePage {
    pub(super) visitor: SignedInVisitor,
    /// The person's user in the vault.
    pub(super) user: User,
    /// The vault, as it is at this request.
    pub(super) namespace: Namespace,
    pub(super) cache: Arc<Cache>,
    pub(super) query: Form,
    /// The path of the page, below the prefix of the public URL.
    pub(super) path: String,
    actor: Actor,
    params: PathParams,
}

/// A form that the person sent from a page of the console. Only the guard creates one.
pub(super) struct ConsoleForm {
    /// The page that the form is on.
    pub(super) page: ConsolePage,
    /// Decoded fields of the form; none is repeated, except for check boxes.
    pub(super) form: Form,
    /// Nonce of the form token; see [`ConsoleForm::single_use_write`].
    pub(super) nonce: String,
}

impl ConsolePage {
    pub(super) const fn app(&self) -> &App {
        &self.visitor.app
    }

    pub(super) fn param(&self, name: &str) -> &str {
        self.params.get(name)
    }

    /// Returns the key after which a list continues (`?after=`). A text that cannot be the key of a
    /// record is ignored, so the list begins at its start.
    pub(super) fn list_cursor(&self) -> Option<&str> {
        let is_key = |text: &&str| text.len() <= 128 && !text.chars().any(char::is_control);
        self.query.value("after").filter(is_key)
    }

    /// Returns the person in the vault, as the actor of a change.
    pub(super) const fn as_acting_user(&self) -> ActingUser<'_> {
        ActingUser {
            app: &self.visitor.app,
            namespace: &self.namespace,
            actor: &self.actor,
            account: &self.visitor.signed_in.account.id,
            consent: None,
        }
    }

    /// Creates a form token for the forms on this page; it is valid only at this path.
    pub(super) fn form_token(&self) -> String {
        let SignedInVisitor { app, browser, .. } = &self.visitor;
        browser.form_token(app, Purpose::Console, &self.path)
    }

    pub(super) fn may_open(&self, access: Access) -> bool {
        role_access(self.user.role) >= access
    }

    /// Whether the person has the right to change something.
    pub(super) const fn may_write(&self) -> bool {
        self.user.scopes.has(Scope::Write)
    }

    /// Returns the address of the page with this title in the navigation, if the person may open
    /// it.
    pub(super) fn href_of(&self, title: &str) -> Option<String> {
        let mut pages = PAGES.iter();
        let entry = pages.find(|(known, _, access)| *known == title && self.may_open(*access));
        entry.map(|(_, below, _)| self.address(below))
    }

    /// Returns the path of a page of this vault, below the prefix; `below` is the part after the
    /// path of the vault.
    pub(super) fn path_of(&self, below: &str) -> String {
        format!("{CONSOLE_PATH}/{}{below}", self.namespace.slug)
    }

    /// Returns the address of a page of this vault, with the prefix; `below` is the part after the
    /// path of the vault.
    pub(super) fn address(&self, below: &str) -> String {
        self.app().config.public_url.prefix().to_owned() + &self.path_of(below)
    }

    /// Returns the complete URL of a page of this vault, for a file from which a person pastes it
    /// into the browser; `below` is the part after the path of the vault.
    pub(super) fn url(&self, below: &str) -> String {
        self.app().config.public_url.origin().to_owned() + &self.address(below)
    }
}

impl ConsoleForm {
    /// Redirects to the page of the form, with a notice of what was done.
    pub(super) fn redirect_back(&self, outcome: Outcome) -> Response {
        let page = self.page.app().config.public_url.prefix().to_owned() + &self.page.path;
        redirect_with(&page, DONE, outcome.word())
    }

    /// Redirects to the choice of vaults, with a notice of what was done.
    pub(super) fn redirect_to_choice(&self, outcome: Outcome) -> Response {
        let prefix = self.page.app().config.public_url.prefix();
        redirect_with(&format!("{prefix}{CONSOLE_PATH}"), DONE, outcome.word())
    }

    /// Redirects to the page of this vault at `below`, with a notice of what was done.
    pub(super) fn redirect_to(&self, below: &str, outcome: Outcome) -> Response {
        redirect_with(&self.page.address(below), DONE, outcome.word())
    }

    /// Redirects to the page of the form, with a notice of why nothing was done.
    pub(super) fn redirect_refused(&self, why: Unchanged) -> Response {
        let page = self.page.app().config.public_url.prefix().to_owned() + &self.page.path;
        redirect_with(&page, REFUSED, why.word())
    }

    /// Returns the write that marks the form as used. If the form is sent again, this write fails
    /// the commit.
    pub(super) fn single_use_write(&self) -> Result<Write, StoreError> {
        let SignedInVisitor { app, browser, .. } = &self.page.visitor;
        // Stored for as long as the token is valid; later the form is refused for its age.
        let until = app.clock.now().plus_seconds(FORM_SECONDS);
        let empty = Document::from_value(&serde_json::Map::new())?;
        let key = spent_key(&browser.hash(), &self.nonce);
        Ok(Write::put_until(key, empty, When::Absent, until))
    }

    /// Returns the value of a field. Fails if it is missing, because a page of the console always
    /// sends it.
    pub(super) fn required_field(&self, name: &str) -> Result<&str, ErrorPage> {
        self.form.value(name).ok_or(ErrorPage::FormMalformed)
    }

    /// Returns the outcome of an act. If the act needs a confirmation, asks for it and returns the
    /// redirect to the page on which the person confirms it (inner `Err`).
    pub(super) async fn confirm_outcome<T>(
        &self,
        act: Act,
        outcome: Result<T, Refusal>,
    ) -> Result<Result<T, Response>, ErrorPage> {
        match outcome {
            Err(refusal) if refusal.code() == ErrorCode::ConfirmationNeeded => {
                let by = Principal::from_user(self.page.as_acting_user(), &self.page.user);
                let home = by.namespace.to_ref();
                let permit = by.as_requester(&home).ask(self.page.app(), &[act]).await?;
                let page = self.page.address(&format!("/confirm/{}", permit.id));
                // With 303, the browser does not send the form's data again. The permit contains
                // all of it.
                Ok(Err(redirect_to(StatusCode::SEE_OTHER, &page)))
            }
            outcome => Ok(Ok(outcome?)),
        }
    }

    /// Records the refusal of an act, and redirects to the page of this vault at `below`, with a
    /// notice of why.
    pub(super) async fn refuse_act(
        &self,
        below: &str,
        act: &Act,
        refusal: Refusal,
    ) -> Result<Response, ErrorPage> {
        let code = refusal.code();
        if code.row().fault == Fault::Service {
            return Err(refusal.into());
        }
        let ConsolePage {
            namespace, actor, ..
        } = &self.page;
        let app = self.page.app();
        let refused = RefusedAct {
            action: act.action(),
            target: act.user_id().or(act.machine_id()),
            is_named_by_service: true,
            code,
        };
        audit_refusal(app, Some(&namespace.to_ref()), actor, refused).await;
        let page = self.page.address(below);
        Ok(redirect_with(&page, REFUSED, code.row().code))
    }

    /// Redirects to the page of this vault at `below`, with a notice of why nothing was done.
    pub(super) fn redirect_unchanged(&self, below: &str, why: Unchanged) -> Response {
        redirect_with(&self.page.address(below), REFUSED, why.word())
    }
}

/// Redirects to a page, with one parameter that selects a notice.
fn redirect_with(page: &str, name: &str, word: &str) -> Response {
    redirect_to(StatusCode::SEE_OTHER, &with_query(page, &[(name, word)]))
}

const fn role_access(role: Role) -> Access {
    match role {
        Role::Owner => Access::SuspendedOwner,
        Role::Publisher => Access::Publisher,
        Role::Member => Access::Member,
    }
}

pub(super) async fn answer_request(
    app: App,
    cache: Arc<Cache>,
    row: &'static RouteRow<Handler>,
    request: Request,
) -> Response {
    let answered = match row.handler {
        Handler::Choose(handler) => serve_choice(&app, request, handler).await,
        Handler::Page(access, handler) => serve_page(&app, cache, access, request, handler).await,
        Handler::Form(access, handler) => {
            let form_row = FormRow {
                name: row.route.name,
                access,
            };
            serve_form(&app, cache, form_row, request, handler).await
        }
    };
    answered.unwrap_or_else(|stop| stop.render_error_page(&app))
}

/// Returns the page to return to after a sign-in: the address of the request, if it can be that of
/// a console page. A query that is too long is left out.
fn return_address<'u>(app: &App, uri: &'u Uri) -> ReturnTo<'u> {
    // Only addresses of the console are accepted, so the sign-in page cannot be made to lead
    // elsewhere.
    let prefix = app.config.public_url.prefix();
    let address = uri.path_and_query().map_or("", |address| address.as_str());
    address
        .strip_prefix(prefix)
        .and_then(ReturnTo::parse_console_address)
        .unwrap_or_else(|| ReturnTo::Console(return_path(app, uri)))
}

/// Returns the path of the request below the prefix, if it can be that of a console page, and
/// otherwise the path of the console.
fn return_path<'u>(app: &App, uri: &'u Uri) -> &'u str {
    let path = uri.path().strip_prefix(app.config.public_url.prefix());
    path.filter(|path| ReturnTo::parse_console_address(path).is_some())
        .unwrap_or(CONSOLE_PATH)
}

/// Answers `/console`: a signed-in person chooses a vault, and anybody else gets the sign-in page.
async fn serve_choice<F>(
    app: &App,
    request: Request,
    handler: impl FnOnce(SignedInVisitor, Form) -> F,
) -> Result<Response, ErrorPage>
where
    F: Future<Output = Result<Response, ErrorPage>>,
{
    let query = Form::parse(request.uri().query().unwrap_or_default());
    let onward = return_address(app, request.uri());
    match require_signed_in(app, request.headers(), onward).await? {
        Ok(proven) => handler(SignedInVisitor::new(app, proven), query).await,
        Err(sign_in) => Ok(sign_in),
    }
}

/// Shows a page of a vault to a member who may open it.
async fn serve_page<F>(
    app: &App,
    cache: Arc<Cache>,
    access: Access,
    request: Request,
    handler: impl FnOnce(ConsolePage) -> F,
) -> Result<Response, ErrorPage>
where
    F: Future<Output = Result<Response, ErrorPage>>,
{
    let (mut parts, _) = request.into_parts();
    let params = PathParams::from_parts(&mut parts).await;
    let onward = return_address(app, &parts.uri);
    let proven = match require_signed_in(app, &parts.headers, onward).await? {
        Ok(proven) => proven,
        Err(sign_in) => return Ok(sign_in),
    };
    // Checked only here, so that a browser without a sign-in gets the same answer at every path.
    let params = params.ok_or(ErrorPage::NotFound)?;
    let query = Form::parse(parts.uri.query().unwrap_or_default());
    query
        .check()
        .map_err(|_| ErrorCode::ParameterInvalid.into())
        .map_err(ErrorPage::Refused)?;
    let arrival = PendingPage {
        visitor: SignedInVisitor::new(app, proven),
        cache,
        source: client_address(&app.config, &parts.headers, &parts.extensions),
        path: return_path(app, &parts.uri).to_owned(),
        params,
        query,
    };
    let page = match arrival.open_page(access, onward).await? {
        Ok(page) => page,
        Err(refused) => return Ok(refused),
    };
    let (fields, charge) = (page.log_fields(), page.app().charge.clone());
    let answered = handler(page).await;
    let mut response = answered.map_err(|stop| prefer_budget_refusal(charge.as_deref(), stop))?;
    response.extensions_mut().insert(fields);
    Ok(response)
}

/// What the guard needs of the route of a form.
#[derive(Clone, Copy)]
struct FormRow {
    /// Name of the route, under which a forged form is recorded.
    name: &'static str,
    access: Access,
}

/// Runs the handler of a form, after all checks.
async fn serve_form<F>(
    app: &App,
    cache: Arc<Cache>,
    row: FormRow,
    request: Request,
    handler: impl FnOnce(ConsoleForm) -> F,
) -> Result<Response, ErrorPage>
where
    F: Future<Output = Result<Response, ErrorPage>>,
{
    let (mut parts, body) = request.into_parts();
    let params = PathParams::from_parts(&mut parts).await;
    let path = return_path(app, &parts.uri).to_owned();
    let onward = ReturnTo::parse_console_address(&path).ok_or(ErrorPage::NotFound)?;
    let posted = read_posted_form(app, Request::from_parts(parts, body)).await?;
    // Form token and session are checked before any record of the vault is read.
    let proof = prove_form(app, &posted, Purpose::Console, onward, row.name).await?;
    let (signed_in, nonce) = match proof {
        Ok(proof) => proof,
        Err(to_page) => return Ok(to_page),
    };
    let PostedForm {
        form,
        browser,
        source,
        ..
    } = posted;
    let arrival = PendingPage {
        visitor: SignedInVisitor {
            app: app.clone(),
            browser,
            signed_in,
        },
        cache,
        source,
        path: path.clone(),
        params: params.ok_or(ErrorPage::NotFound)?,
        query: Form::default(),
    };
    let page = match arrival.open_page(row.access, onward).await? {
        Ok(page) => page,
        Err(refused) => return Ok(refused),
    };
    let (fields, actor, home) = (
        page.log_fields(),
        page.actor.clone(),
        page.namespace.to_ref(),
    );
    let (charged, charge) = (page.app().clone(), page.app().charge.clone());
    let requested = FormAction::from_form(row.name, &form, &page.params);
    // A person without the right to write may open the page, so the form is refused here, and the
    // refusal is recorded.
    let answered = if page.may_write() {
        handler(ConsoleForm { page, form, nonce }).await
    } else {
        Err(Refusal::new(ErrorCode::InsufficientScope).into())
    };
    let mut response = match answered {
        Ok(response) => response,
        // A refusal that the person caused is recorded and shown on the form's page. A fault of the
        // service gets an error page.
        Err(ErrorPage::Refused(refusal)) if refusal.code().row().fault == Fault::Caller => {
            let code = refusal.code();
            let target = requested.target.as_deref();
            let refused = RefusedAct::sent(requested.action, target, code);
            audit_refusal(&charged, Some(&home), &actor, refused).await;
            if let Some(used_up) = charge.as_deref().and_then(Charge::refusal) {
                return Err(ErrorPage::Refused(used_up));
            }
            // What the form is about no longer exists, so there is no page for the notice.
            if code == ErrorCode::NotFound {
                return Err(ErrorPage::NotFound);
            }
            redirect_with(&onward.address(app), REFUSED, code.row().code)
        }
        Err(stop) => return Err(prefer_budget_refusal(charge.as_deref(), stop)),
    };
    response.extensions_mut().insert(fields);
    Ok(response)
}

/// Returns the error page of a handler that failed. If the request has used up its budget, the page
/// is about that.
fn prefer_budget_refusal(charge: Option<&Charge>, stop: ErrorPage) -> ErrorPage {
    let refusal = charge.and_then(Charge::refusal);
    refusal.map_or(stop, ErrorPage::Refused)
}

/// A request of a signed-in person whose vault has not been looked up yet.
struct PendingPage {
    visitor: SignedInVisitor,
    cache: Arc<Cache>,
    source: Option<IpAddr>,
    path: String,
    params: PathParams,
    query: Form,
}

impl PendingPage {
    /// Returns the page, for a member of the vault who may open it. Otherwise returns a page that
    /// says what is missing (inner `Err`), or fails.
    async fn open_page(
        self,
        access: Access,
        onward: ReturnTo<'_>,
    ) -> Result<Result<ConsolePage, Response>, ErrorPage> {
        let SignedInVisitor {
            app,
            browser,
            signed_in,
        } = &self.visitor;
        let account = &signed_in.account;
        let slug = self.params.get("slug");
        // A malformed slug, an unknown vault and a vault of other people all get the same answer.
        let memberships = load_members(app, account, Some(slug)).await?;
        let member = memberships.into_iter().next().ok_or(ErrorPage::NotFound)?;
        let exports = access == Access::SuspendedOwner && member.user.role == Role::Owner;
        if member.home.status == Status::Suspended && !account.operator && !exports {
            return Err(Refusal::new(ErrorCode::VaultSuspended).into());
        }
        match second_factor::check_role_requirement(app, signed_in, member.user.role) {
            Requirement::Met => {}
            Requirement::NotSetUp => return Ok(Err(second_factor::render_setup_due(app, false))),
            Requirement::Unconfirmed(from) => {
                return Ok(Err(second_factor::render_unconfirmed(app, from)));
            }
            // The person signed in before the second factor was set up, and must sign in again.
            Requirement::NotEntered => {
                let email = account.email.as_str();
                let prompt = SignInPrompt {
                    email,
                    problem: second_factor::passkey_needed(account),
                    ..SignInPrompt::default()
                };
                return Ok(Err(render_sign_in_page(app, browser, onward, prompt)));
            }
        }
        let rank = Rank::of(member.user.role, true);
        let spending = Spending::count_request(app, &member.home, &member.user.id, rank)
            .map_err(|full| full.refusal(app.clock.now()))?;
        let actor = Actor {
            user: member.user.id.clone(),
            client: None,
            source: self.source,
        };
        let page = ConsolePage {
            visitor: SignedInVisitor {
                app: spending.app,
                ..self.visitor
            },
            user: member.user,
            namespace: member.home,
            cache: self.cache,
            query: self.query,
            path: self.path,
            actor,
            params: self.params,
        };
        // Checked last: the answer names the missing role, and only members may learn that.
        Ok(if page.may_open(access) {
            Ok(page)
        } else {
            Err(role_needed(&page, access))
        })
    }
}

impl ConsolePage {
    fn log_fields(&self) -> LogFields {
        LogFields {
            slug: Some(self.namespace.slug.to_string()),
            caller: Some(self.user.id.clone()),
        }
    }
}
