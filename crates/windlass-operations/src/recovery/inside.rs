//! Whether a server that may write only into its own directory can replay an archived log.

use windlass_engine::OpenSet;
use windlass_postgres::{DatabaseFacts, RecoveryPoint, check_log_inside};
use windlass_repository::LogPlace;

use super::way::Way;
use super::{RecoveryPlan, RecoveryRequest};
use crate::error::OperationError;
use crate::stored::log_at;

/// Refuses a recovery whose log creates a tablespace at its path in the source: replay would change
/// the mode of that path and make a directory there, and on this machine it may be in use.
pub(crate) fn check_inside(
    set: &OpenSet,
    request: &RecoveryRequest,
    plan: &RecoveryPlan,
) -> Result<(), OperationError> {
    if request.point == RecoveryPoint::Immediate {
        return Ok(());
    }
    let facts = DatabaseFacts::of_set(&set.description().facts.database)?;
    let log = LogPlace::open(&log_at(&plan.place), facts.system_identifier.parse().ok())?;
    let way = Way::new(&facts, &log, request)?;
    let (mut reader, start) = way.read()?;
    if start < plan.to {
        check_log_inside(&mut reader, way.segment_bytes, (start, plan.stops))?;
    }
    Ok(())
}
