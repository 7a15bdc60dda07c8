//! Damage that readers met. It is reported once for each frame, however often the frame is read.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use windlass_engine::EngineError;
use windlass_image::ImageError;

use crate::counters::Counters;

/// Places remembered; damage beyond them is told again.
const PLACES_MAX: usize = 65_536;

/// Is told of each damaged place, once, and of what else failed for programs: no room for what they
/// wrote, for one.
#[derive(Clone)]
pub struct DamageHook(Arc<dyn Fn(&ImageError) + Send + Sync>);

impl DamageHook {
    /// Calls `tell` from a thread of the mount.
    pub fn new(tell: impl Fn(&ImageError) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }
}

impl fmt::Debug for DamageHook {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("DamageHook")
    }
}

/// What is known to be damaged.
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

    /// Tells of an error, unless its place is known.
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

/// Where the fault is: on a stripe if that is known, otherwise in the file.
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
