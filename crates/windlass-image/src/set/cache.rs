//! A cache of shared values with a capacity in bytes.
//!
//! quick_cache does the work. Its locks are sharded. A scan does not push out values that are used
//! often. If several readers miss the same value, one makes it and the others wait. We give it the
//! size of each value, and a capacity that is a multiple of the number of its shards, because it
//! would round each shard's part up.

use std::hash::Hash;
use std::sync::Arc;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use windlass_engine::EngineError;
use windlass_engine::media::fitted;

/// Most shards. With several, threads that look up different values seldom meet.
const SHARDS: usize = 4;
/// The share for values that were used more than once. The rest is for new values: what was read
/// ahead must stay there until somebody reads it.
const HOT_SHARE: f64 = 0.5;
/// Memory of an entry besides its value: key, links, hash table, reference counts.
const ENTRY_BYTES: usize = 128;

/// States how much memory a value takes.
pub(crate) trait Weighed {
    fn memory_bytes(&self) -> usize;
}

#[derive(Clone)]
struct Bytes;

impl<K, V: Weighed> Weighter<K, Arc<V>> for Bytes {
    fn weight(&self, _key: &K, value: &Arc<V>) -> u64 {
        (value.memory_bytes() + ENTRY_BYTES) as u64
    }
}

/// Values by key. Together they never take more than the capacity.
pub(crate) struct ByteCache<K, V>(Cache<K, Arc<V>, Bytes>);

impl<K: Eq + Hash + Copy, V: Weighed> ByteCache<K, V> {
    /// A cache of `capacity` bytes for values of about `value_bytes` each.
    pub(crate) fn new(capacity: u64, value_bytes: u64) -> Self {
        let items = capacity / (value_bytes + ENTRY_BYTES as u64).max(1);
        let options = OptionsBuilder::new()
            .shards(SHARDS)
            .hot_allocation(HOT_SHARE)
            .estimated_items_capacity(fitted::<usize, _>(items).max(1))
            .weight_capacity(capacity - capacity % SHARDS as u64)
            .build()
            .unwrap_or_else(|_| unreachable!("both capacities are given"));
        let (hasher, lifecycle) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        Self(Cache::with_options(options, Bytes, hasher, lifecycle))
    }

    /// The value of `key`. If it is not there, one thread makes it. A failure is not kept.
    pub(crate) fn get_or_make(
        &self,
        key: K,
        make: impl FnOnce() -> Result<V, EngineError>,
    ) -> Result<Arc<V>, EngineError> {
        self.0.get_or_insert_with(&key, || make().map(Arc::new))
    }

    /// The value of `key`, if it is there.
    pub(crate) fn get(&self, key: K) -> Option<Arc<V>> {
        self.0.get(&key)
    }

    /// How much memory the values may take.
    pub(crate) fn capacity(&self) -> u64 {
        self.0.capacity()
    }

    /// How much memory the values take now.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.weight()
    }
}
