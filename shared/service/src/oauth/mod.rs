//! OAuth 2.1 for people, apps and agents: discovery, registration, sign-in and consent, tokens, revocation.
//!
//! What decides is pure ([`authorize`], [`register`], [`token`], [`revoke`]): requests and records in, an answer and conditional writes out.
//! `endpoints` and `walk` read, ask, write and answer. Every secret is random, shown once, and stored by its SHA-256.

pub mod authorize;
pub mod bootstrap;
mod browser;
mod change;
mod clients;
mod cors;
pub mod csrf;
pub mod document;
mod endpoints;
pub mod form;
mod invite;
pub mod metadata;
mod noted;
pub(crate) mod pages;
pub mod password;
pub mod pkce;
pub mod redirect;
pub mod register;
pub mod resource;
pub mod revoke;
pub mod sign_in;
mod stop;
pub mod throttle;
pub mod token;
mod walk;

pub use pages::STYLE as PAGE_STYLE;
pub use walk::users as users_of_account;

use axum::routing::{MethodRouter, get, post};

use crate::App;
use crate::routes::{Auth, Group, Route, route};

/// The routes of this group.
pub(crate) const ROUTES: &[Route] = &[
    well_known(
        "oauth.metadata",
        "/.well-known/oauth-authorization-server",
        || get(endpoints::authorization_server).options(cors::discovery_preflight),
    ),
    well_known("oauth.openid", "/.well-known/openid-configuration", || {
        get(endpoints::authorization_server).options(cors::discovery_preflight)
    }),
    well_known(
        "oauth.resource",
        "/.well-known/oauth-protected-resource",
        || get(endpoints::protected_resource).options(cors::discovery_preflight),
    ),
    well_known(
        "oauth.resource_mcp",
        "/.well-known/oauth-protected-resource/mcp",
        || get(endpoints::protected_mcp).options(cors::discovery_preflight),
    ),
    public("client.register", "POST", "/oauth/register", || {
        post(endpoints::register).options(cors::endpoint_preflight)
    }),
    public("oauth.authorize", "GET", "/oauth/authorize", || {
        get(walk::authorize)
    }),
    public("oauth.login", "POST", "/oauth/login", || post(walk::login)),
    session("oauth.consent", "POST", "/oauth/consent", || {
        post(walk::consent)
    }),
    session("oauth.logout", "POST", "/oauth/logout", || {
        post(walk::logout)
    }),
    session("password.show", "GET", "/oauth/password", || {
        get(change::show)
    }),
    session("password.change", "POST", "/oauth/password", || {
        post(change::change)
    }),
    public("token.grant", "POST", "/oauth/token", || {
        post(endpoints::token).options(cors::endpoint_preflight)
    }),
    route(
        "token.revoke",
        "POST",
        "/oauth/revoke",
        Auth::Bearer,
        Group::OAuth,
        || post(endpoints::revoke).options(cors::endpoint_preflight),
    ),
    public("invite.show", "GET", "/oauth/invite/{token}", || {
        get(invite::show)
    }),
    public("invite.accept", "POST", "/oauth/invite/{token}", || {
        post(invite::accept)
    }),
];

const fn public(
    name: &'static str,
    method: &'static str,
    path: &'static str,
    serve: fn() -> MethodRouter<App>,
) -> Route {
    route(name, method, path, Auth::Public, Group::OAuth, serve)
}

const fn session(
    name: &'static str,
    method: &'static str,
    path: &'static str,
    serve: fn() -> MethodRouter<App>,
) -> Route {
    route(name, method, path, Auth::Session, Group::OAuth, serve)
}

const fn well_known(
    name: &'static str,
    path: &'static str,
    serve: fn() -> MethodRouter<App>,
) -> Route {
    Route {
        at_root: true,
        ..public(name, "GET", path, serve)
    }
}
