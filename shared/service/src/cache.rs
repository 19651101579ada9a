//! Cache of immutable objects: bytes that a process serves without reading the object store again.
//!
//! The key consists of the namespace id, the class and the hash, so no entry can become stale or
//! belong to another tenant.

use axum::http::HeaderValue;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use vault_format::hash::Digest;
use vault_store::StoreError;
use vault_store::objects::{ObjectKey, Objects};
use vault_store::recent::Recent;

/// An object's bytes, with the value of the header that proves them.
#[derive(Clone, Debug)]
pub struct Object {
    /// Exact bytes, as they were uploaded.
    pub bytes: Bytes,
    /// Value of the header `Repr-Digest` (RFC 9530): SHA-256 of the bytes.
    pub digest: HeaderValue,
}

/// Cache of the objects that were read last; it drops those that were not used for longest.
pub struct ObjectCache(Recent<ObjectKey, Object>);

impl ObjectCache {
    /// Creates an empty cache of at most `room` bytes; with 0 it caches nothing.
    pub fn new(room: usize) -> Self {
        Self(Recent::new(room))
    }

    /// Returns the object with this key, from the cache or from the store; `None` if the store has
    /// none.
    ///
    /// The bytes are hashed once, when they are read from the store. Fails with `Corrupt` if they
    /// do not have the hash that names them: damaged objects are never served.
    pub async fn get(
        &self,
        objects: &dyn Objects,
        key: &ObjectKey,
    ) -> Result<Option<Object>, StoreError> {
        if let Some(object) = self.0.find(key) {
            return Ok(Some(object));
        }
        let Some(bytes) = objects.read_object(key).await? else {
            return Ok(None);
        };
        let damaged = || StoreError::Corrupt(format!("the object {key} is damaged"));
        // Checked on every read from the store and not only at the upload: a faulty disk, or
        // somebody with access to it, may have changed the bytes since.
        if Digest::of(&bytes) != key.digest {
            return Err(damaged());
        }
        let digest = format!("sha-256=:{}:", STANDARD.encode(key.digest.as_bytes()));
        let digest = HeaderValue::from_str(&digest).map_err(|_| damaged())?;
        let object = Object { bytes, digest };
        self.0
            .insert_value(*key, object.clone(), object.bytes.len());
        Ok(Some(object))
    }
}

#[cfg(test)]
mod tests {
    use vault_format::name::NamespaceId;
    use vault_store::objects::Class;
    use vault_testing::memory::Memory;

    use super::*;

    #[tokio::test]
    async fn what_was_read_once_is_not_read_again() {
        let (store, cache) = (Memory::default(), ObjectCache::new(1 << 20));
        let bytes = Bytes::from_static(b"x");
        let key = ObjectKey::for_bytes(NamespaceId::from_parts(1, 1), Class::Bundles, &bytes);
        store.put_object(&key, bytes.clone()).await.unwrap();
        assert_eq!(cache.get(&store, &key).await.unwrap().unwrap().bytes, bytes);
        store.delete_object(&key).await.unwrap();
        assert_eq!(cache.get(&store, &key).await.unwrap().unwrap().bytes, bytes);
    }

    #[tokio::test]
    async fn the_same_hash_of_another_namespace_is_not_there() {
        let (store, cache) = (Memory::default(), ObjectCache::new(1 << 20));
        let bytes = Bytes::from_static(b"x");
        let mine = ObjectKey::for_bytes(NamespaceId::from_parts(1, 1), Class::Bundles, &bytes);
        let other = ObjectKey::for_bytes(NamespaceId::from_parts(1, 2), Class::Bundles, &bytes);
        store.put_object(&mine, bytes).await.unwrap();
        assert!(cache.get(&store, &mine).await.unwrap().is_some());
        assert!(cache.get(&store, &other).await.unwrap().is_none());
    }
}
