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

use crate::accounts::guard::{self, FormTask, SignedInBrowser, SignedInForm};
use crate::accounts::{
    account_page, apps_and_sessions, confirm_page, invitations, invite_link, passkey,
    password_page, provider, second_factor, second_factor_page,
};
use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::hosting::{home_page, new_vault};
use crate::http::json_answer;
use crate::oauth::error_response::EndpointError;
use crate::oauth::guard::{Revocation, require_client_or_bearer};
use crate::oauth::{authorization, endpoints};
use crate::route::{self, Auth, rows};
use crate::web::browser::{CONFIRM_PATH, ReturnTo};
use crate::web::error_page::ErrorPage;
use crate::web::{cors, welcome};

type HandlerFuture<E> = Pin<Box<dyn Future<Output = Result<Response, E>> + Send>>;

/// Handler of a route. Each class of callers has its own variant, whose handlers are reached only
/// through the guard of that class.
#[derive(Clone, Copy)]
enum Handler {
    /// A discovery document, which pages of every origin may read.
    Document(fn(&App) -> Value),
    /// An endpoint that programs call.
    Endpoint(fn(App, Request) -> HandlerFuture<EndpointError>),
    /// The revocation endpoint, for clients that send their `client_id` and for bearers of an
    /// access token.
    Revocation(fn(App, Revocation) -> HandlerFuture<EndpointError>),
    /// A page or form that needs no completed sign-in.
    Page(fn(App, Request) -> HandlerFuture<ErrorPage>),
    /// The root of the service: a page for browsers, 404 for programs.
    Front,
    /// A page with a secret token in its path.
    PageOf(fn(App, String, Request) -> HandlerFuture<ErrorPage>),
    /// A page for signed-in people. Other browsers get the sign-in page, which then leads back to
    /// this page.
    SignedIn(
        ReturnTo<'static>,
        fn(App, SignedInBrowser) -> HandlerFuture<ErrorPage>,
    ),
    /// The page of one confirmation, whose id is in the path, for signed-in people.
    Confirmation(fn(App, String, SignedInBrowser) -> HandlerFuture<ErrorPage>),
    /// A form post. It reaches the handler only from a signed-in browser, with the form token of
    /// this task, which proves that the form is from a page of the service.
    SignedInForm(FormTask, fn(App, SignedInForm) -> HandlerFuture<ErrorPage>),
}

impl Handler {
    /// Returns the authentication class of the route.
    const fn auth(self) -> Auth {
        match self {
            Self::Document(_)
            | Self::Endpoint(_)
            | Self::Front
            | Self::Page(_)
            | Self::PageOf(_) => Auth::Public,
            Self::Revocation(_) => Auth::ClientOrBearer,
            Self::SignedIn(..) | Self::Confirmation(_) | Self::SignedInForm(..) => {
                Auth::Session(None)
            }
        }
    }

    fn method_router(self, method: MethodFilter) -> MethodRouter<App> {
        match self {
            // Clients of every origin read discovery first, so the answer and its preflight are
            // open to all.
            Self::Document(document) => get(move |State(app): State<App>| async move {
                cors::allow_any_origin(json_answer(StatusCode::OK, &document(&app)))
            })
            .options(async || cors::discovery_preflight()),
            Self::Endpoint(answer) => route_endpoint(answer),
            Self::Revocation(answer) => route_endpoint(move |app, request| async move {
                let proven = require_client_or_bearer(&app, request).await?;
                answer(app, proven).await
            }),
            Self::Page(answer) => on(method, move |State(app): State<App>, request: Request| {
                respond_with_page(app.clone(), answer(app, request))
            }),
            // Answers every method: a client that posts to the root looks for the MCP endpoint, and
            // gets its address with the 404.
            Self::Front => any(|State(app): State<App>, request: Request| async move {
                if welcome::opens_page(request.method(), request.headers()) {
                    respond_with_page(
                        app.clone(),
                        Box::pin(home_page::show_home(&app, request.headers())),
                    )
                    .await
                } else {
                    welcome::route_not_found(&app, &request).into_response()
                }
            }),
            Self::PageOf(answer) => on(
                method,
                move |State(app): State<App>, Path(token): Path<String>, request: Request| {
                    respond_with_page(app.clone(), answer(app, token, request))
                },
            ),
            Self::SignedIn(onward, answer) => {
                get(move |State(app): State<App>, headers: HeaderMap| {
                    // The guard runs inside `respond_with_page`, so that its errors become error
                    // pages like those of handlers.
                    respond_with_page(app.clone(), async move {
                        match guard::require_signed_in(&app, &headers, onward).await? {
                            Ok(proven) => answer(app, proven).await,
                            Err(page) => Ok(page),
                        }
                    })
                })
            }
            Self::Confirmation(answer) => get(
                move |State(app): State<App>, Path(id): Path<String>, headers: HeaderMap| {
                    respond_with_page(app.clone(), async move {
                        let path = format!("{CONFIRM_PATH}{id}");
                        // A mistyped address is treated like that of a confirmation that has ended.
                        let onward = ReturnTo::parse_confirm_path(&path)
                            .ok_or_else(confirm_page::ended_page)?;
                        match guard::require_signed_in(&app, &headers, onward).await? {
                            Ok(proven) => answer(app, id, proven).await,
                            Err(page) => Ok(page),
                        }
                    })
                },
            ),
            Self::SignedInForm(task, answer) => {
                post(move |State(app): State<App>, request: Request| {
                    respond_with_page(app.clone(), async move {
                        match guard::require_signed_in_form(&app, task, request).await? {
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
fn route_endpoint<F>(
    answer: impl Fn(App, Request) -> F + Clone + Send + Sync + 'static,
) -> MethodRouter<App>
where
    F: Future<Output = Result<Response, EndpointError>> + Send,
{
    post(move |State(app): State<App>, request: Request| async move {
        // Copied because the handler consumes the request. An error needs the CORS headers too, or
        // a page could not read why it failed.
        let headers = request.headers().clone();
        let answered = answer(app.clone(), request).await;
        let response = answered.unwrap_or_else(|failure| failure.render_error(&app));
        cors::allow_listed_origin(&app, &headers, response)
    })
    .options(|State(app): State<App>, headers: HeaderMap| async move {
        cors::endpoint_preflight(&app, &headers)
    })
    // Clients of these endpoints understand errors only in the format of OAuth.
    .fallback(|State(app): State<App>, headers: HeaderMap| async move {
        let refused = EndpointError::from(Refusal::from(ErrorCode::MethodNotAllowed));
        cors::allow_listed_origin(&app, &headers, refused.render_error(&app))
    })
}

async fn respond_with_page(
    app: App,
    answer: impl Future<Output = Result<Response, ErrorPage>>,
) -> Response {
    answer
        .await
        .unwrap_or_else(|stop| stop.render_error_page(&app))
}

macro_rules! handler {
    (Document $document:path) => {
        Handler::Document($document)
    };
    (Front $show:path) => {
        Handler::Front
    };
    (Confirmation $handler:path) => {
        Handler::Confirmation(|app, id, proven| {
            Box::pin(async move { $handler(&app, &id, proven).await })
        })
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
    "client.register" POST "/oauth/register" Endpoint endpoints::register_client;
    "oauth.authorize" GET "/oauth/authorize" Page authorization::authorize;
    "oauth.login" POST "/oauth/login" Page authorization::sign_in_with_password;
    "oidc.start" POST "/oauth/oidc/start" Page authorization::start_at_provider;
    "oidc.callback" GET "/oauth/oidc/callback" Page provider::finish_sign_in;
    "oidc.connect" POST "/oauth/oidc/connect" Page provider::connect::connect_account;
    "oauth.consent" POST "/oauth/consent" SignedInForm(authorization::CONSENT) authorization::record_consent;
    // Not `SignedInForm`: a browser must be able to sign out while its session is expired or waits
    // for a second factor.
    "oauth.logout" POST "/oauth/logout" Page authorization::sign_out_browser;
    "password.show" GET "/oauth/password" SignedIn(ReturnTo::Password) password_page::show_password_page;
    "password.change" POST "/oauth/password" SignedInForm(password_page::CHANGE) password_page::change_password;
    "account.show" GET "/account" SignedIn(ReturnTo::Account) account_page::show_account;
    "membership.answer" POST "/account/invitations" SignedInForm(invitations::ANSWER) invitations::answer_invitation;
    "membership.leave" POST "/account/vaults" SignedInForm(account_page::LEAVE) account_page::leave_vault;
    "app.end" POST "/account/apps" SignedInForm(apps_and_sessions::END_APP) apps_and_sessions::end_app;
    "session.end" POST "/account/sessions" SignedInForm(apps_and_sessions::END_SESSION) apps_and_sessions::end_session;
    "session.end-all" POST "/account/sign-out" SignedInForm(apps_and_sessions::END_ALL) apps_and_sessions::end_all;
    "sign-in.end" POST "/account/sign-ins" SignedInForm(provider::connected::DISCONNECT) provider::connected::disconnect_sign_in;
    "oauth.second-factor" POST "/oauth/second-factor" Page second_factor::answer_code_page;
    "confirmation.page" GET "/account/confirm/{id}" Confirmation confirm_page::show_confirmation;
    "confirmation.decide" POST "/account/confirm" SignedInForm(confirm_page::CONFIRM) confirm_page::decide_confirmation;
    "second-factor.show" GET "/account/second-factor" SignedIn(ReturnTo::SecondFactor) second_factor_page::show_second_factor;
    "second-factor.change" POST "/account/second-factor" SignedInForm(second_factor_page::CHANGE) second_factor_page::change_second_factor;
    "passkey.ask" POST "/oauth/passkey" Page authorization::ask_for_passkey;
    "passkey.sign-in" POST "/oauth/passkey/answer" Page authorization::sign_in_with_passkey;
    "passkey.show" GET "/account/passkeys" SignedIn(ReturnTo::Passkeys) passkey::manage::show_passkeys;
    "passkey.new" POST "/account/passkeys/new" SignedInForm(passkey::manage::NEW) passkey::manage::begin_addition;
    "passkey.add" POST "/account/passkeys" SignedInForm(passkey::manage::ADD) passkey::manage::finish_addition;
    "passkey.remove" POST "/account/passkeys/remove" SignedInForm(passkey::manage::REMOVE) passkey::manage::remove_passkey;
    "vault.new" GET "/account/new-vault" SignedIn(ReturnTo::NewVault) new_vault::show_new_vault;
    "vault.sign-up" POST "/account/new-vault" SignedInForm(new_vault::SIGN_UP) new_vault::sign_up;
    "vault.rename" POST "/account/new-vault/name" SignedInForm(new_vault::RENAME) new_vault::rename_sign_up;
    "front.show" GET "/" Front home_page::show;
    "token.grant" POST "/oauth/token" Endpoint endpoints::issue_tokens;
    "token.revoke" POST "/oauth/revoke" Revocation endpoints::revoke_token;
    "invite.show" GET "/oauth/invite/{token}" PageOf invite_link::show_invite;
    "invite.accept" POST "/oauth/invite/{token}" PageOf invite_link::accept_invite;
}

/// Builds the router of the group, with every path below `prefix`.
pub(crate) fn router(prefix: &str) -> Router<App> {
    route::router(prefix, ROWS, |row| {
        row.handler.method_router(row.route.method_filter())
    })
}
