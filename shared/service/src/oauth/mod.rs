//! OAuth 2.1 for people, apps and agents: discovery, registration, sign-in and consent, tokens,
//! revocation.
//!
//! What decides is pure ([`authorize`], [`register`], [`token`], [`revoke`]): requests and records
//! in, an answer and conditional writes out. `endpoints` and `walk` read, ask, write and answer,
//! once `guard` has let a request through. Every secret is random, shown once, and stored by its
//! SHA-256.

mod account;
mod authenticator;
pub mod authorize;
pub mod bootstrap;
pub(crate) mod browser;
mod change;
mod clients;
mod cookie;
mod cors;
pub mod csrf;
pub mod document;
mod endpoints;
mod failure;
pub mod form;
mod front;
mod guard;
pub(crate) mod invitations;
mod invite;
pub(crate) mod members;
pub mod metadata;
mod new_vault;
pub(crate) mod noted;
pub(crate) mod pages;
pub mod password;
mod provider;
pub mod register;
pub mod resource;
mod returning;
pub mod revoke;
pub(crate) mod second_factor;
pub(crate) mod session;
pub mod sign_in;
pub(crate) mod signed_in;
mod since;
pub(crate) mod stop;
pub mod throttle;
pub mod token;
mod walk;
pub(crate) mod welcome;

pub use members::members as memberships_of;
pub use pages::STYLE as PAGE_STYLE;

use std::pin::Pin;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, MethodRouter, any, get, on, post};
use serde_json::Value;

use crate::app::App;
use crate::http::json_answer;
use crate::route::{Auth, Group, Route, Row, mount};
use browser::Onward;
use failure::Failure;
use guard::{Revocation, SignedInBrowser, SignedInForm, Task};
use stop::ErrorPage;

type Answering<E> = Pin<Box<dyn Future<Output = Result<Response, E>> + Send>>;

/// What answers a row. Each class of callers has its own kind, which is reached through the guard
/// of that class alone.
#[derive(Clone, Copy)]
enum Handler {
    /// A discovery document: every page may read it.
    Document(fn(&App) -> Value),
    /// An endpoint for programs.
    Endpoint(fn(App, Request) -> Answering<Failure>),
    /// The endpoint for clients that name themselves and for bearers.
    Revocation(fn(App, Revocation) -> Answering<Failure>),
    /// A page for people.
    Page(fn(App, Request) -> Answering<ErrorPage>),
    /// The root of the service: a page for browsers, and nothing for programs.
    Front,
    /// A page with a token in its path.
    PageOf(fn(App, String, Request) -> Answering<ErrorPage>),
    /// A page for signed-in people.
    SignedIn(
        Onward<'static>,
        fn(App, SignedInBrowser) -> Answering<ErrorPage>,
    ),
    /// A form of signed-in people.
    SignedInForm(Task, fn(App, SignedInForm) -> Answering<ErrorPage>),
}

impl Handler {
    /// The class of the row that it answers.
    const fn auth(self) -> Auth {
        match self {
            Self::Document(_)
            | Self::Endpoint(_)
            | Self::Front
            | Self::Page(_)
            | Self::PageOf(_) => Auth::Public,
            Self::Revocation(_) => Auth::ClientOrBearer,
            Self::SignedIn(..) | Self::SignedInForm(..) => Auth::Session(None),
        }
    }

    fn methods(self, method: MethodFilter) -> MethodRouter<App> {
        match self {
            Self::Document(document) => get(move |State(app): State<App>| async move {
                cors::open(json_answer(StatusCode::OK, &document(&app)))
            })
            .options(async || cors::discovery_preflight()),
            Self::Endpoint(answer) => endpoint(answer),
            Self::Revocation(answer) => endpoint(move |app, request| async move {
                let proven = guard::client_or_bearer(&app, request).await?;
                answer(app, proven).await
            }),
            Self::Page(answer) => on(method, move |State(app): State<App>, request: Request| {
                page(app.clone(), answer(app, request))
            }),
            Self::Front => any(|State(app): State<App>, request: Request| async move {
                if welcome::opens_page(request.method(), request.headers()) {
                    page(app.clone(), Box::pin(front::show(&app, request.headers()))).await
                } else {
                    welcome::not_found(&app, &request).into_response()
                }
            }),
            Self::PageOf(answer) => on(
                method,
                move |State(app): State<App>, Path(token): Path<String>, request: Request| {
                    page(app.clone(), answer(app, token, request))
                },
            ),
            Self::SignedIn(onward, answer) => {
                get(move |State(app): State<App>, headers: HeaderMap| {
                    page(app.clone(), async move {
                        match guard::signed_in(&app, &headers, onward).await? {
                            Ok(proven) => answer(app, proven).await,
                            Err(page) => Ok(page),
                        }
                    })
                })
            }
            Self::SignedInForm(task, answer) => {
                post(move |State(app): State<App>, request: Request| {
                    page(app.clone(), async move {
                        match guard::signed_in_form(&app, task, request).await? {
                            Ok(proven) => answer(app, proven).await,
                            Err(way) => Ok(way),
                        }
                    })
                })
            }
        }
    }
}

/// An endpoint that the pages of allowed origins may call.
fn endpoint<F>(
    answer: impl Fn(App, Request) -> F + Clone + Send + Sync + 'static,
) -> MethodRouter<App>
where
    F: Future<Output = Result<Response, Failure>> + Send,
{
    post(move |State(app): State<App>, request: Request| async move {
        let headers = request.headers().clone();
        let answered = answer(app.clone(), request).await;
        let response = answered.unwrap_or_else(|failure| failure.answer(&app));
        cors::limited(&app, &headers, response)
    })
    .options(|State(app): State<App>, headers: HeaderMap| async move {
        cors::endpoint_preflight(&app, &headers)
    })
}

async fn page(app: App, answer: impl Future<Output = Result<Response, ErrorPage>>) -> Response {
    answer.await.unwrap_or_else(|stop| stop.answer(&app))
}

const fn row(
    name: &'static str,
    method: &'static str,
    path: &'static str,
    handler: Handler,
) -> Row<Handler> {
    Row {
        route: Route {
            name,
            method,
            path,
            auth: handler.auth(),
            group: Group::OAuth,
            at_root: matches!(handler, Handler::Document(_)),
        },
        handler,
    }
}

/// A handler of a row, from a function over the app and what the guard proved.
macro_rules! answer {
    ($handler:path) => {
        |app, proven| Box::pin(async move { $handler(&app, proven).await })
    };
}

/// A handler of a row with a token in its path.
macro_rules! answer_of {
    ($handler:path) => {
        |app, token, request| Box::pin(async move { $handler(&app, &token, request).await })
    };
}

macro_rules! rows {
    ($($name:literal $method:ident $path:literal $handler:expr;)*) => {
        const ROWS: &[Row<Handler>] = &[$(
            row($name, stringify!($method), $path, $handler),
        )*];
    };
}

rows! {
    "oauth.metadata" GET "/.well-known/oauth-authorization-server" Handler::Document(endpoints::authorization_server);
    "oauth.openid" GET "/.well-known/openid-configuration" Handler::Document(endpoints::authorization_server);
    "oauth.resource" GET "/.well-known/oauth-protected-resource" Handler::Document(endpoints::protected_resource);
    "oauth.resource_mcp" GET "/.well-known/oauth-protected-resource/mcp" Handler::Document(endpoints::protected_mcp);
    "client.register" POST "/oauth/register" Handler::Endpoint(answer!(endpoints::register));
    "oauth.authorize" GET "/oauth/authorize" Handler::Page(answer!(walk::authorize));
    "oauth.login" POST "/oauth/login" Handler::Page(answer!(walk::login));
    "oidc.start" POST "/oauth/oidc/start" Handler::Page(answer!(provider::start));
    "oidc.callback" GET "/oauth/oidc/callback" Handler::Page(answer!(provider::callback));
    "oidc.connect" POST "/oauth/oidc/connect" Handler::Page(answer!(provider::connect::connect));
    "oauth.consent" POST "/oauth/consent" Handler::SignedInForm(walk::CONSENT, answer!(walk::consent));
    // Ends the session of the browser that sends it, whatever that session still is.
    "oauth.logout" POST "/oauth/logout" Handler::Page(answer!(walk::logout));
    "password.show" GET "/oauth/password" Handler::SignedIn(Onward::Password, answer!(change::show));
    "password.change" POST "/oauth/password" Handler::SignedInForm(change::CHANGE, answer!(change::change));
    "account.show" GET "/account" Handler::SignedIn(Onward::Account, answer!(account::show));
    "membership.answer" POST "/account/invitations" Handler::SignedInForm(invitations::ANSWER, answer!(invitations::answer));
    "membership.leave" POST "/account/vaults" Handler::SignedInForm(account::LEAVE, answer!(account::leave));
    "app.end" POST "/account/apps" Handler::SignedInForm(signed_in::END_APP, answer!(signed_in::end_app));
    "session.end" POST "/account/sessions" Handler::SignedInForm(signed_in::END_SESSION, answer!(signed_in::end_session));
    "session.end-all" POST "/account/sign-out" Handler::SignedInForm(signed_in::END_ALL, answer!(signed_in::end_all));
    "sign-in.end" POST "/account/sign-ins" Handler::SignedInForm(provider::connected::DISCONNECT, answer!(provider::connected::disconnect));
    "oauth.second-factor" POST "/oauth/second-factor" Handler::Page(answer!(second_factor::sign_in));
    "second-factor.show" GET "/account/second-factor" Handler::SignedIn(Onward::SecondFactor, answer!(authenticator::show));
    "second-factor.change" POST "/account/second-factor" Handler::SignedInForm(authenticator::CHANGE, answer!(authenticator::change));
    "vault.new" GET "/account/new-vault" Handler::SignedIn(Onward::NewVault, answer!(new_vault::show));
    "vault.sign-up" POST "/account/new-vault" Handler::SignedInForm(new_vault::SIGN_UP, answer!(new_vault::sign_up));
    "vault.rename" POST "/account/new-vault/name" Handler::SignedInForm(new_vault::RENAME, answer!(new_vault::rename));
    "front.show" GET "/" Handler::Front;
    "token.grant" POST "/oauth/token" Handler::Endpoint(answer!(endpoints::token));
    "token.revoke" POST "/oauth/revoke" Handler::Revocation(answer!(endpoints::revoke));
    "invite.show" GET "/oauth/invite/{token}" Handler::PageOf(answer_of!(invite::show));
    "invite.accept" POST "/oauth/invite/{token}" Handler::PageOf(answer_of!(invite::accept));
}

/// The routes of this group.
pub(crate) fn routes() -> Vec<&'static Route> {
    crate::route::routes(ROWS)
}

/// What answers them, below `prefix`.
pub(crate) fn router(prefix: &str) -> Router<App> {
    ROWS.iter().fold(Router::new(), |router, row| {
        mount(
            router,
            prefix,
            &row.route,
            &row.handler.methods(row.route.method_filter()),
        )
    })
}
