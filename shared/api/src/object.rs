//! Objects: `/admin/vaults/{slug}/objects`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::words;

use crate::Given;

words! {
    /// The kinds of objects that publishers upload.
    #[derive(JsonSchema)]
    #[schemars(inline)]
    pub enum ObjectClass {
        /// Bundles of skills.
        Bundles = "bundles",
        /// Policies and profiles.
        Policies = "policies",
    }
}

/// A question for the objects that the service lacks.
// Unknown members are accepted: a newer publisher may ask for more than this service knows.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct ObjectQuestion {
    /// Kind of the objects, which is the same for all of them.
    // One class for all, since each class has a folder of its own in the store.
    pub class: Given<ObjectClass>,
    /// At most 10,000 objects.
    #[schemars(length(max = 10_000))]
    pub objects: Vec<ObjectReference>,
}

/// An object, by hash and length.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct ObjectReference {
    /// SHA-256 of its bytes.
    pub sha256: Digest,
    /// Length of the object in bytes.
    #[schemars(range(min = 0, max = 18_446_744_073_709_551_615_u64))]
    pub size: u64,
}

/// The objects that the service lacks.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct MissingObjects {
    /// SHA-256 of each object that must be uploaded.
    pub missing: Vec<Digest>,
}

/// Maximum number of objects in a pack.
pub const MAX_PACK_OBJECTS: usize = 1000;

/// The objects of a pack that the service has now.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct StoredObjects {
    /// SHA-256 of each object of the pack that is stored now.
    pub stored: Vec<Digest>,
}
