//! The rows of five system catalogs; only the columns that names and the forms of rows need.
//!
//! All columns read here come before the first one that may be null or of varying length, so each
//! has a fixed place. PostgreSQL 18 inserted `relallfrozen` into the middle of pg_class. In
//! pg_attribute, 16 moved `attstattarget` to the end and made `attndims` shorter, and 18 removed
//! `attcacheoff`.

use super::heap::{u16_at, u32_at};
use super::relation::RelationKind;

/// pg_class.
pub(crate) const CLASS: u32 = 1259;
/// pg_attribute.
pub(crate) const ATTRIBUTE: u32 = 1249;
/// pg_database.
pub(crate) const DATABASE: u32 = 1262;
/// pg_namespace.
pub(crate) const NAMESPACE: u32 = 2615;
/// pg_index.
pub(crate) const INDEX: u32 = 2610;
/// The tablespace pg_default: directories below `base`.
pub(crate) const SPACE_DEFAULT: u32 = 1663;
/// The tablespace pg_global.
pub(crate) const SPACE_GLOBAL: u32 = 1664;

/// The places of columns in this version and build.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    name_bytes: usize,
    class_toast_at: usize,
    /// attlen, which attnum follows.
    attribute_length_at: usize,
    /// attalign.
    attribute_align_at: usize,
}

/// A row of pg_class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClassRow {
    pub(crate) oid: u32,
    pub(crate) name: String,
    pub(crate) namespace: u32,
    /// Oid of the access method; 0 if it has none.
    pub(crate) access_method: u32,
    /// 0 for catalogs whose file number is in a map.
    pub(crate) file_number: u32,
    /// 0 for the database's own tablespace.
    pub(crate) tablespace: u32,
    /// Oid of its TOAST table; 0 if it has none.
    pub(crate) toast: u32,
    pub(crate) kind: RelationKind,
    /// `p` for permanent, `u` for unlogged, `t` for temporary relations.
    pub(crate) persistence: u8,
}

/// A row of pg_attribute: a column of a relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AttributeRow {
    pub(crate) relation: u32,
    /// From 1; system columns have negative numbers.
    pub(crate) number: i16,
    /// Oid of its type; 0 if it was dropped.
    pub(crate) of_type: u32,
    /// How many bytes a value has; negative if they vary.
    pub(crate) length: i16,
    /// Where values begin: `c`, `s`, `i` or `d`.
    pub(crate) align: u8,
}

impl Layout {
    /// The layout for a server of this major version, with names of `name_bytes`.
    pub(crate) fn new(major: u32, name_bytes: usize) -> Self {
        let frozen_pages = if major >= 18 { 4 } else { 0 };
        let after_name = 4 + name_bytes;
        let (length, align) = match major {
            ..16 => (8, 25),
            16 | 17 => (4, 19),
            18.. => (4, 15),
        };
        Self {
            name_bytes,
            class_toast_at: after_name + 40 + frozen_pages,
            attribute_length_at: after_name + length,
            attribute_align_at: after_name + align,
        }
    }

    /// The columns are: oid, name, namespace, type, of type, owner, access method, file number,
    /// tablespace, pages, tuples, all-visible pages [18: all-frozen pages], TOAST table, four flags
    /// and letters.
    pub(crate) fn class(&self, columns: &[u8]) -> Option<ClassRow> {
        let after_name = 4 + self.name_bytes;
        let (oid, name) = self.named(columns)?;
        Some(ClassRow {
            oid,
            name,
            namespace: u32_at(columns, after_name)?,
            access_method: u32_at(columns, after_name + 16)?,
            file_number: u32_at(columns, after_name + 20)?,
            tablespace: u32_at(columns, after_name + 24)?,
            toast: u32_at(columns, self.class_toast_at)?,
            kind: kind(*columns.get(self.class_toast_at + 7)?)?,
            persistence: *columns.get(self.class_toast_at + 6)?,
        })
    }

    /// oid and name: pg_database and pg_namespace both begin with these.
    pub(crate) fn named(&self, columns: &[u8]) -> Option<(u32, String)> {
        let oid = u32_at(columns, 0).filter(|oid| *oid != 0)?;
        let name = columns.get(4..4 + self.name_bytes)?;
        let end = name.iter().position(|byte| *byte == 0)?;
        (end > 0).then(|| (oid, String::from_utf8_lossy(&name[..end]).into_owned()))
    }

    /// The columns are: relation, name, type, [before 16: statistics target], length, number,
    /// [before 16: dimensions; before 18: cached offset], modifier, [16 and later: dimensions],
    /// by value, alignment.
    pub(crate) fn attribute(&self, columns: &[u8]) -> Option<AttributeRow> {
        let length = u16_at(columns, self.attribute_length_at)?;
        let number = u16_at(columns, self.attribute_length_at + 2)?;
        Some(AttributeRow {
            relation: u32_at(columns, 0)?,
            number: number.cast_signed(),
            of_type: u32_at(columns, 4 + self.name_bytes)?,
            length: length.cast_signed(),
            align: *columns.get(self.attribute_align_at)?,
        })
    }

    /// A row of pg_index: the index, and its table.
    pub(crate) fn index(&self, columns: &[u8]) -> Option<(u32, u32)> {
        Some((u32_at(columns, 0)?, u32_at(columns, 4)?))
    }
}

fn kind(letter: u8) -> Option<RelationKind> {
    Some(match letter {
        b'r' => RelationKind::Table,
        b'i' => RelationKind::Index,
        b't' => RelationKind::Toast,
        b'm' => RelationKind::MaterializedView,
        b'S' => RelationKind::Sequence,
        b'v' | b'c' | b'f' | b'p' | b'I' => RelationKind::WithoutFiles,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_row_that_makes_no_sense_is_none() {
        let layout = Layout::new(15, 64);
        let mut row = vec![0; 120];
        row[0] = 9;
        row[4..9].copy_from_slice(b"words");
        row[115] = b'r';
        let class = layout.class(&row).unwrap();
        assert_eq!((class.oid, class.name.as_str()), (9, "words"));
        row[115] = b'?';
        assert_eq!(layout.class(&row), None, "no kind");
        row[4] = 0;
        assert_eq!(layout.named(&row), None, "no name");
        assert_eq!(layout.class(&row[..50]), None, "too short");
    }

    proptest! {
        #[test]
        fn no_row_breaks_the_reader(
            row in proptest::collection::vec(any::<u8>(), 0..200),
            major in 14_u32..19,
            name_bytes in 1_usize..300,
        ) {
            let layout = Layout::new(major, name_bytes);
            drop((layout.class(&row), layout.named(&row), layout.index(&row)));
            let attribute = layout.attribute(&row);
            prop_assert!(attribute.is_none() || row.len() > name_bytes);
        }
    }
}
