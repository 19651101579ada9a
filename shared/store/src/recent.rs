//! A cache in memory with a size limit. It holds immutable values by their hash, so no entry
//! becomes stale.
//!
//! The cache has two generations, `young` and `old`. Before an insertion would fill the younger one
//! beyond half of the capacity, the older one is dropped and the younger one takes its place. A
//! value that is read from the older one moves back into the younger. So values that are read in
//! turn stay if they have at most half of the capacity together, and the memory never exceeds it.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

/// A cache of the most recently used values, about `capacity` bytes in total.
pub struct Recent<K, V> {
    capacity: usize,
    held: Mutex<Generations<K, V>>,
}

struct Generations<K, V> {
    young: HashMap<K, (V, usize)>,
    young_bytes: usize,
    old: HashMap<K, (V, usize)>,
}

/// Approximate size of an entry in addition to its value, in bytes.
const OVERHEAD: usize = 256;

impl<K: Eq + Hash, V: Clone> Recent<K, V> {
    /// Creates an empty cache of `capacity` bytes. With 0 it keeps nothing.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            held: Mutex::new(Generations {
                young: HashMap::new(),
                young_bytes: 0,
                old: HashMap::new(),
            }),
        }
    }

    /// Returns the value under this key, if it is cached.
    pub fn find<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        // A poisoned lock is harmless: the cache may be incomplete after a panic, but its values
        // are immutable.
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((value, _)) = held.young.get(key) {
            return Some(value.clone());
        }
        // Moving the value keeps it when the old generation is dropped. This approximates "least
        // recently used" without a linked list.
        let (key, (value, size)) = held.old.remove_entry(key)?;
        self.insert_young(&mut held, key, value.clone(), size);
        Some(value)
    }

    /// Stores a value of `size` bytes. A value larger than half of the capacity is not stored.
    pub fn insert_value(&self, key: K, value: V, size: usize) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        self.insert_young(&mut held, key, value, size);
    }

    /// Keeps only the entries whose keys `keep` accepts.
    pub fn retain(&self, mut keep: impl FnMut(&K) -> bool) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.old.retain(|key, _| keep(key));
        held.young.retain(|key, _| keep(key));
        held.young_bytes = held.young.values().map(|(_, size)| size + OVERHEAD).sum();
    }

    fn insert_young(&self, held: &mut Generations<K, V>, key: K, value: V, size: usize) {
        let cost = size.saturating_add(OVERHEAD);
        let half = self.capacity / 2;
        // A value that fills a whole generation would evict everything else.
        if cost > half {
            return;
        }
        if held.young_bytes + cost > half {
            held.old = std::mem::take(&mut held.young);
            held.young_bytes = 0;
        }
        held.young_bytes += cost;
        // The replaced value was counted when it was inserted.
        if let Some((_, replaced)) = held.young.insert(key, (value, size)) {
            held.young_bytes -= replaced + OVERHEAD;
        }
    }
}

impl<K, V> fmt::Debug for Recent<K, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Recent")
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(recent: &Recent<u32, u32>) -> usize {
        let held = recent.held.lock().unwrap();
        let sum = |map: &HashMap<u32, (u32, usize)>| {
            map.values().map(|(_, size)| size + OVERHEAD).sum::<usize>()
        };
        assert_eq!(sum(&held.young), held.young_bytes);
        sum(&held.young) + sum(&held.old)
    }

    #[test]
    fn stays_below_its_capacity_and_keeps_what_is_read_often() {
        let recent = Recent::new(40_000);
        for n in 0..50 {
            recent.insert_value(n, n * 2, 2_000);
            recent.insert_value(n, n, 2_000);
            assert_eq!(recent.find(&n), Some(n));
            assert_eq!(recent.find(&0), Some(0), "read all the time");
            assert!(bytes(&recent) <= 40_000);
        }
        assert_eq!(recent.find(&1), None);
        recent.retain(|key| *key != 0);
        assert_eq!(recent.find(&0), None);
        assert!(bytes(&recent) <= 40_000);
        recent.insert_value(100, 100, 20_000);
        assert_eq!(recent.find(&100), None, "too large");
        let none = Recent::new(0);
        none.insert_value(1, 1, 0);
        assert_eq!(none.find(&1), None);
    }
}
