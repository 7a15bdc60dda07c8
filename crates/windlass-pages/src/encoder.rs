//! Pages to streams.

use crate::btree::BtreeEncoder;
use crate::frame::{Pages, check_length, pages};
use crate::heap::HeapEncoder;
use crate::integers::IntegerEncoder;
use crate::layout::{Column, Layout};
use crate::leaf::Form;
use crate::leaf_survey::LeafSurvey;
use crate::records::RecordEncoder;
use crate::slotted::{Order, Shape};
use crate::streams::Streams;
use crate::survey::Survey;

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoded {
    /// The frame is in the streams.
    Streams,
    /// The streams would not be shorter, or the frame is no whole number of pages. What is in them
    /// has no meaning.
    NotWorth,
}

/// Takes frames apart. It keeps its memory for the next frame.
#[derive(Debug, Default)]
pub struct Encoder {
    survey: Survey,
    heap: HeapEncoder,
    btree: BtreeEncoder,
    leaf_survey: LeafSurvey,
    records: RecordEncoder,
    integers: IntegerEncoder,
}

impl Encoder {
    /// Without memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the pages of a frame apart. What was in the streams before is gone.
    pub fn encode(&mut self, layout: &Layout, raw: &[u8], streams: &mut Streams) -> Encoded {
        streams.clear();
        if raw.is_empty() || check_length(layout, raw.len()).is_err() {
            return Encoded::NotWorth;
        }
        let found = match pages(layout) {
            Ok(Pages::Slotted(shape)) => self.slotted(shape, layout.columns(), raw, streams),
            Ok(Pages::Leaves(form)) => self.leaves(form, raw, streams),
            Err(_) => false,
        };
        if found && streams.bytes() < raw.len() {
            Encoded::Streams
        } else {
            Encoded::NotWorth
        }
    }

    /// Takes PostgreSQL's pages apart. `false` if there is none to take apart.
    fn slotted(
        &mut self,
        shape: Shape,
        columns: &[Column],
        raw: &[u8],
        streams: &mut Streams,
    ) -> bool {
        let Self {
            survey,
            heap,
            btree,
            integers,
            ..
        } = self;
        survey.pages(raw, shape);
        if !survey.found_any() {
            return false;
        }
        survey.put(raw, shape, integers, streams);
        match shape.order {
            Order::Place => heap.encode(raw, survey.rows(), columns, integers, streams),
            Order::Slot => btree.encode(raw, survey.rows(), columns, integers, streams),
        }
        survey.put_remains(raw, shape, streams);
        true
    }

    /// Takes SQLite's pages apart. `false` if there is none to take apart.
    fn leaves(&mut self, form: Form, raw: &[u8], streams: &mut Streams) -> bool {
        let Self {
            leaf_survey: survey,
            records,
            integers,
            ..
        } = self;
        survey.pages(raw, form);
        if !survey.found_any() {
            return false;
        }
        survey.put(integers, streams);
        records.encode(raw, survey.leaves(), survey.cells(), integers, streams);
        survey.put_remains_of_all(streams);
        true
    }
}
