//! Who sees every write to a cluster's files: the write hook, where a server has loaded it.

use std::path::Path;
use std::sync::Arc;

use windlass_postgres::ChangeWitness;
use windlass_snapshot::hook::ChangeMap;

/// The witness of the server on a data directory; none without a hook. An error says why there is
/// none although there should be one.
pub(crate) fn of(data: &Path) -> Result<Option<Arc<dyn ChangeWitness>>, String> {
    let map = ChangeMap::of(data).map_err(|error| error.to_string())?;
    Ok(map.map(|map| Arc::new(map) as _))
}
