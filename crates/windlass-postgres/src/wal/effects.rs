//! Log records whose replay changes files by their paths, not pages of relations.
//!
//! Three of them affect more than the files that a backup copied under those names. For a copied
//! database, replay copies the source directory again, as it then is. For a new tablespace, replay
//! makes it again at the absolute path in the record. For the `_init` fork of an unlogged relation,
//! the end of recovery makes the main fork again, which must not be there. The other records only
//! make, overwrite or remove files below the data directory.

use super::records::{Record, Records};
use crate::error::PostgresError;
use crate::lsn::Lsn;

const MANAGER_STORAGE: u8 = 2;
const MANAGER_DATABASE: u8 = 4;
const MANAGER_TABLESPACE: u8 = 5;
const MANAGER_RELATION_MAP: u8 = 7;
/// The resource managers whose bodies are read.
pub(crate) const MANAGERS: [u8; 4] = [
    MANAGER_STORAGE,
    MANAGER_DATABASE,
    MANAGER_TABLESPACE,
    MANAGER_RELATION_MAP,
];
/// The number of the fork that an unlogged relation begins with after a crash.
const FORK_INIT: u32 = 3;
/// From this version on the server may create a database by logging its pages, and the record for
/// dropping one has another number.
const LOGGED_CREATION_SINCE: u32 = 15;
/// Marks in front of a record's main data. A block's number is always lower than these.
const MARK_TOPLEVEL_TRANSACTION: u8 = 252;
const MARK_ORIGIN: u8 = 253;
const MARK_LONG_DATA: u8 = 254;
const MARK_SHORT_DATA: u8 = 255;

/// A database's directory in one tablespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct DatabaseDirectory {
    pub(crate) database: u32,
    pub(crate) tablespace: u32,
}

/// What the replay of a record does to files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Deletes `to`, then copies `from` there, as `from` then is.
    DatabaseCopied {
        to: DatabaseDirectory,
        from: DatabaseDirectory,
    },
    /// Makes a database's directory; the log holds its pages.
    DatabaseCreated(DatabaseDirectory),
    /// Deletes directories of a database.
    DatabaseDropped(Vec<DatabaseDirectory>),
    /// Makes a tablespace at an absolute path, and links to it.
    TablespaceCreated { tablespace: u32, path: Vec<u8> },
    /// Removes a tablespace's directories and its link.
    TablespaceDropped(u32),
    /// Overwrites the relation map of a database, or the shared one.
    RelationMap(DatabaseDirectory),
    /// Makes the `_init` fork of an unlogged relation.
    UnloggedCreated {
        directory: DatabaseDirectory,
        relation: u32,
    },
    /// Makes another fork of a relation, or truncates one.
    Fork,
}

/// The next record that changes files by their paths, with its position.
pub(crate) fn next_effect(
    records: &mut Records<'_>,
) -> Result<Option<(Record, Effect)>, PostgresError> {
    let major = records.major();
    while let Some(record) = records.read_next()? {
        if MANAGERS.contains(&record.manager) {
            let effect = Effect::of(major, &record);
            let effect = effect.ok_or_else(|| unknown(record.start))?;
            return Ok(Some((record, effect)));
        }
    }
    Ok(None)
}

fn unknown(at: Lsn) -> PostgresError {
    PostgresError::WalRecord {
        at,
        what: "a record about files has a form that Windlass does not know",
    }
}

impl Effect {
    /// `None` for a record that no known version writes.
    pub(crate) fn of(major: u32, record: &Record) -> Option<Self> {
        let data = main_data(&record.body)?;
        let (logged, dropped) = if major >= LOGGED_CREATION_SINCE {
            (0x10, 0x20)
        } else {
            (u8::MAX, 0x10)
        };
        Some(match (record.manager, record.info) {
            (MANAGER_DATABASE, 0) => Self::DatabaseCopied {
                to: directory(data, 0)?,
                from: directory(data, 8)?,
            },
            (MANAGER_DATABASE, info) if info == logged => {
                Self::DatabaseCreated(directory(data, 0)?)
            }
            (MANAGER_DATABASE, info) if info == dropped => Self::DatabaseDropped(dropped_in(data)?),
            (MANAGER_TABLESPACE, 0) => Self::TablespaceCreated {
                tablespace: word(data, 0)?,
                path: data.get(4..)?.split(|byte| *byte == 0).next()?.to_vec(),
            },
            (MANAGER_TABLESPACE, 0x10) => Self::TablespaceDropped(word(data, 0)?),
            (MANAGER_STORAGE, 0x10) if word(data, 12)? == FORK_INIT => Self::UnloggedCreated {
                directory: DatabaseDirectory {
                    database: word(data, 4)?,
                    tablespace: word(data, 0)?,
                },
                relation: word(data, 8)?,
            },
            (MANAGER_STORAGE, _) => Self::Fork,
            (MANAGER_RELATION_MAP, 0) => Self::RelationMap(directory(data, 0)?),
            _ => return None,
        })
    }
}

fn dropped_in(data: &[u8]) -> Option<Vec<DatabaseDirectory>> {
    let (database, count) = (word(data, 0)?, word(data, 4)? as usize);
    let tablespaces = data.get(8..)?;
    if count > tablespaces.len() / 4 {
        return None;
    }
    let of = |index: usize| {
        Some(DatabaseDirectory {
            database,
            tablespace: word(tablespaces, index * 4)?,
        })
    };
    (0..count).map(of).collect()
}

fn directory(data: &[u8], at: usize) -> Option<DatabaseDirectory> {
    Some(DatabaseDirectory {
        database: word(data, at)?,
        tablespace: word(data, at + 4)?,
    })
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// The main data of a body that concerns no block. Marks may stand before the data, but nothing
/// follows it.
fn main_data(body: &[u8]) -> Option<&[u8]> {
    let mut rest = body;
    loop {
        let (mark, after) = rest.split_first()?;
        match *mark {
            MARK_TOPLEVEL_TRANSACTION => rest = after.get(4..)?,
            MARK_ORIGIN => rest = after.get(2..)?,
            MARK_SHORT_DATA => {
                let (length, data) = after.split_first()?;
                return (data.len() == usize::from(*length)).then_some(data);
            }
            MARK_LONG_DATA => {
                let (length, data) = (word(after, 0)?, after.get(4..)?);
                return (data.len() == length as usize).then_some(data);
            }
            _ => return None,
        }
    }
}
