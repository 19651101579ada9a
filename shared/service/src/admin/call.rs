//! Helpers that the handlers of `/admin` share: query parameters, pages of lists, bodies and
//! answers.

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_store::records::Record;

use crate::accounts::permits::{PermitRequester, to_api_confirmation};
use crate::app::{ActingUser, App};
use crate::bearer::Operator;
use crate::error::{ErrorCode, Refusal};
use crate::http::{MAX_JSON_BYTES, parse_json, require_media_type};
use crate::model::audit::Change;
use crate::model::namespace::{Kind, Namespace};
use crate::model::permit::Act;

use crate::transaction::Transaction;

pub(super) use crate::guard::Call;
pub(crate) use vault_api::Items;

use super::principal::Principal;

pub(super) type Answer = Result<Response, Refusal>;

pub(crate) struct Page {
    /// Maximum number of items on the page.
    pub(crate) limit: usize,
    /// Key of the last item before the page; `None` for the first page.
    pub(crate) after: Option<String>,
}

/// A request of an operator, checked by the guard.
pub(super) type OperatorCall = Call<Operator>;

impl<C> Call<C> {
    /// Returns a query parameter; the first one if it occurs several times.
    pub(super) fn query_param(&self, name: &str) -> Option<String> {
        let query = self.parts.uri.query()?;
        url::form_urlencoded::parse(query.as_bytes())
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.into_owned())
    }

    /// Reads `?limit=1..100&after=`; fails with 422 for any other value.
    pub(super) fn page_params(&self) -> Result<Page, Refusal> {
        // A value out of range is rejected instead of clamped: a client that asked for 500 items
        // and got 100 would take the page for the whole list.
        let limit = match self.query_param("limit") {
            None => 100,
            Some(text) => match text.parse() {
                Ok(limit @ 1..=100) => limit,
                _ => return Err(ErrorCode::ParameterInvalid.into()),
            },
        };
        let after = self.query_param("after").filter(|after| !after.is_empty());
        // The cursor becomes part of a key of the store. Longer text, or text with control
        // characters, cannot come from a `next`.
        if after
            .as_ref()
            .is_some_and(|text| text.len() > 128 || text.chars().any(char::is_control))
        {
            return Err(ErrorCode::ParameterInvalid.into());
        }
        Ok(Page { limit, after })
    }

    /// Reads the body as a JSON object; fails with 413, 415 or 400.
    pub(super) async fn json_body<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        let bytes = self.read_body(MAX_JSON_BYTES).await?;
        require_media_type(&self.parts.headers, "application/json")?;
        parse_json(&bytes)
    }
}

impl Call {
    /// Returns the namespace in the path as the guard read it for this request, with its revision.
    pub(super) fn path_namespace(&self) -> Result<(Namespace, u64), Refusal> {
        // A token is for one namespace. Any other slug in the path fails alike, whether it exists
        // or not.
        self.caller.require_namespace(self.param("slug"))?;
        Ok((
            self.caller.namespace.clone(),
            self.caller.namespace_revision,
        ))
    }

    /// Returns the caller together with the namespace in the path; fails with 404 if the token is
    /// for another namespace.
    pub(super) fn to_acting(&self) -> Result<ActingUser<'_>, Refusal> {
        self.caller.require_namespace(self.param("slug"))?;
        Ok(ActingUser {
            app: &self.app,
            namespace: &self.caller.namespace,
            actor: &self.actor,
            account: &self.caller.account,
            consent: Some(&self.caller.consent),
        })
    }

    /// Returns the namespace in the path, with its revision. Fails with 409 if the service itself
    /// signs the releases of this namespace, so that nobody can push one.
    pub(super) fn hosted_namespace(&self) -> Result<(Namespace, u64), Refusal> {
        let namespace_and_revision = self.path_namespace()?;
        match namespace_and_revision.0.kind {
            Kind::Hosted => Ok(namespace_and_revision),
            Kind::SelfSigned => Err(ErrorCode::NamespaceSelfSigned.into()),
        }
    }

    pub(super) fn to_principal(&self) -> Principal<'_> {
        Principal {
            app: &self.app,
            namespace: &self.caller.namespace,
            user_id: &self.caller.user_id,
            email: &self.caller.email,
            role: self.caller.role,
            actor: &self.actor,
            account: &self.caller.account,
            consent: Some(&self.caller.consent),
            confirms: None,
        }
    }

    /// Returns the outcome of an act that may need a confirmation. If it failed with
    /// `ConfirmationNeeded`, asks the person to confirm `act`, and adds the address of the page for
    /// that to the refusal.
    pub(super) async fn confirm_outcome<T>(
        &self,
        act: &Act,
        outcome: Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let principal = self.to_principal();
        let home = principal.namespace.to_ref();
        confirm_outcome(&self.app, &principal.as_requester(&home), act, outcome).await
    }

    /// Adds the audit record of a change in the caller's namespace to the commit that makes it.
    pub(super) fn write_audit(
        &self,
        tx: &Transaction<'_>,
        name: &str,
        change: Change,
    ) -> Result<(), Refusal> {
        Ok(tx.audit(Some(&self.caller.namespace.id), &self.actor, name, change)?)
    }
}

impl OperatorCall {
    /// Returns the operator in the form in which acts are requested and permits are used.
    pub(super) const fn as_requester(&self) -> PermitRequester<'_> {
        PermitRequester {
            account: &self.caller.account,
            client: Some(&self.caller.client_id),
            actor: &self.actor,
            namespace: None,
            confirms: None,
        }
    }

    /// Returns the outcome of an act like `confirm_outcome` for users of a vault, with the operator
    /// as the person who confirms.
    pub(super) async fn confirm_outcome<T>(
        &self,
        act: &Act,
        outcome: Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        confirm_outcome(&self.app, &self.as_requester(), act, outcome).await
    }

    /// Adds the audit records of a change to the commit that makes it: one to the log of the
    /// service, and one to the log of each of `namespaces`, where the owners can read what an
    /// operator did.
    pub(super) fn write_audits(
        &self,
        tx: &Transaction<'_>,
        name: &str,
        change: &Change,
        namespaces: &[NamespaceId],
    ) -> Result<(), Refusal> {
        // One entry per log, since the log of the service and that of a namespace have different
        // readers.
        for log in std::iter::once(None).chain(namespaces.iter().map(Some)) {
            tx.audit(log, &self.actor, name, change.clone())?;
        }
        Ok(())
    }
}

async fn confirm_outcome<T>(
    app: &App,
    asker: &PermitRequester<'_>,
    act: &Act,
    outcome: Result<T, Refusal>,
) -> Result<T, Refusal> {
    match outcome {
        Err(refusal) if refusal.code() == ErrorCode::ConfirmationNeeded => {
            let permit = asker.ask(app, std::slice::from_ref(act)).await?;
            let confirmation = to_api_confirmation(app, &permit);
            // Clients that do not support confirmations show only this sentence.
            let detail = format!(
                "The person must confirm this in a browser; then send the request again: {}",
                confirmation.url
            );
            Err(refusal
                .detail(detail)
                .with(|problem| problem.confirmation = Some(confirmation)))
        }
        outcome => outcome,
    }
}

/// Trims the records of a page that was read with one record more than its limit; returns the key
/// after which the next page begins.
pub(super) fn trim_page(mut records: Vec<Record>, limit: usize) -> (Vec<Record>, Option<String>) {
    // The extra record only shows that a next page exists; its own key must not be the cursor, or
    // it would be skipped.
    let more = records.len() > limit;
    records.truncate(limit);
    let next = more
        .then(|| records.last().map(|record| record.key.key.clone()))
        .flatten();
    (records, next)
}

/// Creates an answer of exactly these stored bytes, with their SHA-256 as the entity tag that
/// `If-Match` expects.
pub(super) fn exact_answer(bytes: Bytes, sha256: &Digest, media_type: &'static str) -> Response {
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    // Hexadecimal digits and quotes are always a valid header value; the branch only avoids a
    // panic.
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{sha256}\"")) {
        headers.insert(header::ETAG, tag);
    }
    response
}
