//! What a file of events says: where the time went, call by call, and how the run went over time.
//!
//!   FILE --> EventFile (lines, weights) --> groups by stage and cause, by device --> table
//!                                      \--> samples --> charts --> a page
//!
//! Each event stands for as many as its weight says: counts, sums and percentiles are those of the
//! run, but for the noise of thinning. What is summed up here is compared with nothing: the exact
//! totals stand in the file's last line, and the page shows them.
//!
//! Invariants
//! - Lines of unknown kinds are passed over: a newer program may write some. A newer version of the
//!   format is refused.
//! - A file that is cut off is read as far as it goes, and the summary says that it is.

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
