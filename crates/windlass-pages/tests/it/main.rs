//! The page codec over pages that PostgreSQL wrote, pages that nobody wrote, and streams that
//! nobody made.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]
#![allow(clippy::cast_possible_truncation, reason = "what tests count is small")]

mod btrees;
mod corpus;
mod decoders;
mod golden;
mod hostile;
mod leaves;
mod made;
mod real;
mod support;
