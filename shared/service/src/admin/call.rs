//! What handlers of this group read of a request, and the answers that they share.

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_store::records::Record;

use crate::app::Acting;
use crate::bearer::Operator;
use crate::error::{ErrorCode, Refusal};
use crate::http::{MAX_JSON_BYTES, read_json};
use crate::model::audit::Change;
use crate::model::namespace::{Kind, Namespace};

use crate::transaction::Transaction;

pub(super) use crate::guard::Call;
pub(crate) use vault_api::Items;

use super::principal::Principal;

pub(super) type Answer = Result<Response, Refusal>;

/// One page of a list.
pub(crate) struct Page {
    /// Most items of the page.
    pub(crate) limit: usize,
    /// The key behind which the page begins; `None` for the first page.
    pub(crate) after: Option<String>,
}

/// A request of an operator.
pub(super) type OperatorCall = Call<Operator>;

impl<C> Call<C> {
    /// A parameter of the query; the first one where there are several.
    pub(super) fn query(&self, name: &str) -> Option<String> {
        let query = self.parts.uri.query()?;
        url::form_urlencoded::parse(query.as_bytes())
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.into_owned())
    }

    /// `?limit=1..100&after=`; 422 for anything else.
    pub(super) fn page(&self) -> Result<Page, Refusal> {
        let limit = match self.query("limit") {
            None => 100,
            Some(text) => match text.parse() {
                Ok(limit @ 1..=100) => limit,
                _ => return Err(ErrorCode::ParameterInvalid.into()),
            },
        };
        let after = self.query("after").filter(|after| !after.is_empty());
        if after
            .as_ref()
            .is_some_and(|text| text.len() > 128 || text.chars().any(char::is_control))
        {
            return Err(ErrorCode::ParameterInvalid.into());
        }
        Ok(Page { limit, after })
    }

    /// The body as JSON; 413, 415, 400.
    pub(super) async fn json<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        let body = self.take_body();
        read_json(&self.parts.headers, body, MAX_JSON_BYTES).await
    }
}

impl Call {
    /// The namespace in the path, as of this request, with its revision.
    pub(super) fn namespace(&self) -> Result<(Namespace, u64), Refusal> {
        self.caller.require_namespace(self.param("slug"))?;
        Ok((
            self.caller.namespace.clone(),
            self.caller.namespace_revision,
        ))
    }

    /// The caller in the namespace in the path.
    pub(super) fn acting(&self) -> Result<Acting<'_>, Refusal> {
        self.caller.require_namespace(self.param("slug"))?;
        Ok(Acting {
            app: &self.app,
            namespace: &self.caller.namespace,
            actor: &self.actor,
        })
    }

    /// The namespace in the path, when releases can be pushed into it; 409 when it signs its own.
    pub(super) fn hosted_namespace(&self) -> Result<(Namespace, u64), Refusal> {
        let found = self.namespace()?;
        match found.0.kind {
            Kind::Hosted => Ok(found),
            Kind::SelfSigned => Err(ErrorCode::NamespaceSelfSigned.into()),
        }
    }

    /// The caller as functions take it that the console shares.
    pub(super) fn principal(&self) -> Principal<'_> {
        Principal {
            app: &self.app,
            namespace: &self.caller.namespace,
            user_id: &self.caller.user_id,
            email: &self.caller.email,
            role: self.caller.role,
            actor: &self.actor,
        }
    }

    /// Passes when the caller's person entered credentials for just this token, a few minutes ago.
    pub(super) fn require_fresh(&self) -> Result<(), Refusal> {
        let app = &self.app;
        self.caller
            .require_fresh(app.clock.now(), &app.config.public_url)
    }

    /// Adds the audit record of a change in the caller's namespace to the commit that makes it.
    pub(super) fn audit(
        &self,
        tx: &Transaction<'_>,
        name: &str,
        change: Change,
    ) -> Result<(), Refusal> {
        Ok(tx.audit(Some(&self.caller.namespace.id), &self.actor, name, change)?)
    }
}

impl OperatorCall {
    /// Passes when the operator entered credentials a few minutes ago, and not a quarter of an
    /// hour.
    pub(super) fn require_fresh(&self) -> Result<(), Refusal> {
        let app = &self.app;
        self.caller
            .require_fresh(app.clock.now(), &app.config.public_url)
    }

    /// Adds the audit records of a change to the commit that makes it: in the log of the service,
    /// and in those of `namespaces`, whose owners read there what an operator did.
    pub(super) fn audit(
        &self,
        tx: &Transaction<'_>,
        name: &str,
        change: &Change,
        namespaces: &[NamespaceId],
    ) -> Result<(), Refusal> {
        for log in std::iter::once(None).chain(namespaces.iter().map(Some)) {
            tx.audit(log, &self.actor, name, change.clone())?;
        }
        Ok(())
    }
}

/// Cuts the records of a page that was asked for with one more than its limit.
pub(super) fn cut(mut records: Vec<Record>, limit: usize) -> (Vec<Record>, Option<String>) {
    let more = records.len() > limit;
    records.truncate(limit);
    let next = more
        .then(|| records.last().map(|record| record.key.key.clone()))
        .flatten();
    (records, next)
}

/// Stored bytes, exactly; the tag is what `If-Match` wants.
pub(super) fn exact(bytes: Bytes, sha256: &Digest, media_type: &'static str) -> Response {
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{sha256}\"")) {
        headers.insert(header::ETAG, tag);
    }
    response
}
