//! What encoder and decoder know about a frame before they look at its bytes.

use crate::error::PagesError;
use crate::layout::Layout;
use crate::leaf::{self, Form};
use crate::slotted::{Order, Shape};

/// Longest frame, in bytes.
pub const RAW_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The special space of a B-tree's page: siblings, level, flags, cycle id.
const BTREE_SPECIAL_BYTES: usize = 16;

/// What the pages of a frame have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pages {
    /// PostgreSQL's.
    Slotted(Shape),
    /// SQLite's.
    Leaves(Form),
}

/// What kind of pages a layout means.
pub(crate) fn pages(layout: &Layout) -> Result<Pages, PagesError> {
    let page_bytes = layout.page_size().bytes();
    let slotted = |special_bytes, order| {
        Pages::Slotted(Shape {
            page_bytes,
            special_bytes,
            order,
        })
    };
    match layout {
        Layout::PostgresHeap { .. } => Ok(slotted(0, Order::Place)),
        Layout::PostgresBtree { .. } => Ok(slotted(BTREE_SPECIAL_BYTES, Order::Slot)),
        Layout::Sqlite { reserved_bytes, .. } => {
            let usable = page_bytes - usize::from(*reserved_bytes);
            if usable < leaf::USABLE_MIN {
                let what = "no page of SQLite has so many reserved bytes";
                return Err(PagesError::Layout { what });
            }
            Ok(Pages::Leaves(Form { page_bytes, usable }))
        }
    }
}

/// Checks that a frame has pages and nothing else.
pub(crate) fn check_length(layout: &Layout, bytes: usize) -> Result<(), PagesError> {
    let page_bytes = layout.page_size().bytes();
    if bytes <= RAW_BYTES_MAX && bytes.is_multiple_of(page_bytes) {
        return Ok(());
    }
    Err(PagesError::Length { bytes, page_bytes })
}
