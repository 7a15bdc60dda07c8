//! `windlass diff`: which files and pages differ between two images, by relation for PostgreSQL.
//!
//!   two images --compare--> differing files --names--> relations, other files --> lines, or JSON

mod report;
mod show;

use std::path::PathBuf;
use std::sync::Arc;

use windlass_engine::{Cancel, Progress};
use windlass_image::{CompareOptions, Image, compare};
use windlass_postgres::RelationNames;

use crate::cli::{Diff, Global};
use crate::exit::{Code, Failure};
use crate::images::{AsCluster, ImageKind, ImageRequest, OpenImage};
use crate::output;
use crate::progress::{Show, Shown};
use crate::requests;
use crate::signals;
use report::{DiffReport, Side};
use windlass_operations::SetChoice;

/// The page size if the images have no pages of their own.
const PAGE_BYTES_DEFAULT: u32 = 8192;

pub fn run(global: &Global, arguments: &Diff) -> Result<Code, Failure> {
    let cancel = signals::cancel_on_signals()?;
    // A set is opened first: an image that is none decides which user this process becomes, and
    // that user need not be allowed to read the set.
    let mut places = [&arguments.first, &arguments.second];
    let swapped = OpenImage::is_live(&arguments.first) && !OpenImage::is_live(&arguments.second);
    if swapped {
        places.swap(0, 1);
    }
    let caller = requests::quiet_caller(global);
    let open = |place: &PathBuf| {
        let request = ImageRequest {
            place: place.clone(),
            choice: SetChoice {
                of: arguments.of.clone(),
                ..SetChoice::default()
            },
            configured: global.configured.clone(),
        };
        OpenImage::open(&caller, &request, &cancel)
    };
    let (one, other) = (open(places[0])?, open(places[1])?);
    let (first, second) = if swapped { (other, one) } else { (one, other) };
    let page_bytes = page_bytes(&first, &second)?;
    for image in [&first, &second] {
        if image.holds_writers() {
            let place = image.place.display();
            output::note(&format!(
                "note: nobody can commit to {place} until this ends"
            ));
        }
    }
    let report = compared(global, arguments, (&first, &second), page_bytes, &cancel)?;
    for fault in &report.faults {
        output::note(&format!("warning: relation names: {fault}"));
    }
    if global.json {
        output::line(&show::json(&report, (&first, &second), arguments.pages).to_string());
    } else {
        show::lines(&report, arguments.pages);
    }
    first.close()?;
    second.close()?;
    let same = report.is_same() && report.faults.is_empty();
    Ok(if same { Code::Done } else { Code::Warnings })
}

fn compared(
    global: &Global,
    arguments: &Diff,
    (first, second): (&OpenImage, &OpenImage),
    page_bytes: u32,
    cancel: &Cancel,
) -> Result<DiffReport, Failure> {
    let progress = Arc::<Progress>::default();
    let shown = Shown::start(&progress, Show::choose(global.is_silent(), 10));
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
        believe: believed(arguments, postgres),
        live: postgres && !(first.is_set() && second.is_set()),
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
        side(first.image(), &ours, first.is_set()),
        side(second.image(), &theirs, second.is_set()),
    ];
    let first_page = u64::from(matches!(first.kind, ImageKind::Sqlite(_)));
    let layout = (page_bytes, first_page);
    Ok(DiffReport::new(&differences, &sides, layout, options.skip))
}

/// Chooses whose checksums are trusted: those of pages that carry an LSN. In other files, and in
/// SQLite's pages, data that are followed by their own CRC-32C could change without a change of the
/// checksum.
fn believed(arguments: &Diff, postgres: bool) -> fn(&[u8]) -> bool {
    match (arguments.every_byte, arguments.quick) {
        (true, _) => |_| false,
        (false, true) => |_| true,
        (false, false) if postgres => windlass_postgres::is_relation_file,
        (false, false) => |_| false,
    }
}

/// The page size that both images have.
fn page_bytes(first: &OpenImage, second: &OpenImage) -> Result<u32, Failure> {
    let pages = match (first.kind, second.kind) {
        (ImageKind::Sqlite(0), ImageKind::Sqlite(pages)) => pages,
        (ImageKind::Sqlite(pages), ImageKind::Sqlite(_)) => pages,
        (one, other) if one == other => 0,
        _ => {
            let (one, other) = (first.place.display(), second.place.display());
            let message = format!("{one} and {other} are of different kinds of database");
            let hint = "Compare two images of PostgreSQL clusters, or two of SQLite databases.";
            return Err(Failure::usage(message, hint));
        }
    };
    Ok(if pages == 0 {
        PAGE_BYTES_DEFAULT
    } else {
        pages
    })
}
