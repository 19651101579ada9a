//! The guard of rows that an access token opens: it proves who calls, and that the row is for them, before a handler is reached.
//!
//! Authorization comes before any id is looked up, so that 401 and 403 reveal nothing about what exists. Refusals of somebody who is
//! signed in are written to the audit log; those of unauthenticated callers are only logged.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::{FromRequestParts as _, RawPathParams, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use vault_format::name::NamespaceId;
use vault_format::text::error_chain;

use crate::app::App;
use crate::bearer::{Caller, identify};
use crate::error::{Code, Refusal, is_safe};
use crate::http::{LogFields, client_address, drop_body};
use crate::model::audit::{Actor, Change};
use crate::model::user::Scope;
use crate::route::{Auth, Route};

/// A request of a caller who may make it. Only the guard makes one.
pub(crate) struct Call {
    pub(crate) app: App,
    pub(crate) caller: Caller,
    pub(crate) actor: Actor,
    pub(crate) parts: Parts,
    params: Vec<(String, String)>,
    /// In a lock, since a body can be moved between threads but not shared, and a handler holds its call across waits.
    body: Arc<Mutex<Body>>,
}

impl Call {
    /// A segment of the path.
    pub(crate) fn param(&self, name: &str) -> &str {
        let mut params = self.params.iter();
        params
            .find(|(n, _)| n == name)
            .map_or("", |(_, value)| value)
    }

    /// The body; empty once it was taken.
    pub(crate) fn take_body(&self) -> Body {
        take(&self.body)
    }
}

fn take(body: &Mutex<Body>) -> Body {
    std::mem::take(&mut body.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Lets a request for `route` through to `handler` if its token opens the row. `refuse` writes a refusal in the form of the group.
pub(crate) async fn guarded<F>(
    app: App,
    route: &'static Route,
    request: Request,
    refuse: impl Fn(Refusal) -> Response,
    handler: impl FnOnce(Call) -> F,
) -> Response
where
    F: Future<Output = Result<Response, Refusal>>,
{
    let (mut parts, body) = request.into_parts();
    let caller = match identify(&app, &parts.headers, route.audience()).await {
        Ok(caller) => caller,
        Err(refusal) => {
            drop_body(&parts.headers, body).await;
            return refuse(refusal);
        }
    };
    let fields = LogFields {
        slug: Some(caller.namespace.slug.to_string()),
        caller: Some(caller.user_id.clone()),
    };
    let actor = Actor {
        user: caller.user_id.clone(),
        client: Some(caller.client_id.to_string()),
        source: client_address(&app.config, &parts.headers, &parts.extensions),
    };
    // A path that is not UTF-8 once decoded names nothing.
    let params = RawPathParams::from_request_parts(&mut parts, &()).await;
    let body = Arc::new(Mutex::new(body));
    let (headers, is_safe) = (parts.headers.clone(), is_safe(&parts.method));
    let namespace = caller.namespace.id;
    let admitted =
        admit(&app, &caller, route).and_then(|()| params.map_err(|_| Refusal::new(Code::NotFound)));
    let answer = match admitted {
        Err(refusal) => Err(refusal),
        Ok(params) => {
            let params = params.iter();
            let call = Call {
                app: app.clone(),
                caller,
                actor: actor.clone(),
                parts,
                params: params.map(|(n, v)| (n.to_owned(), v.to_owned())).collect(),
                body: Arc::clone(&body),
            };
            handler(call).await
        }
    };
    let mut response = match answer {
        Ok(response) => response,
        Err(refusal) => {
            let status = refusal.status();
            if status == StatusCode::FORBIDDEN || (!is_safe && status.is_client_error()) {
                let code = refusal.code();
                audit_refusal(&app, &namespace, &actor, route.name, None, code).await;
            }
            drop_body(&headers, take(&body)).await;
            refuse(refusal)
        }
    };
    response.extensions_mut().insert(fields);
    response
}

/// Whether a row is for this caller: 403 if not.
fn admit(app: &App, caller: &Caller, route: &Route) -> Result<(), Refusal> {
    let write = || caller.require(Scope::Write, route.audience(), &app.config.public_url);
    if route.auth != Auth::Account {
        caller.require_in_service()?;
    }
    match route.auth {
        Auth::Account | Auth::Bearer => Ok(()),
        Auth::Owner => caller.require_owner(),
        Auth::OwnerWrite => caller.require_owner().and_then(|()| write()),
        Auth::Operator => caller.require_operator(&app.config.public_url),
        Auth::OperatorWrite => {
            let elevated = caller.require_operator(&app.config.public_url);
            elevated.and_then(|()| write())
        }
        // No token opens these; a row of such a class here is a mistake, and is closed.
        Auth::Public | Auth::ClientOrBearer | Auth::Session | Auth::Device => {
            Err(Code::Internal.into())
        }
    }
}

/// Notes that a signed-in caller was refused; the refusal stands even if the log cannot be written.
pub(crate) async fn audit_refusal(
    app: &App,
    namespace: &NamespaceId,
    actor: &Actor,
    action: &str,
    target: Option<&str>,
    code: Code,
) {
    let change = Change {
        target: target.map(str::to_owned),
        ..Change::default()
    };
    let written = match app.audit(Some(namespace), actor, action, change, code.row().code) {
        Ok(entry) => app.records.commit(vec![entry]).await.map(|_| ()),
        Err(error) => Err(error),
    };
    if let Err(error) = written {
        tracing::error!(
            error = error_chain(&error),
            "a refusal could not be written to the audit log"
        );
    }
}
