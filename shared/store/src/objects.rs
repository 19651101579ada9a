//! The port `Objects`: immutable bytes by content-addressed key.
//!
//! The last part of a key is the SHA-256 of the bytes under it, so nothing is ever overwritten, and
//! a reader may cache for ever. An adapter hashes before a key exists: bytes that are not their
//! name are refused, never stored.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_format::words;

use crate::StoreError;

/// The largest object: 4 MiB (an answer of a function may be 6 MB, and base64 adds a third).
pub const MAX_OBJECT_BYTES: usize = 4 * 1024 * 1024;
/// The most objects one [`Objects::list`] answers.
pub const MAX_PAGE: usize = 1000;
/// The most objects one [`Objects::missing`] is asked about.
pub const MAX_ASKED: usize = 10_000;

words! {
    /// What kind of thing an object is; a part of its key.
    #[derive(Ord, PartialOrd)]
    pub enum Class {
        /// Skill bundles, and the index, profile and part objects that share their address space.
        Bundles = "bundles",
        /// Signed catalogs, exact bytes.
        Catalogs = "catalogs",
        /// Capability policies.
        Policies = "policies",
        /// Drafts that wait for an owner.
        Drafts = "drafts",
        /// The list of all hashes that one release names.
        Closures = "closures",
        /// Exports that an owner asked for.
        Exports = "exports",
    }
}

/// Where an object stands: `ns/<namespace id>/<class>/<sha256>`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ObjectKey {
    /// The allocation that owns the object.
    pub namespace: NamespaceId,
    /// What kind of thing it is.
    pub class: Class,
    /// The SHA-256 of its bytes.
    pub digest: Digest,
}

impl ObjectKey {
    /// The key of the object whose bytes hash to `digest`.
    pub fn new(namespace: NamespaceId, class: Class, digest: Digest) -> Self {
        Self {
            namespace,
            class,
            digest,
        }
    }

    /// The key that these bytes have in this namespace and class.
    pub fn of(namespace: NamespaceId, class: Class, bytes: &[u8]) -> Self {
        Self::new(namespace, class, Digest::of(bytes))
    }

    /// Fails with `Invalid` when the bytes are too many, or their SHA-256 is not this key's.
    pub fn check(&self, bytes: &[u8]) -> Result<(), StoreError> {
        if bytes.len() > MAX_OBJECT_BYTES {
            return Err(StoreError::invalid("an object may have 4 MiB"));
        }
        if Digest::of(bytes) != self.digest {
            return Err(StoreError::invalid(
                "the bytes are not those that the key names",
            ));
        }
        Ok(())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ns/{}/{}/{}", self.namespace, self.class, self.digest)
    }
}

/// What a put found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stored {
    /// The key was not there; it is now.
    New,
    /// The key was there already, with these very bytes.
    Present,
}

/// Immutable bytes by their hash. What is promised here is checked by the contract suite of
/// `vault-testing`.
#[async_trait] // async fn is not yet callable through `dyn`
pub trait Objects: Send + Sync {
    /// The object's bytes, or `None` when the key does not exist.
    async fn get(&self, key: &ObjectKey) -> Result<Option<Bytes>, StoreError>;

    /// Writes the bytes unless the key exists. Both outcomes leave exactly these bytes under the
    /// key. Fails with `Invalid` when the bytes are over 4 MiB or do not hash to the key.
    async fn put(&self, key: &ObjectKey, bytes: Bytes) -> Result<Stored, StoreError>;

    /// Does [`Objects::put`] for each, in order; in one transaction where the store has one, so it
    /// costs one flush. Refuses all when one is refused. After any other error some may be there:
    /// repeating is safe.
    async fn put_many(&self, objects: Vec<(ObjectKey, Bytes)>) -> Result<Vec<Stored>, StoreError> {
        check_put_many(&objects)?;
        let mut stored = Vec::with_capacity(objects.len());
        for (key, bytes) in objects {
            stored.push(self.put(&key, bytes).await?);
        }
        Ok(stored)
    }

    /// Those of the keys that do not exist, or exist with another size in bytes; in the order
    /// asked. Fails with `Invalid` for more than 10,000 keys.
    async fn missing(&self, wanted: &[(ObjectKey, u64)]) -> Result<Vec<ObjectKey>, StoreError>;

    /// Hash and size in bytes of the objects of one class, ascending by hash, beginning behind
    /// `after`. Fewer than `limit` means the end. Fails with `Invalid` unless `limit` is 1 to
    /// 1,000.
    async fn list(
        &self,
        namespace: &NamespaceId,
        class: Class,
        after: Option<&Digest>,
        limit: usize,
    ) -> Result<Vec<(Digest, u64)>, StoreError>;

    /// Removes the object; removing what is not there is no error.
    async fn delete(&self, key: &ObjectKey) -> Result<(), StoreError>;
}

/// Fails with `Invalid` when one of the objects breaks a rule of [`ObjectKey::check`]: for
/// adapters.
pub fn check_put_many(objects: &[(ObjectKey, Bytes)]) -> Result<(), StoreError> {
    objects.iter().try_for_each(|(key, bytes)| key.check(bytes))
}

/// Fails with `Invalid` when too many keys are asked about: for adapters.
pub fn check_missing(wanted: &[(ObjectKey, u64)]) -> Result<(), StoreError> {
    if wanted.len() > MAX_ASKED {
        return Err(StoreError::invalid("one question may name 10,000 objects"));
    }
    Ok(())
}

/// Fails with `Invalid` unless `limit` is 1 to 1,000: for adapters.
pub fn check_list(limit: usize) -> Result<(), StoreError> {
    if limit == 0 || limit > MAX_PAGE {
        return Err(StoreError::invalid("a page holds 1 to 1,000 objects"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use vault_format::text::UnknownWord;

    use super::*;

    #[test]
    fn a_key_reads_as_its_place_in_the_store() {
        let namespace = NamespaceId::from_parts(1_795_219_200_000, 7);
        let key = ObjectKey::of(namespace, Class::Bundles, b"");
        let hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(key.to_string(), format!("ns/{namespace}/bundles/{hash}"));
    }

    #[test]
    fn class_text_survives_a_round_trip() {
        for class in Class::ALL {
            assert_eq!(class.to_string().parse(), Ok(class));
        }
        for odd in ["", "bundle", "Bundles", "bundles/", "../bundles"] {
            assert_eq!(odd.parse::<Class>(), Err(UnknownWord), "{odd}");
        }
    }
}
