//! The journal's records: what changed, in bytes that show whether they are whole.
//!
//!   magic  4 | payload length  4 | sequence  8 | payload | CRC-32C of all before  4
//!
//! All numbers are little-endian. docs/overlay.md has the payloads.
//!
//! Invariants
//! - Bytes are a record only if length, sequence and checksum are right. The beginning of a record
//!   alone never passes for one.
//! - Sequence numbers go up, and each is used once, also for records whose write failed. So the
//!   rest of a failed write never passes for a later record.

use std::ops::Range;

use windlass_engine::media::{FileKind, crc32c, fitted};

use crate::store::Slot;
use crate::view::NodeNo;

/// Bytes of a page.
pub(crate) const PAGE_BYTES: usize = 8192;

pub(crate) const MAGIC: [u8; 4] = *b"WJR1";
const HEADER_BYTES: usize = 16;
const CRC_BYTES: usize = 4;
/// Room for two names of 255 bytes, or a link's target of 4096, and the fields beside them.
const PAYLOAD_BYTES_MAX: usize = 8192;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The overlay was opened. `boot` is the id of the system's run at that time.
    Opened { boot: [u8; 16] },
    /// Once this record is written, all records before `covered_bytes` of the journal are durable,
    /// and so are their pages. Those before `durable_bytes` were durable before this record was
    /// written.
    Synced {
        covered_bytes: u64,
        durable_bytes: u64,
    },
    /// The overlay was closed in order.
    Closed,
    /// A new node.
    Created {
        node: NodeNo,
        kind: FileKind,
        mode: u32,
        owner: (u32, u32),
        nanos: i64,
        name: Name,
        link_target: Vec<u8>,
    },
    /// One more name for a file.
    Linked {
        node: NodeNo,
        name: Name,
        nanos: i64,
    },
    /// A name of a file or link was removed.
    Unlinked { name: Name, nanos: i64 },
    /// A directory was removed.
    DirectoryRemoved { name: Name, nanos: i64 },
    /// A file, directory or link was renamed, and replaced what had the new name.
    Renamed { from: Name, to: Name, nanos: i64 },
    /// The attributes of a node from now on. Its content is not part of this.
    Changed {
        node: NodeNo,
        mode: u32,
        owner: Option<(u32, u32)>,
        accessed_nanos: i64,
        modified_nanos: i64,
        changed_nanos: i64,
    },
    /// The new length of a file. What is beyond it is forgotten; `tail` replaces the last page.
    Resized {
        node: NodeNo,
        bytes: u64,
        tail: Option<Slot>,
        nanos: i64,
    },
    /// From now on, these pages of a file are in the store, and the file has this length.
    Paged {
        node: NodeNo,
        block: u64,
        slot: Slot,
        count: u32,
        bytes: u64,
        nanos: i64,
    },
    /// A file without a name was closed, so its pages are free.
    Dropped { node: NodeNo },
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) parent: NodeNo,
    pub(crate) name: Vec<u8>,
}

impl Name {
    pub(crate) fn of((parent, name): (NodeNo, &[u8])) -> Self {
        let name = name.to_vec();
        Self { parent, name }
    }
}

impl Record {
    /// The slots that this record gives to a file.
    pub(crate) fn slots(&self) -> Option<Range<Slot>> {
        match self {
            Self::Paged { slot, count, .. } => Some(*slot..slot.saturating_add(*count)),
            Self::Resized { tail, .. } => tail.map(|slot| slot..slot + 1),
            _ => None,
        }
    }

    /// Appends the record with its sequence number.
    pub(crate) fn encode(&self, sequence: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&sequence.to_le_bytes());
        self.put(&mut Writer(out));
        let payload = out.len() - start - HEADER_BYTES;
        let length = fitted::<u32, _>(payload).to_le_bytes();
        out[start + 4..start + 8].copy_from_slice(&length);
        let crc = crc32c(&out[start..]);
        out.extend_from_slice(&crc.to_le_bytes());
    }

    /// Reads the record at the start of `bytes`. Returns it with its sequence number and its
    /// length.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, u64, usize)> {
        let mut header = Reader(bytes.get(..HEADER_BYTES)?);
        if header.array::<4>()? != MAGIC {
            return None;
        }
        let payload = usize::try_from(header.u32()?).ok()?;
        let sequence = header.u64()?;
        if payload > PAYLOAD_BYTES_MAX {
            return None;
        }
        let end = HEADER_BYTES + payload;
        let crc = Reader(bytes.get(end..end + CRC_BYTES)?).u32()?;
        if crc != crc32c(&bytes[..end]) {
            return None;
        }
        let mut reader = Reader(&bytes[HEADER_BYTES..end]);
        let record = Self::take(&mut reader)?;
        reader
            .0
            .is_empty()
            .then_some((record, sequence, end + CRC_BYTES))
    }

    /// Finds records anywhere in `bytes`, which may begin in the middle of a record.
    pub(crate) fn find_all(bytes: &[u8]) -> impl Iterator<Item = Self> {
        let starts = bytes.windows(MAGIC.len()).enumerate();
        starts
            .filter(|(_, window)| *window == MAGIC)
            .filter_map(|(at, _)| Self::decode(&bytes[at..]).map(|(record, ..)| record))
    }

    fn put(&self, out: &mut Writer<'_>) {
        match self {
            Self::Opened { boot } => out.u8(1).bytes(boot),
            Self::Synced {
                covered_bytes,
                durable_bytes,
            } => out.u8(2).u64(*covered_bytes).u64(*durable_bytes),
            Self::Closed => out.u8(3),
            Self::Created {
                node,
                kind,
                mode,
                owner,
                nanos,
                name,
                link_target,
            } => out
                .u8(4)
                .u64(node.0)
                .u8(kind_number(*kind))
                .u32(*mode)
                .u32(owner.0)
                .u32(owner.1)
                .i64(*nanos)
                .name(name)
                .string(link_target),
            Self::Linked { node, name, nanos } => out.u8(5).u64(node.0).name(name).i64(*nanos),
            Self::Unlinked { name, nanos } => out.u8(6).name(name).i64(*nanos),
            Self::DirectoryRemoved { name, nanos } => out.u8(7).name(name).i64(*nanos),
            Self::Renamed { from, to, nanos } => out.u8(8).name(from).name(to).i64(*nanos),
            Self::Changed { .. }
            | Self::Resized { .. }
            | Self::Paged { .. }
            | Self::Dropped { .. } => self.put_of_node(out),
        };
    }

    /// Appends a record about the attributes or content of a node, not about its names.
    fn put_of_node<'w, 'b>(&self, out: &'w mut Writer<'b>) -> &'w mut Writer<'b> {
        match self {
            Self::Changed {
                node,
                mode,
                owner,
                accessed_nanos,
                modified_nanos,
                changed_nanos,
            } => out
                .u8(9)
                .u64(node.0)
                .u32(*mode)
                .u8(owner.is_some().into())
                .u32(owner.map_or(0, |owner| owner.0))
                .u32(owner.map_or(0, |owner| owner.1))
                .i64(*accessed_nanos)
                .i64(*modified_nanos)
                .i64(*changed_nanos),
            Self::Resized {
                node,
                bytes,
                tail,
                nanos,
            } => out
                .u8(10)
                .u64(node.0)
                .u64(*bytes)
                .u8(tail.is_some().into())
                .u32(tail.unwrap_or(0))
                .i64(*nanos),
            Self::Paged {
                node,
                block,
                slot,
                count,
                bytes,
                nanos,
            } => out
                .u8(11)
                .u64(node.0)
                .u64(*block)
                .u32(*slot)
                .u32(*count)
                .u64(*bytes)
                .i64(*nanos),
            Self::Dropped { node } => out.u8(12).u64(node.0),
            _ => out,
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        Some(match from.u8()? {
            1 => Self::Opened {
                boot: from.array()?,
            },
            2 => Self::Synced {
                covered_bytes: from.u64()?,
                durable_bytes: from.u64()?,
            },
            3 => Self::Closed,
            4 => Self::Created {
                node: NodeNo(from.u64()?),
                kind: kind_of(from.u8()?)?,
                mode: from.u32()?,
                owner: (from.u32()?, from.u32()?),
                nanos: from.i64()?,
                name: from.name()?,
                link_target: from.string()?,
            },
            5 => Self::Linked {
                node: NodeNo(from.u64()?),
                name: from.name()?,
                nanos: from.i64()?,
            },
            6 => Self::Unlinked {
                name: from.name()?,
                nanos: from.i64()?,
            },
            7 => Self::DirectoryRemoved {
                name: from.name()?,
                nanos: from.i64()?,
            },
            8 => Self::Renamed {
                from: from.name()?,
                to: from.name()?,
                nanos: from.i64()?,
            },
            tag => Self::take_content(tag, from)?,
        })
    }

    fn take_content(tag: u8, from: &mut Reader<'_>) -> Option<Self> {
        let node = NodeNo(from.u64()?);
        Some(match tag {
            9 => Self::Changed {
                node,
                mode: from.u32()?,
                owner: from.owner()?,
                accessed_nanos: from.i64()?,
                modified_nanos: from.i64()?,
                changed_nanos: from.i64()?,
            },
            10 => Self::Resized {
                node,
                bytes: from.u64()?,
                tail: from.slot()?,
                nanos: from.i64()?,
            },
            11 => Self::Paged {
                node,
                block: from.u64()?,
                slot: from.u32()?,
                count: from.u32()?,
                bytes: from.u64()?,
                nanos: from.i64()?,
            },
            12 => Self::Dropped { node },
            _ => return None,
        })
    }
}

fn kind_number(kind: FileKind) -> u8 {
    match kind {
        FileKind::File => 0,
        FileKind::Directory => 1,
        FileKind::Symlink => 2,
    }
}

fn kind_of(number: u8) -> Option<FileKind> {
    [FileKind::File, FileKind::Directory, FileKind::Symlink]
        .into_iter()
        .find(|kind| kind_number(*kind) == number)
}

/// Appends fields.
struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn i64(&mut self, value: i64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Names and targets are shorter than 64 KiB: the code that creates them has checked that.
    fn string(&mut self, text: &[u8]) -> &mut Self {
        let length: u16 = fitted(text.len());
        self.bytes(&length.to_le_bytes()).bytes(text)
    }

    fn name(&mut self, name: &Name) -> &mut Self {
        self.u64(name.parent.0).string(&name.name)
    }
}

/// Takes fields from the front.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn slice(&mut self, count: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.slice(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    fn string(&mut self) -> Option<Vec<u8>> {
        let length = u16::from_le_bytes(self.array()?);
        self.slice(length.into()).map(<[u8]>::to_vec)
    }

    fn name(&mut self) -> Option<Name> {
        let parent = NodeNo(self.u64()?);
        let name = self.string()?;
        Some(Name { parent, name })
    }

    fn owner(&mut self) -> Option<Option<(u32, u32)>> {
        let set = self.u8()?;
        let owner = (self.u32()?, self.u32()?);
        Some((set == 1).then_some(owner))
    }

    fn slot(&mut self) -> Option<Option<Slot>> {
        let set = self.u8()?;
        let slot = self.u32()?;
        Some((set == 1).then_some(slot))
    }
}
