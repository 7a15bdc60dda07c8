//! Damage that readers met. It is reported once for each frame, however often the frame is read.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use windlass_engine::EngineError;
use windlass_image::ImageError;

use crate::counters::Counters;

/// How many places are remembered. A full list is emptied, and its places may be reported again.
const PLACES_MAX: usize = 65_536;

/// Receives each damaged place once. It also receives the other errors that programs met, such as
/// no room for what they wrote.
#[derive(Clone)]
pub struct DamageHook(Arc<dyn Fn(&ImageError) + Send + Sync>);

impl DamageHook {
    /// The mount calls `tell` from one of its threads.
    pub fn new(tell: impl Fn(&ImageError) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }
}

impl fmt::Debug for DamageHook {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("DamageHook")
    }
}

/// The damage that is known so far.
pub(crate) struct DamageLog {
    hook: Option<DamageHook>,
    places: Mutex<HashSet<(String, u64)>>,
    counters: Arc<Counters>,
}

impl DamageLog {
    pub(crate) fn new(hook: Option<DamageHook>, counters: Arc<Counters>) -> Self {
        Self {
            hook,
            places: Mutex::default(),
            counters,
        }
    }

    /// Reports an error, unless its place is known already.
    pub(crate) fn note(&self, error: &ImageError) {
        let place = place(error);
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= PLACES_MAX {
            places.clear();
        }
        if !places.insert(place) {
            return;
        }
        drop(places);
        if error.is_of_set() {
            self.counters.damaged.add(1);
        }
        if let Some(DamageHook(tell)) = &self.hook {
            tell(error);
        }
    }
}

/// Where the fault is: the place on the stripe if that is known, otherwise the place in the file.
fn place(error: &ImageError) -> (String, u64) {
    match error {
        ImageError::Read { source, .. } => match source {
            EngineError::Damage {
                location, offset, ..
            } => (location.clone(), *offset),
            EngineError::DeviceIo { device, offset, .. } => (device.clone(), *offset),
            _ => (error.to_string(), 0),
        },
        ImageError::Missing { path, offset } => (path.clone(), *offset),
        _ => (error.to_string(), 0),
    }
}
