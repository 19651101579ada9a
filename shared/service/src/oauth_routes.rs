//! Routes of the group `oauth`: browser pages for sign-in, accounts and vaults for sale, and the
//! OAuth endpoints for programs. Each row names its handler and the proof that its caller must
//! give.

use std::pin::Pin;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, MethodRouter, any, get, on, post};
use serde_json::Value;

use crate::accounts::guard::{self, SignedInBrowser, SignedInForm, Task};
use crate::accounts::{
    account_page, apps_and_sessions, invitations, invite_link, password_page, provider,
    second_factor, second_factor_page,
};
use crate::app::App;
use crate::hosting::{home_page, new_vault};
use crate::http::json_answer;
use crate::oauth::error_response::Failure;
use crate::oauth::guard::{Revocation, client_or_bearer};
use crate::oauth::{authorization, endpoints};
use crate::route::{self, Auth, rows};
use crate::web::browser::Onward;
use crate::web::error_page::ErrorPage;
use crate::web::{cors, welcome};

type Answering<E> = Pin<Box<dyn Future<Output = Result<Response, E>> + Send>>;

/// Handler of a row. Each class of callers has its own variant, whose handlers are reached only
/// through the guard of that class.
#[derive(Clone, Copy)]
enum Handler {
    /// A discovery document, which pages of every origin may read.
    Document(fn(&App) -> Value),
    /// An endpoint that programs call.
    Endpoint(fn(App, Request) -> Answering<Failure>),
    /// The revocation endpoint, for clients that name themselves and for bearers.
    Revocation(fn(App, Revocation) -> Answering<Failure>),
    /// A page or form that needs no completed sign-in.
    Page(fn(App, Request) -> Answering<ErrorPage>),
    /// The root of the service: a page for browsers, 404 for programs.
    Front,
    /// A page with a secret token in its path.
    PageOf(fn(App, String, Request) -> Answering<ErrorPage>),
    /// A page for signed-in people. Other browsers get the sign-in page, which leads to this page.
    SignedIn(
        Onward<'static>,
        fn(App, SignedInBrowser) -> Answering<ErrorPage>,
    ),
    /// A form that only a signed-in browser may send.
    SignedInForm(Task, fn(App, SignedInForm) -> Answering<ErrorPage>),
}

impl Handler {
    /// Returns the authentication class of the row.
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
            // Clients of every origin read discovery first, so the answer and its preflight are
            // open to all.
            Self::Document(document) => get(move |State(app): State<App>| async move {
                cors::open(json_answer(StatusCode::OK, &document(&app)))
            })
            .options(async || cors::discovery_preflight()),
            Self::Endpoint(answer) => endpoint(answer),
            Self::Revocation(answer) => endpoint(move |app, request| async move {
                let proven = client_or_bearer(&app, request).await?;
                answer(app, proven).await
            }),
            Self::Page(answer) => on(method, move |State(app): State<App>, request: Request| {
                page(app.clone(), answer(app, request))
            }),
            // Every method: a client that posts to the root looks for the MCP endpoint, and gets
            // its address with the 404.
            Self::Front => any(|State(app): State<App>, request: Request| async move {
                if welcome::opens_page(request.method(), request.headers()) {
                    page(
                        app.clone(),
                        Box::pin(home_page::show(&app, request.headers())),
                    )
                    .await
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
                    // The guard runs inside `page`, so that its errors become error pages like
                    // those of handlers.
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

/// Routes POST and the CORS preflight of an endpoint that pages of allowed origins may call.
fn endpoint<F>(
    answer: impl Fn(App, Request) -> F + Clone + Send + Sync + 'static,
) -> MethodRouter<App>
where
    F: Future<Output = Result<Response, Failure>> + Send,
{
    post(move |State(app): State<App>, request: Request| async move {
        // Copied because the handler consumes the request. An error needs the CORS headers too, or
        // a page could not read why it failed.
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

macro_rules! handler {
    (Document $document:path) => {
        Handler::Document($document)
    };
    (Front $show:path) => {
        Handler::Front
    };
    (PageOf $handler:path) => {
        Handler::PageOf(|app, token, request| {
            Box::pin(async move { $handler(&app, &token, request).await })
        })
    };
    ($class:ident $(($with:expr))? $handler:path) => {
        Handler::$class($($with,)? |app, proven| {
            Box::pin(async move { $handler(&app, proven).await })
        })
    };
}

rows! { OAuth:
    "oauth.metadata" GET "/.well-known/oauth-authorization-server" Document endpoints::authorization_server;
    "oauth.openid" GET "/.well-known/openid-configuration" Document endpoints::authorization_server;
    "oauth.resource" GET "/.well-known/oauth-protected-resource" Document endpoints::protected_resource;
    "oauth.resource_mcp" GET "/.well-known/oauth-protected-resource/mcp" Document endpoints::protected_mcp;
    "client.register" POST "/oauth/register" Endpoint endpoints::register;
    "oauth.authorize" GET "/oauth/authorize" Page authorization::authorize;
    "oauth.login" POST "/oauth/login" Page authorization::login;
    "oidc.start" POST "/oauth/oidc/start" Page authorization::start_at_provider;
    "oidc.callback" GET "/oauth/oidc/callback" Page provider::callback;
    "oidc.connect" POST "/oauth/oidc/connect" Page provider::connect::connect;
    "oauth.consent" POST "/oauth/consent" SignedInForm(authorization::CONSENT) authorization::consent;
    // Not `SignedInForm`: a browser must be able to sign out while its session is expired or waits
    // for a second factor.
    "oauth.logout" POST "/oauth/logout" Page authorization::logout;
    "password.show" GET "/oauth/password" SignedIn(Onward::Password) password_page::show;
    "password.change" POST "/oauth/password" SignedInForm(password_page::CHANGE) password_page::change;
    "account.show" GET "/account" SignedIn(Onward::Account) account_page::show;
    "membership.answer" POST "/account/invitations" SignedInForm(invitations::ANSWER) invitations::answer;
    "membership.leave" POST "/account/vaults" SignedInForm(account_page::LEAVE) account_page::leave;
    "app.end" POST "/account/apps" SignedInForm(apps_and_sessions::END_APP) apps_and_sessions::end_app;
    "session.end" POST "/account/sessions" SignedInForm(apps_and_sessions::END_SESSION) apps_and_sessions::end_session;
    "session.end-all" POST "/account/sign-out" SignedInForm(apps_and_sessions::END_ALL) apps_and_sessions::end_all;
    "sign-in.end" POST "/account/sign-ins" SignedInForm(provider::connected::DISCONNECT) provider::connected::disconnect;
    "oauth.second-factor" POST "/oauth/second-factor" Page second_factor::sign_in;
    "second-factor.show" GET "/account/second-factor" SignedIn(Onward::SecondFactor) second_factor_page::show;
    "second-factor.change" POST "/account/second-factor" SignedInForm(second_factor_page::CHANGE) second_factor_page::change;
    "vault.new" GET "/account/new-vault" SignedIn(Onward::NewVault) new_vault::show;
    "vault.sign-up" POST "/account/new-vault" SignedInForm(new_vault::SIGN_UP) new_vault::sign_up;
    "vault.rename" POST "/account/new-vault/name" SignedInForm(new_vault::RENAME) new_vault::rename;
    "front.show" GET "/" Front home_page::show;
    "token.grant" POST "/oauth/token" Endpoint endpoints::token;
    "token.revoke" POST "/oauth/revoke" Revocation endpoints::revoke;
    "invite.show" GET "/oauth/invite/{token}" PageOf invite_link::show;
    "invite.accept" POST "/oauth/invite/{token}" PageOf invite_link::accept;
}

/// Builds the router of the group, with every path below `prefix`.
pub(crate) fn router(prefix: &str) -> Router<App> {
    route::router(prefix, ROWS, |row| {
        row.handler.methods(row.route.method_filter())
    })
}
