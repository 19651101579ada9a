//! The JSON API of owners, publishers and operators (`/admin/…`), and the hook (the endpoint for
//! events) of the payment provider.
//!
//! `rows!` below lists every route with the class of callers that may use it. A handler takes the
//! [`call::Call`] of that class, which only the guard creates, so no handler can run before its
//! caller was checked. Except on operator routes, a handler acts only on the namespace that the
//! access token is for. Every change writes its audit record in the same commit. Handlers never
//! render HTML and never read environment variables. The console calls the functions of this module
//! that take a [`principal::Principal`] or an `ActingUser`.

mod accounts;
pub(crate) mod acts;
pub(crate) mod audit;
pub(crate) mod call;
mod catalog;
pub(crate) mod clients;
mod confirmations;
pub(crate) mod delete;
pub(crate) mod devices;
pub(crate) mod drafts;
pub(crate) mod enrolment;
pub(crate) mod made;
mod notices;
mod objects;
mod operator;
mod payments;
pub(crate) mod pin;
pub(crate) mod principal;
pub(crate) mod releases;
pub(crate) mod users;
pub(crate) mod vaults;

use std::pin::Pin;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::on;

use crate::app::App;
use crate::bearer::Bearer;
use crate::error::Refusal;
use crate::guard::guard_call;
use crate::hosting::payment::hook;
use crate::route::{self, Auth, RouteRow, rows};

use call::{Answer, Call, OperatorCall};

type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// The function that answers a row of the table of routes. Each class of callers has its own
/// variant, and its function is reached only through the guard of that class.
#[derive(Clone, Copy)]
enum Handler {
    /// A route about the vault that the token is for.
    Vault(Auth, fn(Call) -> Answering),
    /// A route about the service as a whole, for operators.
    Service(Auth, fn(OperatorCall) -> Answering),
    /// A route about the account itself, whatever vault the token is for.
    Account(fn(Call<Bearer>) -> Answering),
    /// A route that another service calls; the function verifies that service's signature itself.
    Hook(fn(App, Request) -> Answering),
}

impl Handler {
    /// Returns the class of callers that the row accepts.
    const fn auth(self) -> Auth {
        // The class is read from the handler instead of being a second column of the table: a row
        // cannot ask for one class and be answered by the function of another.
        match self {
            Self::Vault(auth, _) | Self::Service(auth, _) => auth,
            Self::Account(_) => Auth::Account,
            Self::Hook(_) => Auth::Public,
        }
    }
}

macro_rules! handler {
    (Operator $handler:path) => {
        Handler::Service(Auth::Operator, |call| Box::pin($handler(call)))
    };
    (OperatorWrite $handler:path) => {
        Handler::Service(Auth::OperatorWrite, |call| Box::pin($handler(call)))
    };
    (Account $handler:path) => {
        Handler::Account(|call| Box::pin($handler(call)))
    };
    (Public $handler:path) => {
        Handler::Hook(|app, request| Box::pin($handler(app, request)))
    };
    ($vault:ident $handler:path) => {
        Handler::Vault(Auth::$vault, |call| Box::pin($handler(call)))
    };
}

rows! { Admin:
    "vault.list" GET "/admin/vaults" Account vaults::list_vaults;
    "vault.show" GET "/admin/vaults/{slug}" Publisher vaults::show_vault;
    "object.missing" POST "/admin/vaults/{slug}/objects/missing" Publisher objects::list_missing;
    "object.pack" POST "/admin/vaults/{slug}/objects/{class}" PublisherWrite objects::put_pack;
    "object.put" PUT "/admin/vaults/{slug}/objects/{class}/{sha256}" PublisherWrite objects::put_object;
    "object.read" GET "/admin/vaults/{slug}/objects/{class}/{sha256}" Publisher objects::read_object;
    "catalog.current" GET "/admin/vaults/{slug}/catalog" Publisher catalog::current_catalog;
    "catalog.publish" PUT "/admin/vaults/{slug}/catalog" PublisherWrite catalog::publish_catalog;
    "release.list" GET "/admin/vaults/{slug}/releases" Publisher releases::list_releases;
    "release.show" GET "/admin/vaults/{slug}/releases/{release}" Publisher releases::show_release;
    "release.catalog" GET "/admin/vaults/{slug}/releases/{release}/catalog" Publisher releases::show_release_catalog;
    "draft.list" GET "/admin/vaults/{slug}/drafts" Bearer drafts::list_drafts;
    "draft.create" POST "/admin/vaults/{slug}/drafts" BearerWrite drafts::create_draft;
    "draft.read" GET "/admin/vaults/{slug}/drafts/{id}" Bearer drafts::read_draft_bytes;
    "draft.withdraw" DELETE "/admin/vaults/{slug}/drafts/{id}" BearerWrite drafts::withdraw_draft;
    "draft.accept" POST "/admin/vaults/{slug}/drafts/{id}/accepted" PublisherWrite drafts::accept_draft;
    "draft.decline" POST "/admin/vaults/{slug}/drafts/{id}/declined" PublisherWrite drafts::handle_decline;
    "vault.delete" DELETE "/admin/vaults/{slug}" OwnerWrite delete::handle_delete;
    "vault.sign-out" POST "/admin/vaults/{slug}/sign-out" OwnerWrite vaults::sign_out_vault;
    "pin.reset" POST "/admin/vaults/{slug}/pin/reset" OwnerWrite pin::handle_reset;
    "device.list" GET "/admin/vaults/{slug}/devices" Owner devices::list_devices;
    "device.deny-pending" POST "/admin/vaults/{slug}/devices/deny-pending" OwnerWrite devices::handle_deny_pending;
    "device.admit" POST "/admin/vaults/{slug}/devices/{id}/admit" OwnerWrite devices::admit_device;
    "device.deny" POST "/admin/vaults/{slug}/devices/{id}/deny" OwnerWrite devices::deny_device;
    "device.revoke" POST "/admin/vaults/{slug}/devices/{id}/revoke" OwnerWrite devices::revoke_device;
    "device.forget" POST "/admin/vaults/{slug}/devices/{id}/forget" OwnerWrite devices::forget_device;
    "enrolment.set" PUT "/admin/vaults/{slug}/enrolment" OwnerWrite enrolment::handle_set_enrolment;
    "enrolment.list" GET "/admin/vaults/{slug}/enrolment-codes" Owner enrolment::list_codes;
    "enrolment.invite" POST "/admin/vaults/{slug}/enrolment-codes" OwnerWrite enrolment::handle_create_code;
    "enrolment.end" DELETE "/admin/vaults/{slug}/enrolment-codes/{id}" OwnerWrite enrolment::handle_end_code;
    "notice.list" GET "/admin/vaults/{slug}/notices" Owner notices::list_destinations;
    "notice.add" POST "/admin/vaults/{slug}/notices" OwnerWrite notices::add_webhook;
    "notice.mail" PUT "/admin/vaults/{slug}/notices/mail" OwnerWrite notices::set_mail;
    "notice.remove" DELETE "/admin/vaults/{slug}/notices/{id}" OwnerWrite notices::remove_webhook;
    "notice.test" POST "/admin/vaults/{slug}/notices/{id}/test" OwnerWrite notices::test_webhook;
    "user.list" GET "/admin/users" Owner users::list_users;
    "user.create" POST "/admin/users" OwnerWrite users::create_user;
    "user.profile" PUT "/admin/users/{id}/profile" OwnerWrite users::set_profile;
    "user.role" PUT "/admin/users/{id}/role" OwnerWrite users::set_role;
    // `user.scopes` and `client.revoke` are not `OwnerWrite`: their documented contracts require
    // only the role.
    "user.scopes" POST "/admin/users/{id}/scopes" Owner users::change_scopes;
    "user.remove" DELETE "/admin/users/{id}" OwnerWrite users::handle_remove;
    "client.list" GET "/admin/clients" Owner clients::list_clients;
    "client.revoke" DELETE "/admin/clients/{id}" Owner clients::revoke_client;
    "confirmation.ask" POST "/admin/confirmations" OwnerWrite confirmations::ask_owner;
    "confirmation.show" GET "/admin/confirmations/{id}" Account confirmations::show_confirmation;
    "audit.list" GET "/admin/audit" Owner audit::list_namespace_log;
    "audit.delete" DELETE "/admin/audit" OwnerWrite audit::handle_delete_entries;
    "namespace.list" GET "/admin/operator/namespaces" Operator operator::list_namespaces;
    "namespace.create" POST "/admin/operator/namespaces" OperatorWrite operator::create_namespace;
    "namespace.show" GET "/admin/operator/namespaces/{slug}" Operator operator::show_namespace;
    "namespace.suspend" POST "/admin/operator/namespaces/{slug}/suspend" OperatorWrite operator::suspend_namespace;
    "namespace.resume" POST "/admin/operator/namespaces/{slug}/resume" OperatorWrite operator::resume_namespace;
    "namespace.lapse" POST "/admin/operator/namespaces/{slug}/lapse" OperatorWrite operator::lapse_subscription;
    "namespace.renew" POST "/admin/operator/namespaces/{slug}/renew" OperatorWrite operator::renew_subscription;
    "namespace.quota" POST "/admin/operator/namespaces/{slug}/quota" OperatorWrite operator::set_quota;
    "namespace.sign-out" POST "/admin/operator/namespaces/{slug}/sign-out" OperatorWrite operator::sign_out_namespace;
    "service.sign-out" POST "/admin/operator/sign-out" OperatorWrite accounts::sign_out_everybody;
    "service.audit" GET "/admin/operator/audit" Operator audit::list_service;
    "payment.list" GET "/admin/operator/payments" Operator payments::list_payments;
    "payment.receive" POST "/hooks/payment" Public hook::receive_payment;
    "confirmation.ask-operator" POST "/admin/operator/confirmations" OperatorWrite confirmations::ask_operator;
    "account.list" GET "/admin/operator/accounts" Operator accounts::list_accounts;
    "account.invite" POST "/admin/operator/accounts" OperatorWrite accounts::invite_account;
    "account.reset" POST "/admin/operator/accounts/{email}/reset" OperatorWrite accounts::reset_account;
    "account.disable" POST "/admin/operator/accounts/{email}/disable" OperatorWrite accounts::disable_account;
    "account.enable" POST "/admin/operator/accounts/{email}/enable" OperatorWrite accounts::enable_account;
    "account.sign-out" POST "/admin/operator/accounts/{email}/sign-out" OperatorWrite accounts::sign_out_account;
    "account.grant" POST "/admin/operator/accounts/{email}/grant" OperatorWrite accounts::grant_operator;
    "account.revoke" POST "/admin/operator/accounts/{email}/revoke" OperatorWrite accounts::revoke_operator;
    "account.delete" DELETE "/admin/operator/accounts/{email}" OperatorWrite accounts::delete_account;
}

async fn answer_row(app: App, row: &'static RouteRow<Handler>, request: Request) -> Response {
    let refuse = |refusal: Refusal| refusal.into_response();
    let route = &row.route;
    match row.handler {
        Handler::Vault(_, handler) => guard_call(app, route, request, refuse, handler).await,
        Handler::Service(_, handler) => guard_call(app, route, request, refuse, handler).await,
        Handler::Account(handler) => guard_call(app, route, request, refuse, handler).await,
        // No guard: the payment provider has no token. Its signature covers the exact body, so the
        // function must see the request before anything reads it.
        Handler::Hook(handler) => handler(app, request).await.unwrap_or_else(refuse),
    }
}

/// Builds the router of this group, below `prefix`.
pub(crate) fn router(prefix: &str) -> Router<App> {
    route::router(prefix, ROWS, |row| {
        let serve = move |State(app): State<App>, request: Request| answer_row(app, row, request);
        on(row.route.method_filter(), serve)
    })
}
