//! The log of a SQLite database in a place: its transactions, in objects.
//!
//!   object = [stand][commit][commit] ... [stand][commit] ...
//!
//! Each object begins with a stand: which state the records before lead to, and where that state
//! stands in the database's own log. So every object can be read alone, and a set is found in the
//! log by where its state stands (`link`). A timeline has every transaction from its first stand
//! on. If something was lost in between, a new timeline begins.
//!
//! Invariants
//! - A record counts if it is there completely. A writer that was cut off leaves the part of one at
//!   the end of its object. The next object then begins behind it, with a stand at the last whole
//!   record.
//! - A reader checks that each object goes on where the one before ended.
//! - Two processes never write the log of one database: a directory is locked, and in a bucket the
//!   writer leaves a note. If two do not see each other's notes all the same, what they stored can
//!   be read (`outermost.rs`), and the first one that would join its parts ends.

mod link;
mod reader;
mod stand;
mod writer;
mod written;

pub use link::{Linked, Links, link};
pub use reader::{CommitReader, Record};
pub use stand::{StandAbout, database_number};
pub use writer::{CommitLog, NewCommit};
pub use written::{WrittenSince, written_since};
