//! Immutable objects in memory: the bytes that a warm process serves without asking the object store.
//!
//! Keyed by namespace id, class and hash, so nothing in here can become stale or another tenant's. Bounded in bytes by two generations:
//! when the younger one has taken half of the room the older one is forgotten. What is read often moves back into the younger.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use axum::http::HeaderValue;
use bytes::Bytes;
use vault_format::hash::Digest;
use vault_store::objects::{ObjectKey, Objects};

use super::repr_digest;
use crate::error::{Code, Refusal};

/// An object's bytes, and the header that goes with them.
#[derive(Clone, Debug)]
pub struct Object {
    /// The exact bytes.
    pub bytes: Bytes,
    /// `Repr-Digest` of the bytes.
    pub digest: HeaderValue,
}

/// Objects that were read lately.
#[derive(Debug)]
pub struct Cache {
    room: usize,
    held: Mutex<Generations>,
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<ObjectKey, Object>,
    young_bytes: usize,
    old: HashMap<ObjectKey, Object>,
}

/// What an entry takes besides the bytes, roughly.
const OVERHEAD: usize = 256;

impl Cache {
    /// An empty cache of at most `room` bytes; 0 keeps nothing.
    pub fn new(room: usize) -> Self {
        Self {
            room,
            held: Mutex::default(),
        }
    }

    /// The object under this key, from memory or from the store; `None` when the store has none.
    ///
    /// The bytes are hashed once, when they come in: damage in the store is our fault (500), never served.
    pub async fn get(
        &self,
        objects: &dyn Objects,
        key: &ObjectKey,
    ) -> Result<Option<Object>, Refusal> {
        if let Some(object) = self.find(key) {
            return Ok(Some(object));
        }
        let Some(bytes) = objects.get(key).await? else {
            return Ok(None);
        };
        if Digest::of(&bytes) != key.digest {
            return Err(
                Refusal::new(Code::Internal).cause(std::io::Error::other(format!(
                    "the object {key} is damaged"
                ))),
            );
        }
        let digest = HeaderValue::from_str(&repr_digest(&key.digest))
            .map_err(|error| Refusal::new(Code::Internal).cause(error))?;
        let object = Object { bytes, digest };
        self.insert(*key, object.clone());
        Ok(Some(object))
    }

    fn find(&self, key: &ObjectKey) -> Option<Object> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(object) = held.young.get(key) {
            return Some(object.clone());
        }
        let (key, object) = held.old.remove_entry(key)?;
        self.place(&mut held, key, object.clone());
        Some(object)
    }

    fn insert(&self, key: ObjectKey, object: Object) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        self.place(&mut held, key, object);
    }

    fn place(&self, held: &mut Generations, key: ObjectKey, object: Object) {
        let size = object.bytes.len() + OVERHEAD;
        let half = self.room / 2;
        if size > half {
            return;
        }
        if held.young_bytes + size > half {
            held.old = std::mem::take(&mut held.young);
            held.young_bytes = 0;
        }
        if held.young.insert(key, object).is_none() {
            held.young_bytes += size;
        }
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        let held = self.held.lock().unwrap();
        let sum = |map: &HashMap<ObjectKey, Object>| {
            map.values()
                .map(|o| o.bytes.len() + OVERHEAD)
                .sum::<usize>()
        };
        assert_eq!(sum(&held.young), held.young_bytes);
        sum(&held.young) + sum(&held.old)
    }
}

#[cfg(test)]
mod tests {
    use vault_format::name::NamespaceId;
    use vault_store::objects::Class;
    use vault_testing::memory::Memory;

    use super::*;

    #[tokio::test]
    async fn stays_in_its_room_and_keeps_what_is_read_often() {
        let (store, cache) = (Memory::default(), Cache::new(40_000));
        let namespace = NamespaceId::from_parts(1, 1);
        let mut keys = Vec::new();
        for n in 0..50u8 {
            let bytes = Bytes::from(vec![n; 2000]);
            let key = ObjectKey::of(namespace, Class::Bundles, &bytes);
            store.put(&key, bytes).await.unwrap();
            keys.push(key);
        }
        for key in &keys {
            assert!(cache.get(&store, key).await.unwrap().is_some());
            assert!(cache.get(&store, &keys[0]).await.unwrap().is_some());
            assert!(cache.bytes() <= 40_000);
        }
        store.delete(&keys[0]).await.unwrap();
        assert!(
            cache.get(&store, &keys[0]).await.unwrap().is_some(),
            "the first one was read all the time"
        );
        store.delete(&keys[1]).await.unwrap();
        assert!(cache.get(&store, &keys[1]).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn the_same_hash_of_another_namespace_is_not_there() {
        let (store, cache) = (Memory::default(), Cache::new(1 << 20));
        let bytes = Bytes::from_static(b"x");
        let mine = ObjectKey::of(NamespaceId::from_parts(1, 1), Class::Bundles, &bytes);
        let other = ObjectKey::of(NamespaceId::from_parts(1, 2), Class::Bundles, &bytes);
        store.put(&mine, bytes).await.unwrap();
        assert!(cache.get(&store, &mine).await.unwrap().is_some());
        assert!(cache.get(&store, &other).await.unwrap().is_none());
    }
}
