//! A snapshot whose files are kept one by one, as an image with its facts. One that is a set is
//! found as a set (`places`).

use std::path::Path;
use std::sync::Arc;

use windlass_engine::media::{Facts, FileTable};
use windlass_image::Image;
use windlass_snapshot::{Content, Method, Snapshot};

use crate::caller::Caller;
use crate::error::OperationError;
use crate::opened::ToOpen;
use crate::places::{Configured, PlaceError, SetRequest};
use crate::privilege;

/// A snapshot that is read as an image. It cannot be dropped meanwhile.
#[derive(Clone)]
pub struct SnapshotImage {
    snapshot: Snapshot,
    image: Arc<dyn Image>,
}

impl SnapshotImage {
    /// The snapshot that a word means. `None` if it means something else, or a snapshot that is a
    /// set.
    pub fn find(
        caller: &Caller,
        word: &Path,
        configured: &[Configured],
    ) -> Result<Option<Self>, OperationError> {
        let Some(snapshot) = super::find_named(caller, word, configured)? else {
            return Ok(None);
        };
        if snapshot.record().method == Method::Copy {
            return Ok(None);
        }
        match snapshot.content()? {
            Content::Files(image) => Ok(Some(Self { snapshot, image })),
            Content::Set(_) => Ok(None),
        }
    }

    /// The snapshot that is asked for in the place of a set.
    pub fn of_request(
        caller: &Caller,
        request: &SetRequest,
    ) -> Result<Option<Self>, OperationError> {
        match request.words.as_slice() {
            [word] => {
                let found = Self::find(caller, word, &request.configured)?;
                let choice = &request.choice;
                match found.is_some() && (choice.which.is_some() || choice.of.is_some()) {
                    true => Err(PlaceError::ChosenSnapshot { word: word.clone() }.into()),
                    false => Ok(found),
                }
            }
            _ => Ok(None),
        }
    }

    /// The snapshot.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Its files.
    pub fn image(&self) -> &Arc<dyn Image> {
        &self.image
    }

    /// What is known about the database in it.
    pub fn facts(&self) -> &Facts {
        &self.snapshot.record().facts
    }

    /// The list of its files.
    pub fn files(&self) -> &FileTable {
        self.image.files()
    }

    /// What people call it.
    pub fn title(&self) -> String {
        let record = self.snapshot.record();
        let source = record.source.path.display();
        format!("snapshot {} of {source}", record.name)
    }

    /// The user and group whose it is.
    pub fn owner(&self) -> Option<(u32, u32)> {
        privilege::owner(self.snapshot.path())
    }

    /// The same, to be opened as a database.
    pub fn to_open(&self) -> Result<ToOpen, OperationError> {
        let image = Arc::clone(&self.image);
        let opened = ToOpen::image(image, self.facts().clone(), &self.title(), self.owner())?;
        Ok(opened.lying_in(self.snapshot.path()))
    }
}
