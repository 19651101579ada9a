//! Immutable objects in memory: the bytes that a warm process serves without asking the object
//! store.
//!
//! Keyed by namespace id, class and hash, so nothing in here can become stale or another tenant's.

use axum::http::HeaderValue;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use vault_format::hash::Digest;
use vault_store::StoreError;
use vault_store::objects::{ObjectKey, Objects};
use vault_store::recent::Recent;

/// An object's bytes, and the header that goes with them.
#[derive(Clone, Debug)]
pub struct Object {
    /// The exact bytes.
    pub bytes: Bytes,
    /// `Repr-Digest` (RFC 9530) of the bytes.
    pub digest: HeaderValue,
}

/// Objects that were read recently.
pub struct ObjectCache(Recent<ObjectKey, Object>);

impl ObjectCache {
    /// An empty cache of at most `room` bytes; 0 keeps nothing.
    pub fn new(room: usize) -> Self {
        Self(Recent::new(room))
    }

    /// The object under this key, from memory or from the store; `None` when the store has none.
    ///
    /// The bytes are hashed once, when they come in. Fails with `Corrupt` when they do not have the
    /// hash that names them: damage in the store is never served.
    pub async fn get(
        &self,
        objects: &dyn Objects,
        key: &ObjectKey,
    ) -> Result<Option<Object>, StoreError> {
        if let Some(object) = self.0.find(key) {
            return Ok(Some(object));
        }
        let Some(bytes) = objects.get(key).await? else {
            return Ok(None);
        };
        let damaged = || StoreError::Corrupt(format!("the object {key} is damaged"));
        if Digest::of(&bytes) != key.digest {
            return Err(damaged());
        }
        let digest = format!("sha-256=:{}:", STANDARD.encode(key.digest.as_bytes()));
        let digest = HeaderValue::from_str(&digest).map_err(|_| damaged())?;
        let object = Object { bytes, digest };
        self.0.insert(*key, object.clone(), object.bytes.len());
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
        let key = ObjectKey::of(NamespaceId::from_parts(1, 1), Class::Bundles, &bytes);
        store.put(&key, bytes.clone()).await.unwrap();
        assert_eq!(cache.get(&store, &key).await.unwrap().unwrap().bytes, bytes);
        store.delete(&key).await.unwrap();
        assert_eq!(cache.get(&store, &key).await.unwrap().unwrap().bytes, bytes);
    }

    #[tokio::test]
    async fn the_same_hash_of_another_namespace_is_not_there() {
        let (store, cache) = (Memory::default(), ObjectCache::new(1 << 20));
        let bytes = Bytes::from_static(b"x");
        let mine = ObjectKey::of(NamespaceId::from_parts(1, 1), Class::Bundles, &bytes);
        let other = ObjectKey::of(NamespaceId::from_parts(1, 2), Class::Bundles, &bytes);
        store.put(&mine, bytes).await.unwrap();
        assert!(cache.get(&store, &mine).await.unwrap().is_some());
        assert!(cache.get(&store, &other).await.unwrap().is_none());
    }
}
