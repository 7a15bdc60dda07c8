//! Opening a journal: which of its records are valid, and what they say.
//!
//! If only the process was killed, everything that it wrote is there, so all whole records are
//! valid. If the system went down, pages and records may have reached the disk in any order. Then
//! only records that the last sync covers are valid, so that no record mentions a page that is not
//! there.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use windlass_engine::media::fitted;

use super::journal::JournalEnd;
use super::record::{MAGIC, Record};

/// How much is read at a time. Several records of the largest kind fit in it.
const CHUNK_BYTES: usize = 1024 * 1024;

/// How much of a journal is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// The journal is valid up to here.
    Until(JournalEnd),
    /// The journal is damaged here: records that were durable follow.
    DamagedAt(u64),
}

/// The id of this run of the system.
pub(crate) fn boot_id() -> io::Result<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let id = u128::from_str_radix(&digits, 16).map_err(io::Error::other)?;
    Ok(id.to_le_bytes())
}

/// Reads through a journal to find out where its valid records end.
pub(crate) fn survey(file: &File, boot: &[u8; 16]) -> io::Result<Holds> {
    let mut records = Records::new(file, u64::MAX);
    let (mut is_same_boot, mut covered) = (true, 0);
    while let Some((record, end)) = records.next()? {
        match record {
            Record::Opened { boot: written } => is_same_boot = written == *boot,
            Record::Synced { covered_bytes, .. } => covered = covered_bytes,
            Record::Closed => covered = end,
            _ => {}
        }
    }
    let end = records.position;
    if end == 0 && !is_begun(file)? {
        return Ok(Holds::DamagedAt(0));
    }
    if follows(file, end, is_same_boot)? {
        return Ok(Holds::DamagedAt(end));
    }
    let covered = covered.min(end);
    Ok(Holds::Until(JournalEnd {
        bytes: if is_same_boot { end } else { covered },
        sequence: records.sequence,
        synced_bytes: covered,
    }))
}

/// Whether a file without a whole record can be a journal whose first record was cut off. Every
/// other file is something else, and must stay as it is.
fn is_begun(file: &File) -> io::Result<bool> {
    let mut first = Vec::new();
    Record::Opened { boot: [0; 16] }.encode(0, &mut first);
    let length = file.metadata()?.len();
    if length > first.len() as u64 {
        return Ok(false);
    }
    let mut found = vec![0; fitted(length)];
    file.read_exact_at(&mut found, 0)?;
    let is_empty = found.iter().all(|byte| *byte == 0);
    let mut magic = found.iter().zip(MAGIC);
    Ok(is_empty || magic.all(|(found, own)| *found == own))
}

/// True when behind the last whole record there are others that cannot have been lost, because then
/// what lies between is damaged. An interrupted record has no such records behind it.
fn follows(file: &File, end: u64, is_same_boot: bool) -> io::Result<bool> {
    let length = file.metadata()?.len().saturating_sub(end);
    let mut rest = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_exact_at(&mut rest, end)?;
    Ok(Record::find_all(&rest).any(|record| match record {
        Record::Synced { durable_bytes, .. } => is_same_boot || durable_bytes > end,
        _ => is_same_boot,
    }))
}

/// The records of a journal, in order.
pub(crate) struct Records<'a> {
    file: &'a File,
    limit: u64,
    /// Where the next record begins, and the least sequence number it may have.
    position: u64,
    sequence: u64,
    buffer: Vec<u8>,
    /// How much of the buffer has been used.
    used: usize,
}

impl<'a> Records<'a> {
    /// Reads up to `limit`, where a record ends.
    pub(crate) fn new(file: &'a File, limit: u64) -> Self {
        Self {
            file,
            limit,
            position: 0,
            sequence: 0,
            buffer: Vec::new(),
            used: 0,
        }
    }

    /// Returns the next record and where it ends; `None` at the end, or where there is no whole
    /// record.
    pub(crate) fn next(&mut self) -> io::Result<Option<(Record, u64)>> {
        if self.position >= self.limit {
            return Ok(None);
        }
        let mut decoded = Record::decode(&self.buffer[self.used..]);
        if decoded.is_none() {
            self.refill()?;
            decoded = Record::decode(&self.buffer);
        }
        let Some((record, sequence, bytes)) = decoded else {
            return Ok(None);
        };
        if sequence < self.sequence {
            return Ok(None);
        }
        self.sequence = sequence + 1;
        self.used += bytes;
        self.position += bytes as u64;
        Ok(Some((record, self.position)))
    }

    fn refill(&mut self) -> io::Result<()> {
        self.buffer.resize(CHUNK_BYTES, 0);
        self.used = 0;
        let mut filled = 0;
        while filled < self.buffer.len() {
            let at = self.position + filled as u64;
            match self.file.read_at(&mut self.buffer[filled..], at) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.buffer.truncate(filled);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::NodeNo;

    const HERE: [u8; 16] = [1; 16];
    const ELSEWHERE: [u8; 16] = [2; 16];

    fn change(number: u64) -> Record {
        Record::Dropped {
            node: NodeNo(number),
        }
    }

    /// A journal of these records, and where each record ends.
    fn journal(records: &[Record]) -> (File, Vec<u64>) {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for (sequence, record) in (0..).zip(records) {
            record.encode(sequence, &mut bytes);
            ends.push(bytes.len() as u64);
        }
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        (file, ends)
    }

    fn until(bytes: u64, sequence: u64, synced_bytes: u64) -> Holds {
        Holds::Until(JournalEnd {
            bytes,
            sequence,
            synced_bytes,
        })
    }

    #[test]
    fn after_a_kill_every_whole_record_holds() {
        let opened = Record::Opened { boot: HERE };
        let (file, ends) = journal(&[opened, change(1), change(2), change(3)]);
        assert_eq!(survey(&file, &HERE).unwrap(), until(ends[3], 4, 0));
        for cut in ends[2] + 1..ends[3] {
            file.set_len(cut).unwrap();
            assert_eq!(survey(&file, &HERE).unwrap(), until(ends[2], 3, 0), "{cut}");
        }
    }

    #[test]
    fn after_a_power_cut_what_was_synced_holds() {
        let opened = Record::Opened { boot: ELSEWHERE };
        let (_, ends) = journal(&[opened.clone(), change(1), change(2)]);
        let synced = Record::Synced {
            covered_bytes: ends[1],
            durable_bytes: 0,
        };
        let records = [opened, change(1), change(2), synced, change(3)];
        let (file, _) = journal(&records);
        assert_eq!(survey(&file, &HERE).unwrap(), until(ends[1], 5, ends[1]));
        let closed = [&records[..], &[Record::Closed]].concat();
        let (file, ends) = journal(&closed);
        assert_eq!(survey(&file, &HERE).unwrap(), until(ends[5], 6, ends[5]));
    }

    #[test]
    fn a_byte_that_changed_in_the_middle_is_damage_and_not_the_end() {
        let opened = Record::Opened { boot: HERE };
        let (file, ends) = journal(&[opened, change(1), change(2), change(3)]);
        for at in ends[0]..ends[2] {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 4], at).unwrap();
            let found = survey(&file, &HERE).unwrap();
            let expected = if at < ends[1] { ends[0] } else { ends[1] };
            assert_eq!(found, Holds::DamagedAt(expected), "byte {at}");
            file.write_all_at(&byte, at).unwrap();
        }
    }

    #[test]
    fn what_a_failed_write_left_is_not_taken_for_a_record() {
        // Records 1 and 2 were written, but that failed. Record 3 took their place and is shorter
        // than both.
        let (mut bytes, mut newer) = (Vec::new(), Vec::new());
        change(1).encode(0, &mut bytes);
        let first = bytes.len();
        change(2).encode(1, &mut bytes);
        change(3).encode(2, &mut bytes);
        change(4).encode(3, &mut newer);
        bytes[first..first + newer.len()].copy_from_slice(&newer);
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        let mut records = Records::new(&file, u64::MAX);
        let mut found = Vec::new();
        while let Some((record, _)) = records.next().unwrap() {
            found.push(record);
        }
        assert_eq!(found, [change(1), change(4)]);
    }
}
