//! Which files and pages differ between two images, by relation for PostgreSQL.
//!
//!   two images --compare--> differing files --names--> relations, other files

mod report;

use std::path::PathBuf;
use std::sync::Arc;

use windlass_engine::{Cancel, Progress};
use windlass_image::{CompareOptions, Image, ImageStatistics, compare};
use windlass_postgres::RelationNames;

use crate::caller::Caller;
use crate::ending::Ending;
use crate::error::OperationError;
use crate::images::{AsCluster, ImageKind, ImageRequest, OpenImage};
use crate::notice::Notice;
use report::Side;

pub use report::{DatabaseDiff, DiffReport, FileDiff, Pages, RelationDiff};

/// The page size if the images have no pages of their own.
const PAGE_BYTES_DEFAULT: u32 = 8192;

/// What to compare, and how.
#[derive(Clone, Debug, Default)]
pub struct DiffRequest {
    /// One image.
    pub first: ImageRequest,
    /// The other.
    pub second: ImageRequest,
    /// Whose checksums are taken for their contents.
    pub believe: Believe,
}

/// Whose checksums are taken for their contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Believe {
    /// Those of pages that carry an LSN. In other files, and in SQLite's pages, data that are
    /// followed by their own CRC-32C could change without a change of the checksum.
    #[default]
    Pages,
    /// All.
    All,
    /// None: every byte is read.
    Nothing,
}

/// What differs.
pub struct DiffOutcome {
    /// The differences.
    pub report: DiffReport,
    /// The images.
    pub images: [ComparedImage; 2],
}

/// An image that was compared.
pub struct ComparedImage {
    /// The name that the user gave.
    pub place: PathBuf,
    /// Whether it is a backup set, which never changes.
    pub is_set: bool,
    /// The cost of reading a set.
    pub statistics: Option<ImageStatistics>,
}

impl DiffOutcome {
    /// How the operation ends: with warnings if something differs, or may.
    pub fn ending(&self) -> Ending {
        match self.report.is_same() && self.report.faults.is_empty() {
            true => Ending::Done,
            false => Ending::Warnings,
        }
    }
}

/// Compares two images.
pub fn diff(
    caller: &Caller,
    request: &DiffRequest,
    cancel: &Cancel,
) -> Result<DiffOutcome, OperationError> {
    // A set is opened first: an image that is none decides which user this process becomes, and
    // that user need not be allowed to read the set.
    // A recovered image is opened last, because the same user has to make and to remove its files.
    let mut asked = [&request.first, &request.second];
    let is_late = |image: &ImageRequest| match image.at {
        Some(_) => 2,
        None => i32::from(OpenImage::is_live(&image.place)),
    };
    let swapped = is_late(asked[0]) > is_late(asked[1]);
    if swapped {
        asked.swap(0, 1);
    }
    let open = |image: &ImageRequest| OpenImage::open(caller, image, cancel);
    let (one, other) = (open(asked[0])?, open(asked[1])?);
    let (first, second) = if swapped { (other, one) } else { (one, other) };
    let page_bytes = page_bytes(&first, &second)?;
    for image in [&first, &second] {
        if image.holds_writers() {
            caller.tell(&Notice::HoldsWriters(&image.place));
        }
    }
    let report = compared(caller, request, (&first, &second), page_bytes, cancel)?;
    let images = [&first, &second].map(|image| ComparedImage {
        place: image.place.clone(),
        is_set: image.is_set(),
        statistics: image.statistics(),
    });
    first.close()?;
    second.close()?;
    Ok(DiffOutcome { report, images })
}

fn compared(
    caller: &Caller,
    request: &DiffRequest,
    (first, second): (&OpenImage, &OpenImage),
    page_bytes: u32,
    cancel: &Cancel,
) -> Result<DiffReport, OperationError> {
    let progress = Arc::<Progress>::default();
    let shown = caller.observer.watch(&progress);
    let postgres = first.kind == ImageKind::Postgres;
    let names = |image: &dyn Image| match postgres {
        true => RelationNames::read(&AsCluster(image)),
        false => RelationNames::default(),
    };
    let (ours, theirs) = (names(first.image()), names(second.image()));
    let block_bytes = ours.block_bytes().max(theirs.block_bytes());
    let page_bytes = if block_bytes > 0 {
        block_bytes
    } else {
        page_bytes
    };
    let options = CompareOptions {
        page_bytes,
        believe: believed(request.believe, postgres),
        live: postgres && !(first.is_fixed() && second.is_fixed()),
        skip: if postgres {
            windlass_postgres::is_beside_the_data
        } else {
            |_| false
        },
        progress: Arc::clone(&progress),
        cancel: cancel.clone(),
    };
    let differences = compare(first.image(), second.image(), &options)?;
    drop(shown);
    let side = |image, names, is_set| Side {
        image,
        names,
        is_set,
    };
    let sides = [
        side(first.image(), &ours, first.is_fixed()),
        side(second.image(), &theirs, second.is_fixed()),
    ];
    let first_page = u64::from(matches!(first.kind, ImageKind::Sqlite(_)));
    let layout = (page_bytes, first_page);
    Ok(DiffReport::new(&differences, &sides, layout, options.skip))
}

/// Chooses whose checksums are trusted.
fn believed(believe: Believe, postgres: bool) -> fn(&[u8]) -> bool {
    match believe {
        Believe::Nothing => |_| false,
        Believe::All => |_| true,
        Believe::Pages if postgres => windlass_postgres::is_relation_file,
        Believe::Pages => |_| false,
    }
}

/// The page size that both images have.
fn page_bytes(first: &OpenImage, second: &OpenImage) -> Result<u32, OperationError> {
    let pages = match (first.kind, second.kind) {
        (ImageKind::Sqlite(0), ImageKind::Sqlite(pages)) => pages,
        (ImageKind::Sqlite(pages), ImageKind::Sqlite(_)) => pages,
        (one, other) if one == other => 0,
        _ => {
            return Err(OperationError::DifferentKinds {
                one: first.place.clone(),
                other: second.place.clone(),
            });
        }
    };
    Ok(if pages == 0 {
        PAGE_BYTES_DEFAULT
    } else {
        pages
    })
}
