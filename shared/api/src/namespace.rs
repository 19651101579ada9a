//! The namespaces of a service, for its operators: `/admin/operator/namespaces`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::name::{NamespaceId, Slug};

use crate::{Email, Given, Kind, Status, Subscription};

/// A namespace in the operator's list.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Namespace {
    /// Name of the namespace in addresses.
    pub slug: Slug,
    /// Id of the namespace, `ns_…`, which is created when the name is allocated.
    pub namespace_id: NamespaceId,
    /// Whether the owner or the server signs its releases.
    pub kind: Kind,
    /// Whether the namespace is in use, suspended or deleted.
    pub status: Status,
    /// State of the payments for it.
    pub subscription: Subscription,
    /// The e-mail address of the account that it was made for.
    pub owner: String,
    /// Number of the current release; null before the first one.
    pub release: Option<u64>,
}

/// A namespace to allocate.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NewNamespace {
    /// Name of the namespace in addresses. It must never have been in use.
    pub slug: Given<Slug>,
    /// E-mail address of its owner, whose account is created if there is none.
    pub owner: Given<Email>,
}

/// A namespace that was allocated.
// No `Debug`: the link in `invite_url` sets a password and must not come into a log.
#[derive(Clone, Deserialize, JsonSchema, Serialize)]
pub struct CreatedNamespace {
    /// Name of the namespace in addresses.
    pub slug: Slug,
    /// Id of the namespace, `ns_…`, which is created when the name is allocated.
    pub namespace_id: NamespaceId,
    /// The e-mail address of its owner.
    pub owner: Email,
    /// Link with which the owner sets a password, if the account cannot sign in yet. Only this
    /// answer contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invite_url: Option<String>,
}
