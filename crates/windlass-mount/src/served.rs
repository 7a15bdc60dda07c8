//! A view together with what serving it needs: its owner, its read-ahead, and how to answer.

use std::ffi::OsStr;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use fuser::{
    Errno, FileAttr, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyEmpty, ReplyEntry, Request,
};
use windlass_engine::media::FileKind;
use windlass_image::{Attributes, Creation, ImageError, NodeNo, View};

use crate::attributes::{attributes, errno, node};
use crate::counters::Counters;
use crate::damage::DamageLog;
use crate::end::End;
use crate::listings::Listings;
use crate::read_ahead::ReadAhead;

/// How long the kernel may keep what it was told: nothing changes except through the kernel.
pub(crate) const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// If a large read meets damage, a reader past the page cache gets its bytes in pieces of this
/// size.
const PAGE_BYTES: usize = 4096;
/// No node number is ever used again, so all nodes have the same generation.
pub(crate) const GENERATION: Generation = Generation(0);

/// What answers the kernel, until the kernel ends the mount.
pub(crate) struct Served {
    parts: Option<Parts>,
    end: Arc<End>,
}

/// A view and what is needed to serve it to the kernel.
pub(crate) struct Parts {
    pub(crate) view: Arc<dyn View>,
    pub(crate) owner: (u32, u32),
    /// True when reads bypass the page cache.
    direct_io: bool,
    pub(crate) ahead: ReadAhead,
    pub(crate) listings: Listings,
    damage: DamageLog,
    pub(crate) counters: Arc<Counters>,
}

impl Served {
    pub(crate) fn new(parts: Parts, end: Arc<End>) -> Self {
        let parts = Some(parts);
        Self { parts, end }
    }

    /// The kernel asks for nothing more.
    pub(crate) fn end(&mut self) {
        if let Some(parts) = self.parts.take() {
            // The owner of the view sees a failure when it calls sync itself for the last time.
            parts.view.sync().unwrap_or_default();
        }
        self.end.keep_the_place();
    }
}

impl Deref for Served {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        let parts = self.parts.as_ref();
        parts.expect("the kernel asks for nothing after the end")
    }
}

impl Parts {
    pub(crate) fn new(
        view: Arc<dyn View>,
        owner: (u32, u32),
        direct_io: bool,
        ahead: ReadAhead,
        damage: DamageLog,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            view,
            owner,
            direct_io,
            ahead,
            listings: Listings::default(),
            damage,
            counters,
        }
    }

    /// How each file is opened. What the page cache holds of a file stays there, for programs that
    /// map it.
    pub(crate) fn opening(&self) -> FopenFlags {
        let mut opening = FopenFlags::FOPEN_KEEP_CACHE;
        opening.set(FopenFlags::FOPEN_DIRECT_IO, self.direct_io);
        opening
    }

    pub(crate) fn shown(&self, found: &Attributes) -> FileAttr {
        attributes(found, self.owner, self.direct_io)
    }

    /// The error number for a program. An error that is no ordinary answer of a file system is
    /// reported.
    pub(crate) fn fault(&self, error: &ImageError) -> Errno {
        if !matches!(error, ImageError::Refused { .. }) {
            self.damage.note(error);
        }
        errno(error)
    }

    pub(crate) fn entry(&self, found: Result<Attributes, ImageError>, reply: ReplyEntry) {
        match found {
            Ok(found) => reply.entry(&FOREVER, &self.shown(&found), GENERATION),
            Err(error) => reply.error(self.fault(&error)),
        }
    }

    pub(crate) fn attr(&self, found: Result<Attributes, ImageError>, reply: ReplyAttr) {
        match found {
            Ok(found) => reply.attr(&FOREVER, &self.shown(&found)),
            Err(error) => reply.error(self.fault(&error)),
        }
    }

    pub(crate) fn empty(&self, done: Result<(), ImageError>, reply: ReplyEmpty) {
        match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.fault(&error)),
        }
    }

    pub(crate) fn make(
        &self,
        request: &Request,
        (parent, name): (INodeNo, &OsStr),
        (kind, mode): (FileKind, u32),
        link_target: &[u8],
    ) -> Result<Attributes, ImageError> {
        let creation = Creation {
            kind,
            mode: mode & 0o7777,
            owner: (request.uid(), request.gid()),
            link_target,
        };
        self.view.create(node(parent), name.as_bytes(), &creation)
    }

    /// Reads for a program that bypasses the page cache. Returns the bytes before the first damage.
    pub(crate) fn read_prefix(&self, node: NodeNo, offset: u64, into: &mut [u8]) -> Option<usize> {
        let mut done = 0;
        while done < into.len() {
            let end = into.len().min(done + PAGE_BYTES);
            match self
                .view
                .read(node, offset + done as u64, &mut into[done..end])
            {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(_) => break,
            }
        }
        (done > 0).then_some(done)
    }

    pub(crate) fn owner_of(
        &self,
        of: NodeNo,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<Option<(u32, u32)>, ImageError> {
        if uid.is_none() && gid.is_none() {
            return Ok(None);
        }
        let now = self.view.attributes(of)?.owner.unwrap_or(self.owner);
        Ok(Some((uid.unwrap_or(now.0), gid.unwrap_or(now.1))))
    }
}
