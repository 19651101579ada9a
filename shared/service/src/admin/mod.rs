//! Owner and operator routes. Bearer tokens; an owner's routes act on the one namespace that the token carries.
//!
//! Who may call is settled before any id is looked up. Every change writes its audit record in its own commit; refusals of somebody who is
//! signed in are audited too, strangers are only logged.

mod audit;
mod catalog;
mod clients;
mod devices;
mod objects;
mod operator;
mod pin;
mod releases;
mod users;
mod vaults;

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use vault_store::records::Record;

use crate::App;
use crate::bearer::{Caller, identify};
use crate::error::{Code, Refusal, is_safe};
use crate::http::{MAX_JSON_BYTES, Seen, client_address, drop_body, read_json};
use crate::model::audit::{self as log, Actor, Change};
use crate::model::namespace::{Kind, Namespace};
use crate::model::user::Scope;
use crate::routes::{Auth, Group, Route, route};

type Answer = Result<Response, Refusal>;
type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;
type Handler = fn(Call) -> Answering;

macro_rules! rows {
    ($($name:literal $method:ident $path:literal $auth:ident $handler:path;)*) => {
        /// The rows of this group.
        pub(crate) const ROUTES: &[Route] = &[$(
            route($name, stringify!($method), $path, Auth::$auth, Group::Admin, || {
                guarded($name, MethodFilter::$method, Auth::$auth, |call| Box::pin($handler(call)))
            }),
        )*];
    };
}

rows! {
    "vault.list" GET "/admin/vaults" Bearer vaults::list;
    "vault.show" GET "/admin/vaults/{slug}" Owner vaults::show;
    "object.missing" POST "/admin/vaults/{slug}/objects/missing" Owner objects::missing;
    "object.pack" POST "/admin/vaults/{slug}/objects/{class}" OwnerWrite objects::pack;
    "object.put" PUT "/admin/vaults/{slug}/objects/{class}/{sha256}" OwnerWrite objects::put;
    "object.read" GET "/admin/vaults/{slug}/objects/{class}/{sha256}" Owner objects::read;
    "catalog.current" GET "/admin/vaults/{slug}/catalog" Owner catalog::current;
    "catalog.publish" PUT "/admin/vaults/{slug}/catalog" OwnerWrite catalog::publish;
    "release.list" GET "/admin/vaults/{slug}/releases" Owner releases::list;
    "release.show" GET "/admin/vaults/{slug}/releases/{release}" Owner releases::show;
    "release.catalog" GET "/admin/vaults/{slug}/releases/{release}/catalog" Owner releases::catalog;
    "pin.reset" POST "/admin/vaults/{slug}/pin/reset" OwnerWrite pin::reset;
    "device.list" GET "/admin/vaults/{slug}/devices" Owner devices::list;
    "device.deny-pending" POST "/admin/vaults/{slug}/devices/deny-pending" OwnerWrite devices::deny_pending;
    "device.admit" POST "/admin/vaults/{slug}/devices/{id}/admit" OwnerWrite devices::admit;
    "device.deny" POST "/admin/vaults/{slug}/devices/{id}/deny" OwnerWrite devices::deny;
    "device.revoke" POST "/admin/vaults/{slug}/devices/{id}/revoke" OwnerWrite devices::revoke;
    "device.forget" POST "/admin/vaults/{slug}/devices/{id}/forget" OwnerWrite devices::forget;
    "user.list" GET "/admin/users" Owner users::list;
    "user.create" POST "/admin/users" OwnerWrite users::create;
    "user.profile" PUT "/admin/users/{id}/profile" OwnerWrite users::set_profile;
    "user.role" PUT "/admin/users/{id}/role" OwnerWrite users::set_role;
    "user.scopes" POST "/admin/users/{id}/scopes" OwnerWrite users::change_scopes;
    "user.remove" DELETE "/admin/users/{id}" OwnerWrite users::remove;
    "client.list" GET "/admin/clients" Owner clients::list;
    "client.revoke" DELETE "/admin/clients/{id}" OwnerWrite clients::revoke;
    "audit.list" GET "/admin/audit" Owner audit::list;
    "namespace.list" GET "/admin/operator/namespaces" Operator operator::list;
    "namespace.create" POST "/admin/operator/namespaces" OperatorWrite operator::create;
    "namespace.show" GET "/admin/operator/namespaces/{slug}" Operator operator::show;
    "namespace.suspend" POST "/admin/operator/namespaces/{slug}/suspend" OperatorWrite operator::suspend;
    "namespace.resume" POST "/admin/operator/namespaces/{slug}/resume" OperatorWrite operator::resume;
}

/// A request of somebody who may make it.
struct Call {
    app: App,
    caller: Caller,
    actor: Actor,
    parts: Parts,
    params: Vec<(String, String)>,
    /// In a lock, since a body can be moved between threads but not shared, and a handler holds its call across waits.
    body: Arc<Mutex<Body>>,
}

/// A method router that lets through whom the route is for, and audits what it refuses them.
fn guarded(
    name: &'static str,
    method: MethodFilter,
    auth: Auth,
    handler: Handler,
) -> MethodRouter<App> {
    on(
        method,
        move |State(app): State<App>,
              params: Result<RawPathParams, RawPathParamsRejection>,
              request: Request| { serve(app, name, auth, handler, params.ok(), request) },
    )
}

async fn serve(
    app: App,
    name: &'static str,
    auth: Auth,
    handler: Handler,
    params: Option<RawPathParams>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let caller = match identify(&app, &parts.headers).await {
        Ok(caller) => caller,
        Err(refusal) => {
            drop_body(&parts.headers, body).await;
            return refusal.into_response();
        }
    };
    let body = Arc::new(Mutex::new(body));
    let headers = parts.headers.clone();
    let seen = Seen {
        slug: Some(caller.namespace.slug.to_string()),
        caller: Some(caller.user_id.clone()),
    };
    let actor = Actor {
        user: caller.user_id.clone(),
        client: Some(caller.client_id.to_string()),
        source: client_address(&app.config, &parts.headers, &parts.extensions),
    };
    let namespace_id = caller.namespace.id;
    let safe = is_safe(&parts.method);
    let answer = match may_call(&app, &caller, auth) {
        Err(refusal) => Err(refusal),
        Ok(()) => match params {
            // A path that is not UTF-8 once decoded names nothing.
            None => Err(Code::NotFound.into()),
            Some(params) => {
                let params = params
                    .iter()
                    .map(|(n, v)| (n.to_owned(), v.to_owned()))
                    .collect();
                let call = Call {
                    app: app.clone(),
                    caller,
                    actor: actor.clone(),
                    parts,
                    params,
                    body: Arc::clone(&body),
                };
                handler(call).await
            }
        },
    };
    let mut response = match answer {
        Ok(response) => response,
        Err(refusal) => {
            let status = refusal.status();
            if status == StatusCode::FORBIDDEN || (!safe && status.is_client_error()) {
                let code = refusal.code().row().code;
                audit_refusal(&app, &namespace_id, &actor, name, code).await;
            }
            let unread = take(&body);
            drop_body(&headers, unread).await;
            refusal.into_response()
        }
    };
    response.extensions_mut().insert(seen);
    response
}

fn take(body: &Mutex<Body>) -> Body {
    std::mem::take(&mut body.lock().unwrap_or_else(PoisonError::into_inner))
}

/// 403 for a good token that this route is not for.
fn may_call(app: &App, caller: &Caller, auth: Auth) -> Result<(), Refusal> {
    caller.require_in_service()?;
    match auth {
        Auth::Operator => caller.require_operator(),
        Auth::OperatorWrite => {
            caller.require_operator()?;
            caller.require(Scope::Write, &app.config.public_url)
        }
        Auth::Owner => caller.require_owner(),
        Auth::OwnerWrite => {
            caller.require_owner()?;
            caller.require(Scope::Write, &app.config.public_url)
        }
        _ => Ok(()),
    }
}

/// Keeps that somebody was refused; the refusal stands even if the log cannot be written.
async fn audit_refusal(
    app: &App,
    namespace: &vault_format::name::NamespaceId,
    actor: &Actor,
    name: &str,
    code: &str,
) {
    let entry = log::entry(
        Some(namespace),
        actor,
        name,
        Change::default(),
        code,
        &*app.clock,
        &*app.random,
    );
    let written = match entry {
        Ok(entry) => app.records.commit(vec![entry]).await.map(|_| ()),
        Err(error) => Err(error),
    };
    if let Err(error) = written {
        tracing::error!(%error, "a refusal could not be written to the audit log");
    }
}

/// One page of a list.
struct Page {
    limit: usize,
    after: Option<String>,
}

#[derive(Serialize)]
struct Items<T> {
    items: Vec<T>,
    next: Option<String>,
}

impl Call {
    /// A segment of the path.
    fn param(&self, name: &str) -> &str {
        let mut params = self.params.iter();
        params
            .find(|(n, _)| n == name)
            .map_or("", |(_, value)| value)
    }

    /// A parameter of the query; the first one where there are several.
    fn query(&self, name: &str) -> Option<String> {
        let query = self.parts.uri.query()?;
        url::form_urlencoded::parse(query.as_bytes())
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.into_owned())
    }

    /// `?limit=1..100&after=`; 422 for anything else.
    fn page(&self) -> Result<Page, Refusal> {
        let limit = match self.query("limit") {
            None => 100,
            Some(text) => match text.parse() {
                Ok(limit @ 1..=100) => limit,
                _ => return Err(Code::ParameterInvalid.into()),
            },
        };
        let after = self.query("after").filter(|after| !after.is_empty());
        if after
            .as_ref()
            .is_some_and(|text| text.len() > 128 || text.chars().any(char::is_control))
        {
            return Err(Code::ParameterInvalid.into());
        }
        Ok(Page { limit, after })
    }

    /// The namespace in the path, as of this request, with its revision.
    fn namespace(&self) -> Result<(Namespace, u64), Refusal> {
        self.caller.require_namespace(self.param("slug"))?;
        Ok((
            self.caller.namespace.clone(),
            self.caller.namespace_revision,
        ))
    }

    /// The namespace in the path, when releases can be pushed into it; 409 when it signs its own.
    fn hosted_namespace(&self) -> Result<(Namespace, u64), Refusal> {
        let found = self.namespace()?;
        match found.0.kind {
            Kind::Hosted => Ok(found),
            Kind::SelfSigned => Err(Code::NamespaceSelfSigned.into()),
        }
    }

    fn take_body(&self) -> Body {
        take(&self.body)
    }

    /// The body as JSON; 413, 415, 400.
    async fn json<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        let body = self.take_body();
        read_json(&self.parts.headers, body, MAX_JSON_BYTES).await
    }

    /// The audit record of a change, for the commit that makes it.
    fn audit(&self, name: &str, change: Change) -> Result<vault_store::records::Write, Refusal> {
        Ok(log::entry(
            Some(&self.caller.namespace.id),
            &self.actor,
            name,
            change,
            "done",
            &*self.app.clock,
            &*self.app.random,
        )?)
    }
}

/// Cuts the records of a page that was asked for with one more than its limit.
fn cut(mut records: Vec<Record>, limit: usize) -> (Vec<Record>, Option<String>) {
    let more = records.len() > limit;
    records.truncate(limit);
    let next = more
        .then(|| records.last().map(|record| record.key.key.clone()))
        .flatten();
    (records, next)
}

/// Stored bytes, exactly; the tag is what `If-Match` wants.
fn exact(bytes: Bytes, sha256: &vault_format::hash::Digest, media_type: &'static str) -> Response {
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{sha256}\"")) {
        headers.insert(header::ETAG, tag);
    }
    response
}
