//! The laboratory against what was published, and against real storage.

mod rds;
