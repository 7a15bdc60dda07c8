//! What a file of events says: where the time went, call by call, and how the run went over time.
//!
//!   FILE --> EventFile (lines, weights) --> groups by stage and cause, by device --> table
//!                                      \--> samples --> charts --> a page
//!
//! Each event stands for as many events as its weight says. So counts, sums and percentiles are
//! those of the run, except for the noise that thinning adds. They are not checked against the
//! exact totals. Those stand in the file's last line, and the page shows them.
//!
//! Invariants
//! - Lines of unknown kinds are skipped, because a newer program may write some. A file with a
//!   newer version of the format is refused.
//! - A file that was cut off is read as far as it goes, and the summary says that it was cut off.

mod page;
mod read;
mod spread;
mod summary;

pub use page::event_page;
pub use read::EventFile;
pub use spread::Spread;
pub use summary::{EventTable, IoRow, WaitRow};

#[cfg(test)]
mod tests;
