//! What a file of events holds: the waits and transfers of a recorded run, as a table or a page.

use std::path::PathBuf;

use windlass_lab::chart::PAGE;
use windlass_lab::{EventFile, EventTable, event_page};

use crate::error::OperationError;
use crate::outputs::outputs;

/// Which file to evaluate.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// The file of events.
    pub file: PathBuf,
    /// Where to write a page with charts.
    pub page: Option<PathBuf>,
}

/// Evaluates a file of events.
pub fn evaluate(request: &RecordedRequest) -> Result<EventTable, OperationError> {
    let file = EventFile::open(&request.file)?;
    let table = EventTable::of(&file);
    if let Some(path) = &request.page {
        let page = event_page(&file, &table);
        outputs().replace(path, &PAGE, page.as_bytes(), 0o644)?;
    }
    Ok(table)
}
