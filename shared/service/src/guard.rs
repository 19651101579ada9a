//! Guard of the routes that need an access token: identifies the caller and checks that the caller
//! may use the route, before a handler runs. A row is one entry of the table of routes.
//!
//! Authorization comes before any id is looked up, so that 401 and 403 reveal nothing about what
//! exists. Refusals of authenticated callers are written to the audit log; those of unauthenticated
//! callers go to the program's log only.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use vault_store::fair::Lane;

use crate::app::App;
use crate::bearer::{Bearer, Caller, Operator, identify_bearer, sent_token};
use crate::bodies::{MOST_OF_LANE, Sender, SharedBodyMemory};
use crate::budget::Rank;
use crate::config::Config;
use crate::error::{ErrorCode, Refusal, is_safe};
use crate::http::{LogFields, client_address, drop_body};
use crate::model::audit::{Actor, Change, log_unwritten};
use crate::model::limits::Networks;
use crate::model::namespace::{Namespace, NamespaceRef};
use crate::model::refusals::{NamedBy, RefusedRequest};
use crate::model::user::{Role, Scope};
use crate::path_params::PathParams;
use crate::route::{Auth, Route};
use crate::spending::Spending;

/// A request whose caller is proven and may use the row. Only the guard creates one.
pub(crate) struct Call<C = Caller> {
    pub(crate) app: App,
    pub(crate) caller: C,
    pub(crate) actor: Actor,
    pub(crate) parts: Parts,
    params: PathParams,
    /// Behind a lock because a body can be moved between threads but not shared, and a handler
    /// holds its call across awaits.
    body: Arc<Mutex<Body>>,
    /// The party whose share of the memory for bodies the request's body takes.
    sender: Sender,
    /// Memory of the body that was read, until the call is answered.
    room: SharedBodyMemory,
}

impl<C> Call<C> {
    /// Returns the value of a variable in the route's path.
    pub(crate) fn param(&self, name: &str) -> &str {
        self.params.get(name)
    }

    /// Reads the body, which is empty afterwards; fails like [`Bodies::read`].
    ///
    /// [`Bodies::read`]: crate::bodies::Bodies::read
    pub(crate) async fn read_body(&self, limit: usize) -> Result<Bytes, Refusal> {
        let body = take_shared_body(&self.body);
        let received = self
            .app
            .bodies
            .read(self.sender.clone(), body, limit)
            .await?;
        let (bytes, room) = received.into_parts();
        self.room.hold(room);
        Ok(bytes)
    }
}

fn take_shared_body(body: &Mutex<Body>) -> Body {
    std::mem::take(&mut body.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A type of caller that one class of rows accepts. The guard creates it from a valid token, and
/// the row's handler receives it.
pub(crate) trait ProvenCaller: Sized {
    /// Checks that the bearer may use the row. Fails with 403 if not.
    fn admit_bearer(bearer: Bearer, config: &Config, route: &Route) -> Result<Self, Refusal>;
}

/// Callers of the rows of a vault: its members, publishers and owners.
impl ProvenCaller for Caller {
    fn admit_bearer(bearer: Bearer, config: &Config, route: &Route) -> Result<Self, Refusal> {
        let Bearer::Caller(caller) = bearer else {
            return Err(ErrorCode::Internal.into()); // an operator's token is for no row of a vault
        };
        // Before role and scope: a member of a suspended vault must learn that it is suspended, not
        // that a right is missing.
        caller.require_in_service()?;
        let write = || caller.require_scope(Scope::Write, route.audience(), &config.public_url);
        // Owners use publisher rows too, and must meet the second-factor policy for owners there as
        // well: otherwise a stolen password could publish.
        let publisher = || {
            caller.require_publisher()?;
            match caller.role {
                Role::Owner => caller.require_second_factor(config),
                Role::Publisher | Role::Member => Ok(()),
            }
        };
        let owner = || caller.require_owner().and_then(|()| publisher());
        match route.auth {
            Auth::Bearer => {}
            Auth::BearerWrite => write()?,
            Auth::Publisher => publisher()?,
            Auth::PublisherWrite => publisher().and_then(|()| write())?,
            Auth::Owner => owner()?,
            Auth::OwnerWrite => owner().and_then(|()| write())?,
            // The route table never pairs this caller with another class. If it did, the row must
            // stay shut.
            _ => return Err(ErrorCode::Internal.into()),
        }
        Ok(*caller)
    }
}

/// Callers of the service's rows, who are operators.
impl ProvenCaller for Operator {
    fn admit_bearer(bearer: Bearer, config: &Config, route: &Route) -> Result<Self, Refusal> {
        let operator = match bearer {
            Bearer::Operator(operator) => operator,
            // Suspension is reported as on any row of a vault. Then the challenge leads a person
            // who operates the service to a token that this row accepts.
            Bearer::Caller(caller) => {
                caller.require_in_service()?;
                return Err(caller.elevation_refusal(&config.public_url));
            }
        };
        operator.require_second_factor(config)?;
        match route.auth {
            Auth::Operator => {}
            Auth::OperatorWrite => operator.require_scope(Scope::Write, &config.public_url)?,
            _ => return Err(ErrorCode::Internal.into()),
        }
        Ok(operator)
    }
}

/// Callers of an account's own rows: users of a vault and operators alike.
impl ProvenCaller for Bearer {
    fn admit_bearer(bearer: Bearer, _: &Config, route: &Route) -> Result<Self, Refusal> {
        match route.auth {
            Auth::Account => Ok(bearer),
            _ => Err(ErrorCode::Internal.into()),
        }
    }
}

/// Runs `handler` if the token of the request opens `route`. `refuse` renders a refusal in the
/// format of the route's group.
pub(crate) async fn guard_call<C: ProvenCaller, F>(
    app: App,
    route: &'static Route,
    request: Request,
    refuse: impl Fn(Refusal) -> Response,
    handler: impl FnOnce(Call<C>) -> F,
) -> Response
where
    F: Future<Output = Result<Response, Refusal>>,
{
    let (mut parts, body) = request.into_parts();
    let (bearer, mut spending) = match count_caller(&app, &parts.headers, route).await {
        Ok(counted) => counted,
        Err((refusal, fields)) => {
            // With an unread body the connection would be reset before the sender has read the
            // refusal.
            drop_body(&parts.headers, body).await;
            let mut response = refuse(refusal);
            response.extensions_mut().insert(fields);
            return response;
        }
    };
    let fields = log_fields(&bearer);
    let room = SharedBodyMemory::default();
    spending.app.body_memory = Some(room.clone());
    let app = &spending.app;
    let namespace = bearer.namespace().map(Namespace::to_ref);
    let actor = bearer_actor(&bearer, &parts, &app.config);
    let sender = body_sender(&bearer, &actor);
    let params = PathParams::from_parts(&mut parts).await;
    // Shared with the call: after a refusal, the rest that the handler left unread is drained
    // below.
    let body = Arc::new(Mutex::new(body));
    let (headers, is_safe) = (parts.headers.clone(), is_safe(&parts.method));
    let target = params.as_ref().and_then(recorded_target);
    let admitted = C::admit_bearer(bearer, &app.config, route);
    // The path counts only after admission, so that its 404 tells an unauthorized caller nothing.
    let admitted = admitted.and_then(|caller| Ok((caller, params.ok_or(ErrorCode::NotFound)?)));
    let answer = match admitted {
        Err(refusal) => Err(refusal),
        Ok((caller, params)) => {
            let call = Call {
                app: App::clone(app),
                caller,
                actor: actor.clone(),
                parts,
                params,
                body: Arc::clone(&body),
                sender,
                room,
            };
            handler(call).await
        }
    };
    let mut response = match answer {
        Ok(response) => response,
        Err(refusal) => {
            let status = refusal.status();
            // 403 is always recorded. Other refusals are recorded only for requests that would have
            // changed something: failed reads are common and would crowd the log.
            if status == StatusCode::FORBIDDEN || (!is_safe && status.is_client_error()) {
                let refused = RefusedAct::sent(route.name, target.as_deref(), refusal.code());
                audit_refusal(app, namespace.as_ref(), &actor, refused).await;
            }
            drop_body(&headers, take_shared_body(&body)).await;
            refuse(refusal)
        }
    };
    // If a budget ran out, the handler saw a failing store; the answer must name the budget, and
    // not a fault of the service.
    let refusal = spending
        .refusal()
        .filter(|_| !response.status().is_success());
    if let Some(refusal) = refusal {
        response = refuse(refusal);
    }
    spending.add_headers(response.headers_mut());
    response.extensions_mut().insert(fields);
    response
}

/// Identifies the caller of a request, and counts the request for the caller's namespace. Fails with
/// the refusal, and with what the log line says about a caller who is over a limit.
async fn count_caller(
    app: &App,
    headers: &HeaderMap,
    route: &Route,
) -> Result<(Bearer, Spending), (Refusal, LogFields)> {
    let (now, token) = (app.clock.now(), sent_token(headers));
    // Before anything is read: callers over a limit must not keep the store busy.
    let full = token.and_then(|token| app.refused_tokens.find_limit(&token, now));
    if let Some(full) = full {
        return Err((full.refusal(now), LogFields::default()));
    }
    let bearer = identify_bearer(app, headers, route.audience()).await;
    let bearer = bearer.map_err(|refusal| (refusal, LogFields::default()))?;
    let spending = match &bearer {
        Bearer::Operator(_) => Ok(Spending::uncharged(app)),
        Bearer::Caller(caller) => {
            let (grant, rank) = (&caller.consent.grant, Rank::of(caller.role, false));
            Spending::count_request(app, &caller.namespace, grant, rank)
        }
    };
    match spending {
        Ok(spending) => Ok((bearer, spending)),
        Err(full) => {
            if let Some(token) = token {
                app.refused_tokens.remember_token(token, full, now);
            }
            // Without an entry in the audit log, or a caller over the limit could fill it.
            Err((full.refusal(now), log_fields(&bearer)))
        }
    }
}

fn log_fields(bearer: &Bearer) -> LogFields {
    LogFields {
        slug: bearer
            .namespace()
            .map(|namespace| namespace.slug.to_string()),
        caller: Some(bearer.audit_name().to_owned()),
    }
}

fn bearer_actor(bearer: &Bearer, parts: &Parts, config: &Config) -> Actor {
    Actor {
        user: bearer.audit_name().to_owned(),
        client: Some(bearer.client_id().to_string()),
        source: client_address(config, &parts.headers, &parts.extensions),
    }
}

/// Returns the id in the path of a request, as the record of a refusal names it.
fn recorded_target(params: &PathParams) -> Option<String> {
    let id = params.find_param("id")?;
    // Longer than any id: the log must not store a text of any size that a caller chooses.
    (id.len() <= MAX_TARGET_BYTES).then(|| id.to_owned())
}

/// Returns the sender of a request's body. As in the budgets, members cannot fill all of their
/// namespace's share of the memory.
fn body_sender(bearer: &Bearer, actor: &Actor) -> Sender {
    match bearer {
        Bearer::Operator(_) => Networks::of(actor.source).lane().into(),
        Bearer::Caller(caller) => {
            let most = Rank::of(caller.role, false).share_of(MOST_OF_LANE as u64);
            Sender {
                lane: Lane::Namespace(caller.namespace.id),
                most: usize::try_from(most).unwrap_or(MOST_OF_LANE),
            }
        }
    }
}

/// Maximum size of an id from the path that the record of a refusal contains, in bytes.
const MAX_TARGET_BYTES: usize = 128;

/// A refused request, as the audit log records it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusedAct<'a> {
    /// Name of the route ([`Route::name`]), which is the action in the audit log.
    pub(crate) action: &'a str,
    pub(crate) target: Option<&'a str>,
    /// Whether the service took the target from its own records, and not from the request.
    pub(crate) is_named_by_service: bool,
    pub(crate) code: ErrorCode,
}

impl<'a> RefusedAct<'a> {
    /// Creates the refusal of a request whose target is a text that the caller sent.
    pub(crate) const fn sent(action: &'a str, target: Option<&'a str>, code: ErrorCode) -> Self {
        Self {
            action,
            target,
            is_named_by_service: false,
            code,
        }
    }
}

/// Records in the audit log that an authenticated caller was refused; equal refusals of a minute are
/// one entry. If the log cannot be written, the failure is only logged and the refusal stands.
pub(crate) async fn audit_refusal(
    app: &App,
    namespace: Option<&NamespaceRef>,
    actor: &Actor,
    refused: RefusedAct<'_>,
) {
    let refused = RefusedRequest {
        namespace: namespace.map(|namespace| namespace.id),
        actor: actor.clone(),
        action: refused.action.to_owned(),
        change: Change {
            target: refused.target.map(str::to_owned),
            ..Change::default()
        },
        named_by: if refused.is_named_by_service {
            NamedBy::Service
        } else {
            NamedBy::Caller(namespace.cloned())
        },
        outcome: refused.code.row().code.to_owned(),
    };
    // In a task of its own: closing the connection must not keep the refusal out of the log.
    let app = app.clone();
    let recording = tokio::spawn(async move {
        let written = app.refusals.record(&app, &refused).await;
        let charge = app.charge.as_deref();
        // If the namespace has no budget left for the entry, that is no fault of the service: the
        // request gets 429.
        if written.is_err() && charge.is_some_and(|charge| charge.refusal().is_some()) {
            tracing::warn!(
                action = refused.action,
                code = refused.outcome,
                "a refusal has no entry in the audit log: the vault has used up its entries of this hour"
            );
            return;
        }
        log_unwritten(written);
    });
    if let Err(ended) = recording.await {
        tracing::error!(%ended, "a refusal could not be written to the audit log");
    }
}
