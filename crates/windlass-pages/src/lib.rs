//! The page codec: takes the pages of a database apart into columns, and puts them together again.
//!
//!   pages --> [Encoder] --> streams --> a codec, or nothing      (zstd, lz4: not in this crate)
//!   pages <-- [Decoder] <-- streams <--
//!
//! A codec sees bytes. This crate knows what they are: headers that follow from each other, row
//! headers
//! that repeat, integers, decimal numbers, words of a dictionary. It leaves out what follows from
//! the
//! structure and packs the rest, so that a fast codec has little left to do. What it does not
//! understand it keeps as it is. docs/pages.md describes every byte.
//!
//! ```
//! use windlass_pages::{Decoder, Encoded, Encoder, Layout, PageSize, Streams};
//!
//! let page_size = PageSize::new(8192).expect("PostgreSQL's");
//! let layout = Layout::PostgresHeap { page_size, columns: Vec::new() };
//! let raw = vec![0; 131_072];
//! let mut streams = Streams::new();
//! assert_eq!(Encoder::new().encode(&layout, &raw, &mut streams), Encoded::Streams);
//!
//! let slices: Vec<&[u8]> = streams.iter().map(|(stream, _)| stream).collect();
//! let mut back = vec![1; raw.len()];
//! Decoder::new().decode(&layout, &slices, &mut back)?;
//! assert_eq!(back, raw);
//! # Ok::<_, windlass_pages::PagesError>(())
//! ```
//!
//! Invariants
//! - Whatever bytes an encoder gets, and whatever layout: the decoder gives the same bytes back.
//! - A decoder never panics, and its memory is bounded by the length of the frame, whatever it
//!   reads.
//! - No file, no thread, no clock, no unsafe code.

#![forbid(unsafe_code)]

mod attributes;
mod bits;
mod btree;
mod cells_back;
mod choice;
mod covered;
mod cut;
mod decoder;
mod digits;
mod encoder;
mod error;
mod forms;
mod frame;
mod heap;
mod integers;
mod join;
mod layout;
mod leaf;
mod leaf_rebuild;
mod leaf_survey;
mod number;
mod numeric;
mod opaque;
mod pattern;
mod places;
mod pointers;
mod reals;
mod rebuild;
mod records;
mod records_back;
mod slotted;
mod streams;
mod survey;
mod texts;
mod texts_back;
mod words;

pub use decoder::Decoder;
pub use encoder::{Encoded, Encoder};
pub use error::PagesError;
pub use frame::RAW_BYTES_MAX;
pub use layout::{Align, COLUMNS_MAX, Column, Layout, PageSize};
pub use streams::{Hint, STREAMS_MAX, Streams};
