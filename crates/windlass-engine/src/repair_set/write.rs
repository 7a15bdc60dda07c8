//! Writing one device of a set anew.

use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_media::{
    MemberEntry, ParityHeader, SetId, add_product, coefficient, crc32c, fitted, saturated,
};

use crate::bounded::open_regular;
use crate::buffer::{Buffer, Pool, Role};
use crate::cancel::Cancel;
use crate::device::{Device, FileDevice, FileDeviceOptions, holds_nothing, is_stripe};
use crate::durable::{self, Locked, NameError};
use crate::error::{DeviceOperation, EngineError};
use crate::parity_file::ParityLayout;
use crate::set::{Devices, Rebuilder, set_of_device};
use crate::storage::{Files, Lies, Storage};
use crate::stripe_name::{is_partial, partial_path};

/// How many transfers are written at the same time.
const DEPTH: usize = 4;

/// The end of the name of a damaged device that does not look like one any more. If its end says
/// that it is of the set, it goes when the new one has its name.
const DAMAGED: &str = ".damaged";
/// How many such names there are.
const DAMAGED_MAX: u32 = 100;

/// A device that is being written anew.
pub(super) struct Writing {
    device: FileDevice,
    path: PathBuf,
    /// Whether a file has its place that does not look like a device any more.
    is_in_the_way: bool,
    /// Where that file is now.
    moved: Option<PathBuf>,
    pool: Arc<Pool>,
    header: ParityHeader,
    offset: u64,
}

/// A device that was written anew.
pub(super) struct Written {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// Where the file is now that was in its place, if nothing proves that it was of the set.
    pub(super) moved: Option<PathBuf>,
}

impl Writing {
    /// Begins a device at a path.
    pub(super) fn begin(
        storage: &dyn Storage,
        devices: &Devices,
        (path, is_there): (&Path, bool),
    ) -> Result<Self, EngineError> {
        let header = devices.header(storage)?;
        let path = &own_name(path);
        let directory = path.parent().unwrap_or(Path::new("/"));
        if !matches!(storage.look(directory), Ok(Lies::Place)) {
            return Err(EngineError::RepairNoDirectory {
                directory: directory.to_owned(),
            });
        }
        make_way(path, header.set_id)?;
        let is_in_the_way = is_there && path.exists() && !is_stripe(path).unwrap_or(false);
        let options = FileDeviceOptions {
            alignment: header.alignment,
            depth: DEPTH,
            overwrite: true,
            moved_away: is_in_the_way,
            ..FileDeviceOptions::default()
        };
        Ok(Self {
            device: FileDevice::create(path, options)?,
            path: path.clone(),
            is_in_the_way,
            moved: None,
            pool: Pool::new(DEPTH + 1, 0, header.member_bytes as usize)?,
            header,
            offset: 0,
        })
    }

    /// Writes a stripe. These parts of it stay as they are.
    pub(super) fn stripe(
        mut self,
        (rebuilder, staying): (&Rebuilder, &[Range<u64>]),
        stripe: u16,
        cancel: &Cancel,
    ) -> Result<Written, EngineError> {
        let length = rebuilder.stripe_bytes(stripe);
        let end = length.saturating_sub(u64::from(self.header.alignment));
        while self.offset < end {
            cancel.check()?;
            let mut buffer = self.buffer()?;
            let count = (end - self.offset).min(buffer.capacity() as u64);
            buffer.set_len(fitted(count));
            fill((rebuilder, staying), stripe, self.offset, &mut buffer)?;
            self.submit(buffer)?;
        }
        let mut seal = vec![0; self.header.alignment as usize];
        fill((rebuilder, staying), stripe, end, &mut seal)?;
        self.seal(length, &seal)
    }

    /// Writes the parity of groups.
    pub(super) fn parity(
        mut self,
        parity: u16,
        groups: &dyn Groups,
        cancel: &Cancel,
    ) -> Result<Written, EngineError> {
        let header = ParityHeader {
            parity,
            ..self.header.clone()
        };
        let (mut layout, encoded) = ParityLayout::begin(header)?;
        self.write(&encoded)?;
        let mut block = 0;
        while let Some(count) = groups.in_block(block, &self.header) {
            for place in 0..count {
                cancel.check()?;
                let (members, sum) = groups.group((block, place), parity, &self.header)?;
                let mut buffer = self.buffer()?;
                buffer.set_len(sum.len());
                buffer.copy_from_slice(&sum);
                layout.push((sum.len(), crc32c(&sum)), &members);
                self.submit(buffer)?;
            }
            let bytes = layout.end_block()?;
            self.write(&bytes)?;
            block += 1;
        }
        let (blocks, end) = layout.finish(groups.root())?;
        for block in blocks {
            self.write(&block)?;
        }
        self.seal(end.file_bytes, &end.encode())
    }

    fn buffer(&mut self) -> Result<Buffer, EngineError> {
        while self.device.in_flight() >= DEPTH {
            self.device.reap()?;
        }
        self.pool.take(Role::Output).ok_or(EngineError::Stopped)
    }

    fn submit(&mut self, buffer: Buffer) -> Result<(), EngineError> {
        let bytes = buffer.len() as u64;
        self.device.submit(self.offset, buffer)?;
        self.offset += bytes;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), EngineError> {
        self.device.write(self.offset, bytes)?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Makes the device durable, then seals it, then gives it its name.
    fn seal(mut self, length: u64, seal: &[u8]) -> Result<Written, EngineError> {
        while self.device.in_flight() > 0 {
            self.device.reap()?;
        }
        self.device.truncate(length)?;
        self.device.sync()?;
        self.device.write(length - seal.len() as u64, seal)?;
        self.device.sync()?;
        // Until now it may have been needed, and it is where everybody looks for it.
        if self.is_in_the_way {
            self.moved = Some(move_away(&self.path)?);
        }
        self.device.publish()?;
        // Those of an earlier repair, which was cut off, are among them.
        let partial = partial_path(&self.path);
        let moved = damaged_names(&self.path).chain(damaged_names(&partial));
        for moved in moved.filter(|moved| is_of(moved, self.header.set_id)) {
            let removed = std::fs::remove_file(&moved);
            removed.map_err(fault(DeviceOperation::Remove, &moved))?;
        }
        Ok(Written {
            moved: self.moved.filter(|moved| moved.exists()),
            path: self.path,
            bytes: length,
        })
    }
}

/// Fills a buffer with bytes of a stripe: right ones, and in these parts those that are there.
fn fill(
    (rebuilder, staying): (&Rebuilder, &[Range<u64>]),
    stripe: u16,
    offset: u64,
    into: &mut [u8],
) -> Result<(), EngineError> {
    let mut done = 0;
    while done < into.len() {
        let at = offset + done as u64;
        let next = staying.iter().find(|part| part.end > at);
        let stays = next.is_some_and(|part| part.start <= at);
        let until = match next {
            Some(part) if stays => part.end,
            Some(part) => part.start,
            None => u64::MAX,
        };
        let count = saturated::<usize, _>(until - at).min(into.len() - done);
        let part = &mut into[done..done + count];
        match stays {
            true => part.copy_from_slice(&rebuilder.unchecked(stripe, at, count)?),
            false => exactly(rebuilder, stripe, at, part)?,
        }
        done += count;
    }
    Ok(())
}

fn exactly(
    rebuilder: &Rebuilder,
    stripe: u16,
    offset: u64,
    into: &mut [u8],
) -> Result<(), EngineError> {
    match rebuilder.read(stripe, offset, into)? == into.len() {
        true => Ok(()),
        false => Err(EngineError::Stopped),
    }
}

/// Makes room for a device of this set that is written anew: nothing of another set is replaced,
/// and what has the temporary name is not emptied, for the new device may be made of it.
fn make_way(path: &Path, set: SetId) -> Result<(), EngineError> {
    let partial = partial_path(path);
    for there in [path, &partial] {
        match set_of_device(&Files, there) {
            Some(other) if other != set => {
                return Err(EngineError::RepairOtherSet {
                    path: there.to_owned(),
                    set: other,
                });
            }
            _ => {}
        }
    }
    let is_there = partial.symlink_metadata().is_ok();
    if !is_there || holds_nothing(&partial).map_err(fault(DeviceOperation::Read, &partial))? {
        return Ok(());
    }
    match path.symlink_metadata().is_ok() {
        true => move_away(&partial).map(drop),
        false => name(&partial),
    }
}

/// Moves a file away that does not begin as a device does, so the new one would not replace it.
/// Nothing else is replaced by that.
fn move_away(path: &Path) -> Result<PathBuf, EngineError> {
    let file = locked(path).map_err(fault(DeviceOperation::Read, path))?;
    for moved in damaged_names(path) {
        match durable::name_new(&file, path, &moved) {
            Err(NameError::Taken) => {}
            named => {
                let named = named.map_err(|error| error.into());
                return named
                    .map(|()| moved.clone())
                    .map_err(fault(DeviceOperation::Publish, &moved));
            }
        }
    }
    Err(fault(DeviceOperation::Publish, path)(
        std::io::ErrorKind::AlreadyExists.into(),
    ))
}

/// The names that a file in the place of a device may get.
fn damaged_names(path: &Path) -> impl Iterator<Item = PathBuf> {
    (0..DAMAGED_MAX).map(|number| {
        let mut name: OsString = path.as_os_str().to_owned();
        name.push(DAMAGED);
        if number > 0 {
            name.push(format!("-{number}"));
        }
        PathBuf::from(name)
    })
}

/// Whether a file says that it is a device of a set.
fn is_of(path: &Path, set: SetId) -> bool {
    set_of_device(&Files, path) == Some(set)
}

/// The name that a device has when it is complete.
pub(super) fn own_name(path: &Path) -> PathBuf {
    match is_partial(path) {
        true => path.with_extension(""),
        false => path.to_owned(),
    }
}

/// Gives a whole device its name that a cut-off run left under its temporary one. If the devices
/// had no names, a clean-up would take one that is written anew, and has no seal yet, for the
/// proof that the set was never complete.
pub(super) fn name(path: &Path) -> Result<(), EngineError> {
    let failed = |source| fault(DeviceOperation::Publish, path)(source);
    let file = locked(path).map_err(failed)?;
    let named = durable::name_new(&file, path, &own_name(path));
    named.map_err(|error| failed(error.into()))
}

/// Opens a file that no run writes any more: one that does has locked it.
fn locked(path: &Path) -> std::io::Result<Locked<std::fs::File>> {
    Locked::take(open_regular(path)?)
}

pub(super) fn fault(
    operation: DeviceOperation,
    path: &Path,
) -> impl FnOnce(std::io::Error) -> EngineError {
    move |source| EngineError::DeviceIo {
        operation,
        device: path.to_string_lossy().into_owned(),
        offset: 0,
        source,
    }
}

/// The groups whose parity is written.
pub(super) trait Groups {
    /// How many groups a block has; none behind the last block.
    fn in_block(&self, block: usize, header: &ParityHeader) -> Option<usize>;
    /// The members of a group, and a parity of it.
    fn group(
        &self,
        place: (usize, usize),
        parity: u16,
        header: &ParityHeader,
    ) -> Result<(Vec<MemberEntry>, Vec<u8>), EngineError>;
    /// The root of the set.
    fn root(&self) -> [u8; 32];
}

/// The groups that another file with parity has.
pub(super) struct Known<'a>(pub(super) &'a Rebuilder);

impl Groups for Known<'_> {
    fn in_block(&self, block: usize, _: &ParityHeader) -> Option<usize> {
        (block < self.0.block_count()).then(|| self.0.group_count(block))
    }

    fn group(
        &self,
        (block, place): (usize, usize),
        parity: u16,
        _: &ParityHeader,
    ) -> Result<(Vec<MemberEntry>, Vec<u8>), EngineError> {
        let groups = self.0.groups(block)?;
        let group = groups.get(place).ok_or(EngineError::Stopped)?;
        Ok((group.members.clone(), self.0.computed(parity, group)?))
    }

    fn root(&self) -> [u8; 32] {
        self.0.root()
    }
}

/// How many groups a block of new groups has.
const GROUPS_IN_BLOCK: usize = 1024;

/// New groups, because no file with parity is left: the first members of all stripes, then the
/// second ones, and so on.
pub(super) struct Fresh<'a>(pub(super) &'a Rebuilder);

impl Groups for Fresh<'_> {
    fn in_block(&self, block: usize, header: &ParityHeader) -> Option<usize> {
        let lengths = self.0.lengths();
        let longest = lengths.iter().max().copied().unwrap_or(0);
        let all: usize = fitted(longest.div_ceil(u64::from(header.member_bytes)));
        let left = all.saturating_sub(block * GROUPS_IN_BLOCK);
        (left > 0).then(|| left.min(GROUPS_IN_BLOCK))
    }

    fn group(
        &self,
        (block, place): (usize, usize),
        parity: u16,
        header: &ParityHeader,
    ) -> Result<(Vec<MemberEntry>, Vec<u8>), EngineError> {
        let number = (block * GROUPS_IN_BLOCK + place) as u64;
        let offset = number * u64::from(header.member_bytes);
        let (mut members, mut sum) = (Vec::new(), Vec::new());
        for (stripe, length) in (0..).zip(self.0.lengths()) {
            let bytes = length
                .saturating_sub(offset)
                .min(header.member_bytes.into());
            if bytes == 0 {
                continue;
            }
            let content = self.0.unchecked(stripe, offset, fitted(bytes))?;
            sum.resize(content.len().max(sum.len()), 0);
            add_product(
                coefficient(parity, stripe),
                &content,
                &mut sum[..content.len()],
            );
            members.push(MemberEntry {
                stripe,
                offset,
                bytes: fitted(bytes),
                crc32c: crc32c(&content),
            });
        }
        Ok((members, sum))
    }

    fn root(&self) -> [u8; 32] {
        self.0.root()
    }
}
