//! Relation names without a server: which file of a cluster's image belongs to which relation.
//!
//!   global/pg_filenode.map ---> pg_database ------> database names
//!   DATABASE/pg_filenode.map -> pg_class ---------> file number, schema, kind
//!                                  +-> pg_namespace, pg_index: schema names, what serves what
//!
//! This module reads the catalogs as heap pages and judges each row by its hint bits and pg_xact.
//! Until its log is replayed, an image of a running server mixes several moments. So a row may
//! appear twice, in an older form, or not yet. Therefore every row that was ever inserted counts,
//! and the surest one wins. A name is only for people, and the file's path always stands beside it.
//! Users who need certainty open the image as a server.
//!
//! Invariants
//! - Nothing here fails: if a catalog cannot be read, its fault is listed, and the other names are
//!   there.
//! - No content breaks it: lengths and offsets from pages are bounds-checked, and memory grows only
//!   with the rows that were found.

pub(crate) mod catalog;
pub(crate) mod files;
pub(crate) mod heap;
pub(crate) mod image;
pub(crate) mod map;
mod reader;
mod relation;
pub(crate) mod shared;
mod status;
mod table;
mod wanted;

pub use reader::database_names;
pub use relation::{Relation, RelationKind};
pub use table::{NameFault, NamedFile, RelationNames};
pub use wanted::{RelationPattern, RelationPatternError};
