//! The port `Objects`: immutable bytes by content-addressed key.
//!
//! The last part of a key is the SHA-256 of the bytes under it, so nothing is ever overwritten, and
//! a reader may cache an object forever. An adapter hashes the bytes before it creates the key:
//! bytes that do not match it are rejected, never stored.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_format::words;

use crate::StoreError;

/// Maximum size of an object, 4 MiB. An AWS Lambda function answers with at most 6 MB, and base64
/// makes an object a third larger.
pub const MAX_OBJECT_BYTES: usize = 4 * 1024 * 1024;
/// Maximum number of objects that one [`Objects::list_objects`] returns.
pub const MAX_PAGE: usize = 1000;
/// Maximum number of objects in one call of [`Objects::find_missing`].
pub const MAX_ASKED: usize = 10_000;

words! {
    /// The class of an object; a part of its key.
    #[derive(Ord, PartialOrd)]
    pub enum Class {
        /// Skill bundles, the parts of large bundles, and a release's index and profile objects.
        /// All of them are fetched by hash alone.
        Bundles = "bundles",
        /// Signed catalogs, exact bytes.
        Catalogs = "catalogs",
        /// Policies, which decide who sees which skills of a vault.
        Policies = "policies",
        /// Drafts that wait for an owner.
        Drafts = "drafts",
        /// For each release, the list of all objects that it needs (its closure), with their sizes
        /// and the signers of its skills.
        Closures = "closures",
        /// Exports that an owner asked for.
        Exports = "exports",
    }
}

/// The key of an object: `ns/<namespace id>/<class>/<sha256>`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ObjectKey {
    /// The namespace that owns the object.
    pub namespace: NamespaceId,
    /// What the bytes are, for example a bundle; objects of each class are listed separately.
    pub class: Class,
    /// The SHA-256 of the object's bytes.
    pub digest: Digest,
}

impl ObjectKey {
    /// Creates the key of the object whose bytes hash to `digest`.
    pub fn new(namespace: NamespaceId, class: Class, digest: Digest) -> Self {
        Self {
            namespace,
            class,
            digest,
        }
    }

    /// Computes the key of these bytes in this namespace and class.
    pub fn for_bytes(namespace: NamespaceId, class: Class, bytes: &[u8]) -> Self {
        Self::new(namespace, class, Digest::of(bytes))
    }

    /// Checks an object's bytes. Fails with `Invalid` if they exceed the size limit or their
    /// SHA-256 is not the one in this key.
    pub fn check_bytes(&self, bytes: &[u8]) -> Result<(), StoreError> {
        // Compare the size first: it is free, and an oversized body must not cost a hash.
        check_size(bytes)?;
        if Digest::of(bytes) != self.digest {
            return Err(StoreError::invalid(
                "the bytes are not those that the key names",
            ));
        }
        Ok(())
    }
}

/// Fails with `Invalid` if these bytes are too many for an object.
pub fn check_size(bytes: &[u8]) -> Result<(), StoreError> {
    if bytes.len() > MAX_OBJECT_BYTES {
        return Err(StoreError::invalid(format!(
            "the object has {} bytes; the maximum is {MAX_OBJECT_BYTES}",
            bytes.len()
        )));
    }
    Ok(())
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ns/{}/{}/{}", self.namespace, self.class, self.digest)
    }
}

/// The outcome of a successful [`Objects::put_object`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stored {
    /// The key was new, and the bytes are stored now.
    New,
    /// The key existed, with the same bytes.
    Present,
}

/// A store of immutable bytes by their hash. The contract suite of `vault-testing` checks every
/// promise made here.
#[async_trait] // async fn is not yet callable through `dyn`
pub trait Objects: Send + Sync {
    /// Returns the object's bytes, or `None` if the key does not exist.
    async fn read_object(&self, key: &ObjectKey) -> Result<Option<Bytes>, StoreError>;

    /// Writes the bytes unless the key exists. After both outcomes, exactly these bytes are under
    /// the key. Fails with `Invalid` if the bytes exceed 4 MiB or do not hash to the key.
    async fn put_object(&self, key: &ObjectKey, bytes: Bytes) -> Result<Stored, StoreError>;

    /// Stores objects in order, like [`Objects::put_object`]. A store with transactions stores up to
    /// 100 in each, so that requests of other namespaces come in between. If one object is invalid,
    /// none is stored. After any other error some may be stored; repeating is safe.
    async fn put_many(&self, objects: Vec<(ObjectKey, Bytes)>) -> Result<Vec<Stored>, StoreError> {
        // Check all objects before the first is written, so that an invalid one leaves nothing
        // behind.
        check_put_many(&objects)?;
        let mut stored = Vec::with_capacity(objects.len());
        for (key, bytes) in objects {
            stored.push(self.put_object(&key, bytes).await?);
        }
        Ok(stored)
    }

    /// Returns the keys that do not exist or whose objects have another size in bytes, in the given
    /// order. Fails with `Invalid` for more than 10,000 keys.
    async fn find_missing(&self, wanted: &[(ObjectKey, u64)])
    -> Result<Vec<ObjectKey>, StoreError>;

    /// Returns hash and size in bytes of the objects of one class, sorted by hash, starting behind
    /// `after`. A page shorter than `limit` is the last one. Fails with `Invalid` unless `limit` is
    /// 1 to 1,000.
    async fn list_objects(
        &self,
        namespace: &NamespaceId,
        class: Class,
        after: Option<&Digest>,
        limit: usize,
    ) -> Result<Vec<(Digest, u64)>, StoreError>;

    /// Removes the object. Removing an absent object succeeds.
    async fn delete_object(&self, key: &ObjectKey) -> Result<(), StoreError>;

    /// Removes objects, like [`Objects::delete_object`]. After an error some may be removed;
    /// repeating is safe.
    async fn delete_many(&self, keys: &[ObjectKey]) -> Result<(), StoreError> {
        for key in keys {
            self.delete_object(key).await?;
        }
        Ok(())
    }
}

/// Checks objects for [`Objects::put_many`], for adapters. Fails with `Invalid` if one of them
/// fails [`ObjectKey::check_bytes`].
pub fn check_put_many(objects: &[(ObjectKey, Bytes)]) -> Result<(), StoreError> {
    objects
        .iter()
        .try_for_each(|(key, bytes)| key.check_bytes(bytes))
}

/// Checks the number of keys of [`Objects::find_missing`], for adapters. Fails with `Invalid` for
/// more than 10,000.
pub fn check_missing(wanted: &[(ObjectKey, u64)]) -> Result<(), StoreError> {
    if wanted.len() > MAX_ASKED {
        return Err(StoreError::invalid(format!(
            "the question names {} objects; the maximum is {MAX_ASKED}",
            wanted.len()
        )));
    }
    Ok(())
}

/// Checks the limit of a page, for adapters. Fails with `Invalid` unless it is 1 to 1,000.
pub fn check_list(limit: usize) -> Result<(), StoreError> {
    if limit == 0 || limit > MAX_PAGE {
        return Err(StoreError::invalid(format!(
            "the limit of the page is {limit}; it must be 1 to {MAX_PAGE} objects"
        )));
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
        let key = ObjectKey::for_bytes(namespace, Class::Bundles, b"");
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
