//! A Lambda function: takes one event and returns its answer.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use serde::Serialize;
use serde_json::value::RawValue;
use tower::ServiceExt as _;
use vault_service::App;
use vault_service::accounts::bootstrap::{self, AccountReset, FirstStart};
use vault_service::error::{ErrorCode, Refusal};
use vault_service::maintenance::Report;
use vault_service::model::account::Email;
use vault_service::oidc::SecretSource;
use vault_service::route::Group;
use vault_service::router::Part;

use crate::answer::Answer;
use crate::edge::Edge;
use crate::event::{Event, Rejected};

type Error = Box<dyn std::error::Error + Send + Sync>;
/// Reads a secret, each time that it is called. The first owner's password is read only while there
/// is no owner.
pub type PasswordSource = SecretSource;

/// Deletes a secret that is no longer needed.
pub type SecretDeletion =
    Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> + Send + Sync>;

/// The account that the function creates as the first owner of the service.
pub struct FirstOwner {
    /// Address with which the owner signs in.
    pub email: String,
    /// Reads the password; called only while the service has no owner.
    pub password: PasswordSource,
    /// Deletes the password at its source once the account exists; `None` if the source cannot
    /// delete it.
    pub deletion: Option<SecretDeletion>,
}

/// What an invocation returns as JSON.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Outcome {
    /// The response to the web request that the event carried, for the gateway to send.
    Http(Box<Answer>),
    /// The report of background work, for the schedule.
    Work(Report),
    /// The result of an account reset, for the operator.
    Reset(Reset),
}

/// An account that was reset, with the link that sets its new password. No other answer or page
/// shows the link.
#[derive(Clone, Eq, PartialEq, Serialize)]
pub struct Reset {
    email: Email,
    invite_url: String,
}

impl std::fmt::Debug for Reset {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Reset")
            .field("email", &self.email)
            .finish_non_exhaustive()
    }
}

/// The reason why an invocation fails instead of returning an answer.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The function does not handle events of this kind, for example a schedule's event outside of
    /// `admin`.
    #[error("this function does not know this kind of event")]
    UnknownEvent,
    /// No account has the address in `reset_account`.
    #[error("no account has this address")]
    NoAccount,
    /// The deletion of the account in `reset_account` has begun, so it cannot be reset.
    #[error(
        "the deletion of this account has begun; an operator enables it first, which cancels that"
    )]
    DeletionBegun,
    /// The store failed, so the account was not reset. The operator may try again.
    #[error("the account could not be reset")]
    Reset(#[source] vault_store::StoreError),
    /// Background work stopped early. The next run continues it.
    #[error("background work stopped early")]
    Work(#[source] vault_store::StoreError),
}

/// One Lambda function, which serves one group of routes.
pub struct Function {
    app: App,
    part: Part,
    router: Router,
    first_owner: Option<FirstOwner>,
    /// Whether an owner is known to exist; set from the start if no first owner is configured. A
    /// new process does not know it and reads the record again.
    has_owner: AtomicBool,
    edge: Option<Edge>,
}

impl Function {
    /// Creates the function that serves `part` over `app`.
    pub fn new(app: App, part: Part, first_owner: Option<FirstOwner>) -> Self {
        Self {
            router: vault_service::part_router(app.clone(), part),
            has_owner: AtomicBool::new(first_owner.is_none()),
            app,
            part,
            first_owner,
            edge: None,
        }
    }

    /// Returns the function with this check of the way of requests. If `edge` is present, only
    /// requests through the content delivery network are answered, and rate limits count clients by
    /// the addresses that it passes on.
    #[must_use]
    pub fn with_edge(self, edge: Option<Edge>) -> Self {
        Self { edge, ..self }
    }

    /// Handles one event, given as JSON text. Fails if this function does not handle events of its
    /// kind, if an account cannot be reset, or if background work stops early.
    pub async fn handle_event(&self, event: &str) -> Result<Outcome, Failed> {
        let Ok(event) = Event::parse(event) else {
            // Returning an error would fail the invocation, and the client would see a 5xx. Answer
            // 400 instead.
            return Ok(self.refuse(&ErrorCode::RequestInvalid.into()));
        };
        match event {
            Event::Http(event) => {
                let request = match event.into_request(self.edge.as_ref()) {
                    Ok(request) => request,
                    Err(Rejected::Bad(_)) => {
                        return Ok(self.refuse(&ErrorCode::RequestInvalid.into()));
                    }
                    Err(Rejected::Edge(_)) => {
                        return Ok(self.refuse(&Refusal::new(ErrorCode::HostForbidden).detail(
                            "Send requests to the address at which the service is published.",
                        )));
                    }
                };
                self.make_first_owner().await;
                let method = request.method().clone();
                let response = self.router.clone().oneshot(request).await;
                let response = response.unwrap_or_else(|never| match never {});
                Ok(Outcome::Http(Box::new(
                    Answer::from_response(&method, response).await,
                )))
            }
            Event::Schedule => {
                // A schedule that invokes a function without background work has to fail visibly.
                let work = self.part.work().ok_or(Failed::UnknownEvent)?;
                let report = work(&self.app).await.map_err(Failed::Work)?;
                Ok(Outcome::Work(report))
            }
            // Only `admin` resets accounts, so permission to invoke another function is not enough.
            Event::ResetAccount(email) if self.part.group() == Some(Group::Admin) => {
                self.reset_account(&email).await.map(Outcome::Reset)
            }
            Event::ResetAccount(_) | Event::Other => Err(Failed::UnknownEvent),
        }
    }

    /// Resets an account. Operators use it if none of them can sign in. It asks for no password: a
    /// caller who may invoke the function controls the service anyway, like one with write access
    /// to its table.
    async fn reset_account(&self, email: &str) -> Result<Reset, Failed> {
        let email: Email = email.parse().map_err(|_| Failed::NoAccount)?;
        let (app, issuer) = (&self.app, self.app.config.public_url.base());
        let link = bootstrap::reset_account(app, &email, issuer);
        match link.await.map_err(Failed::Reset)? {
            AccountReset::Link(invite_url) => Ok(Reset { email, invite_url }),
            AccountReset::NotFound => Err(Failed::NoAccount),
            AccountReset::DeletionBegun => Err(Failed::DeletionBegun),
        }
    }

    /// Handles an event of the Lambda runtime like [`Function::handle_event`] and logs a failure.
    pub(crate) async fn handle_text(&self, event: Box<RawValue>) -> Result<Outcome, Error> {
        let outcome = self.handle_event(event.get()).await;
        if let Err(failed) = &outcome {
            tracing::error!(error = %failed, "an event could not be answered");
        }
        Ok(outcome?)
    }

    fn refuse(&self, refusal: &Refusal) -> Outcome {
        Outcome::Http(Box::new(Answer::from_refusal(
            refusal,
            &self.app.fresh_id(),
        )))
    }

    /// Creates the first owner if there is none. A failure is logged and does not affect the
    /// current request; the next request tries again.
    async fn make_first_owner(&self) {
        let Some(owner) = &self.first_owner else {
            return;
        };
        // A relaxed order is enough: a `false` that is out of date only costs another look-up.
        if self.has_owner.load(Ordering::Relaxed) {
            return;
        }
        match self.try_first_owner(owner).await {
            Ok(made) => {
                self.has_owner.store(true, Ordering::Relaxed);
                if let Some(FirstStart::Created(email)) = made {
                    tracing::info!(owner = %email, "created the first owner");
                    delete_password(owner).await;
                }
            }
            Err(error) => tracing::error!(%error, "the first owner could not be created"),
        }
    }

    async fn try_first_owner(&self, owner: &FirstOwner) -> Result<Option<FirstStart>, Error> {
        // Look for an owner before reading the password: reading it takes a request, and it is
        // needed only once in the life of the service.
        if bootstrap::load_owner(&self.app).await?.is_some() {
            return Ok(None);
        }
        let password = (owner.password)().await?;
        // No namespace is created here: the functions hold no key with which the service could
        // publish one, so the operator creates every namespace.
        let made =
            bootstrap::ensure_first_owner(&self.app, None, Some(&owner.email), Some(&password));
        Ok(Some(made.await?))
    }
}

/// Deletes the first owner's password at its source. A failure is logged and changes nothing: the
/// account exists, and its owner can change the password.
async fn delete_password(owner: &FirstOwner) {
    let Some(delete) = &owner.deletion else {
        return;
    };
    if let Err(error) = delete().await {
        tracing::warn!(%error, "the first owner's password could not be deleted: delete its parameter");
    }
}
