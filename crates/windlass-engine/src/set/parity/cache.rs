//! A few members and group blocks that were read or rebuilt last, so that a reader of small parts
//! does not rebuild a member for each of them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// The values that were used last, with their keys.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    values: Mutex<VecDeque<(K, Arc<V>)>>,
    most: usize,
}

impl<K: PartialEq, V> Recent<K, V> {
    pub(super) fn new(most: usize) -> Self {
        let values = Mutex::default();
        Self { values, most }
    }

    /// The value of a key, or the one that is made now. Two threads may make it at the same time.
    pub(super) fn get_or<E>(
        &self,
        key: K,
        make: impl FnOnce() -> Result<V, E>,
    ) -> Result<Arc<V>, E> {
        let lock = || self.values.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut values = lock();
            let place = values.iter().position(|(known, _)| *known == key);
            if let Some(found) = place.and_then(|place| values.remove(place)) {
                let value = Arc::clone(&found.1);
                values.push_front(found);
                return Ok(value);
            }
        }
        let value = Arc::new(make()?);
        let mut values = lock();
        values.push_front((key, Arc::clone(&value)));
        values.truncate(self.most);
        Ok(value)
    }
}
