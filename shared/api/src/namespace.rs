//! The namespaces of a service, for its operators: `/admin/operator/namespaces`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::name::{NamespaceId, Slug};

use crate::{Email, Given, Kind, Status, Subscription};

/// A namespace in the operator's list.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Namespace {
    /// Its name.
    pub slug: Slug,
    /// The id of this allocation of the name.
    pub namespace_id: NamespaceId,
    /// The signer of its releases.
    pub kind: Kind,
    /// Its state, which decides whether it is served.
    pub status: Status,
    /// Whether it is paid for.
    pub subscription: Subscription,
    /// The e-mail address of the account that it was made for.
    pub owner: String,
    /// The current release; null before the first one.
    pub release: Option<u64>,
}

/// A namespace to allocate.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NewNamespace {
    /// Its name.
    pub slug: Given<Slug>,
    /// The e-mail address of its owner.
    pub owner: Given<Email>,
}

/// A namespace that was allocated.
// No `Debug`: the link in `invite_url` sets a password and must not come into a log.
#[derive(Clone, Deserialize, JsonSchema, Serialize)]
pub struct CreatedNamespace {
    /// Its name.
    pub slug: Slug,
    /// The id of this allocation of the name.
    pub namespace_id: NamespaceId,
    /// The e-mail address of its owner.
    pub owner: Email,
    /// The link that sets a password, if the account cannot sign in yet; in this answer, and never
    /// again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invite_url: Option<String>,
}
