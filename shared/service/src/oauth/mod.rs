//! OAuth 2.1 for people, apps and agents: discovery, registration, sign-in and consent, tokens, revocation.
//!
//! What decides is pure ([`authorize`], [`register`], [`token`], [`revoke`]): requests and records in, an answer and conditional writes out.
//! `endpoints` and `walk` read, ask, write and answer, once `guard` has let a request through. Every secret is random, shown once, and stored by its SHA-256.

pub mod authorize;
pub mod bootstrap;
mod browser;
mod change;
mod clients;
mod cors;
pub mod csrf;
pub mod document;
mod endpoints;
mod failure;
pub mod form;
mod guard;
mod invite;
pub mod metadata;
mod noted;
pub(crate) mod pages;
pub mod password;
pub mod register;
pub mod resource;
pub mod revoke;
mod session;
pub mod sign_in;
mod stop;
pub mod throttle;
pub mod token;
mod walk;

pub use pages::STYLE as PAGE_STYLE;
pub use walk::users as users_of_account;

use std::pin::Pin;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, get, on, post};
use serde_json::Value;

use crate::app::App;
use crate::http::json_answer;
use crate::route::{Auth, Group, Route, Row, mount};
use browser::{Onward, authorize_query};
use csrf::Purpose;
use failure::Failure;
use guard::{Revocation, SignedInBrowser, SignedInForm, Task};
use stop::Stop;

type Answering<E> = Pin<Box<dyn Future<Output = Result<Response, E>> + Send>>;

/// What answers a row. Each class of callers has its own kind, which is reached through the guard of that class alone.
#[derive(Clone, Copy)]
enum Handler {
    /// A discovery document: every page may read it.
    Document(fn(&App) -> Value),
    /// An endpoint for programs.
    Endpoint(fn(App, Request) -> Answering<Failure>),
    /// The endpoint for clients that name themselves and for bearers.
    Revocation(fn(App, Revocation) -> Answering<Failure>),
    /// A page for people.
    Page(MethodFilter, fn(App, Request) -> Answering<Stop>),
    /// A page with a token in its path.
    PageOf(MethodFilter, fn(App, String, Request) -> Answering<Stop>),
    /// A page for signed-in people.
    SignedIn(fn(&App, &SignedInBrowser) -> Response),
    /// A form of signed-in people.
    SignedInForm(Task, fn(App, SignedInForm) -> Answering<Stop>),
}

impl Handler {
    /// The class of the row that it answers.
    const fn auth(self) -> Auth {
        match self {
            Self::Document(_) | Self::Endpoint(_) | Self::Page(..) | Self::PageOf(..) => {
                Auth::Public
            }
            Self::Revocation(_) => Auth::ClientOrBearer,
            Self::SignedIn(_) | Self::SignedInForm(..) => Auth::Session,
        }
    }

    fn methods(self) -> MethodRouter<App> {
        match self {
            Self::Document(document) => get(move |State(app): State<App>| async move {
                cors::open(json_answer(StatusCode::OK, &document(&app)))
            })
            .options(async || cors::discovery_preflight()),
            Self::Endpoint(answer) => endpoint(move |app, request| answer(app, request)),
            Self::Revocation(answer) => endpoint(move |app, request| async move {
                let proven = guard::client_or_bearer(&app, request).await?;
                answer(app, proven).await
            }),
            Self::Page(method, answer) => {
                on(method, move |State(app): State<App>, request: Request| {
                    page(app.clone(), answer(app, request))
                })
            }
            Self::PageOf(method, answer) => on(
                method,
                move |State(app): State<App>, Path(token): Path<String>, request: Request| {
                    page(app.clone(), answer(app, token, request))
                },
            ),
            Self::SignedIn(answer) => get(move |State(app): State<App>, headers: HeaderMap| {
                page(app.clone(), async move {
                    let proven = guard::signed_in(&app, &headers, Onward::Password).await?;
                    Ok(proven.map_or_else(|page| page, |proven| answer(&app, &proven)))
                })
            }),
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

async fn page(app: App, answer: impl Future<Output = Result<Response, Stop>>) -> Response {
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

const ROWS: &[Row<Handler>] = &[
    row(
        "oauth.metadata",
        "GET",
        "/.well-known/oauth-authorization-server",
        Handler::Document(endpoints::authorization_server),
    ),
    row(
        "oauth.openid",
        "GET",
        "/.well-known/openid-configuration",
        Handler::Document(endpoints::authorization_server),
    ),
    row(
        "oauth.resource",
        "GET",
        "/.well-known/oauth-protected-resource",
        Handler::Document(endpoints::protected_resource),
    ),
    row(
        "oauth.resource_mcp",
        "GET",
        "/.well-known/oauth-protected-resource/mcp",
        Handler::Document(endpoints::protected_mcp),
    ),
    row(
        "client.register",
        "POST",
        "/oauth/register",
        Handler::Endpoint(|app, request| {
            Box::pin(async move { endpoints::register(&app, request).await })
        }),
    ),
    row(
        "oauth.authorize",
        "GET",
        "/oauth/authorize",
        Handler::Page(MethodFilter::GET, |app, request| {
            Box::pin(async move { walk::authorize(&app, request).await })
        }),
    ),
    row(
        "oauth.login",
        "POST",
        "/oauth/login",
        Handler::Page(MethodFilter::POST, |app, request| {
            Box::pin(async move { walk::login(&app, request).await })
        }),
    ),
    row(
        "oauth.consent",
        "POST",
        "/oauth/consent",
        Handler::SignedInForm(
            Task {
                purpose: Purpose::Consent,
                onward: |app, form| authorize_query(app, form).map(Onward::Authorize),
                action: "oauth.consent",
            },
            |app, form| Box::pin(async move { walk::consent(&app, form).await }),
        ),
    ),
    // Ends the session of the browser that sends it, whatever that session still is.
    row(
        "oauth.logout",
        "POST",
        "/oauth/logout",
        Handler::Page(MethodFilter::POST, |app, request| {
            Box::pin(async move { walk::logout(&app, request).await })
        }),
    ),
    row(
        "password.show",
        "GET",
        "/oauth/password",
        Handler::SignedIn(change::show),
    ),
    row(
        change::ACTION,
        "POST",
        "/oauth/password",
        Handler::SignedInForm(
            Task {
                purpose: Purpose::Password,
                onward: |_, _| Ok(Onward::Password),
                action: change::ACTION,
            },
            |app, form| Box::pin(async move { change::change(&app, form).await }),
        ),
    ),
    row(
        "token.grant",
        "POST",
        "/oauth/token",
        Handler::Endpoint(|app, request| {
            Box::pin(async move { endpoints::token(&app, request).await })
        }),
    ),
    row(
        "token.revoke",
        "POST",
        "/oauth/revoke",
        Handler::Revocation(|app, request| {
            Box::pin(async move { endpoints::revoke(&app, request).await })
        }),
    ),
    row(
        "invite.show",
        "GET",
        "/oauth/invite/{token}",
        Handler::PageOf(MethodFilter::GET, |app, token, request| {
            Box::pin(async move { invite::show(&app, &token, request).await })
        }),
    ),
    row(
        "invite.accept",
        "POST",
        "/oauth/invite/{token}",
        Handler::PageOf(MethodFilter::POST, |app, token, request| {
            Box::pin(async move { invite::accept(&app, &token, request).await })
        }),
    ),
];

/// The routes of this group.
pub(crate) fn routes() -> Vec<&'static Route> {
    crate::route::routes(ROWS)
}

/// What answers them, below `prefix`.
pub(crate) fn router(prefix: &str) -> Router<App> {
    ROWS.iter().fold(Router::new(), |router, row| {
        mount(router, prefix, &row.route, row.handler.methods())
    })
}
