//! Reading past the page cache, but not past what is in it.
//!
//! For each range the kernel is asked (cachestat) what it holds:
//! - all of it: an ordinary read, at the speed of memory;
//! - some of it, or dirty pages: a buffered read that drops what it alone brought in
//!   (RWF_DONTCACHE). A direct read would first write the dirty pages back, in our thread, at the
//!   cost of the live server;
//! - nothing: a direct read, several in flight (io_uring), or one at a time without a ring.
//!
//! So a backup neither evicts the database's pages nor leaves its own behind. Kernels without
//! cachestat (before 6.5) are asked with RWF_NOWAIT; without RWF_DONTCACHE (before 6.14) a mixed
//! range is read through the cache. `docs/decisions/0004-reading.md` has the measurements.

#![allow(unsafe_code, reason = "cachestat has no safe wrapper")]

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};

use crate::buffer::Buffer;
use crate::pace::PacedStream;
use crate::ring::Ring;
use crate::storage::{FileBytes, ReadAt};
use crate::waits::{counted_by_caller, may_block};

/// RWF_DONTCACHE of Linux 6.14.
const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);
/// What direct reads are aligned to. It is enough for every sector size in use.
pub(crate) const DIRECT_ALIGNMENT: usize = 4096;
/// Smaller ranges are read through the cache, without leaving pages in it. To open the file a
/// second time for a direct read would cost more than it saves.
const DIRECT_BYTES_MIN: usize = 128 * 1024;

static HAS_DONTCACHE: AtomicBool = AtomicBool::new(true);
static HAS_CACHESTAT: AtomicBool = AtomicBool::new(true);

/// Bytes that are open for reading. If they are those of a file, it is opened for direct reads as
/// well when they are wanted.
#[derive(Debug)]
pub(crate) struct ReadFile {
    bytes: Arc<dyn ReadAt>,
    direct: OnceLock<Option<Arc<File>>>,
}

impl ReadFile {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::of_file(Arc::new(File::open(path)?)))
    }

    pub(crate) fn of_file(file: Arc<File>) -> Self {
        Self::of(Arc::new(FileBytes(file)))
    }

    pub(crate) fn of(bytes: Arc<dyn ReadAt>) -> Self {
        // Readahead is off. Suppose two threads read neighbouring ranges uncached. The readahead of
        // one would bring back what the other has read and dropped, and nobody would drop it again.
        // If the kernel ignores the advice, it costs the cache some pages, but does not harm the
        // backup.
        if let Some(file) = bytes.file() {
            rustix::fs::fadvise(&**file, 0, None, Advice::Random).unwrap_or_default();
        }
        Self {
            bytes,
            direct: OnceLock::new(),
        }
    }

    pub(crate) fn bytes(&self) -> &dyn ReadAt {
        &*self.bytes
    }

    /// The same bytes, for somebody who reads them on his own.
    pub(crate) fn shared(&self) -> Arc<dyn ReadAt> {
        Arc::clone(&self.bytes)
    }

    /// Advises the system to read these bytes into its cache. The system may ignore that.
    pub(crate) fn will_need(&self, offset: u64, bytes: u64) {
        self.bytes.will_need(offset, bytes);
    }

    /// Reads at `offset`, and leaves nothing in the page cache that was not there before. Returns
    /// fewer bytes than requested only at the end.
    pub(crate) fn read_uncached(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        may_block();
        match self.bytes.file() {
            Some(file) => read_uncached(file, offset, into),
            None => self.bytes.read_at(offset, into),
        }
    }

    /// The same file, opened for direct reads. It is not looked up by name: another file may have
    /// that now.
    fn direct(&self) -> Option<&Arc<File>> {
        let open = || {
            let path = format!("/proc/self/fd/{}", self.bytes.file()?.as_raw_fd());
            let flags = libc::O_DIRECT;
            let file = File::options()
                .read(true)
                .custom_flags(flags)
                .open(path)
                .ok()?;
            Some(Arc::new(file))
        };
        self.direct.get_or_init(open).as_ref()
    }
}

/// How a range of a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Cached,
    Uncached,
    Direct,
}

#[repr(C)]
struct CachestatRange {
    offset: u64,
    length: u64,
}

#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// How much of a range is in the page cache. `None` if the kernel cannot say.
fn cachestat(file: RawFd, offset: u64, length: usize) -> Option<Cachestat> {
    const SYS_CACHESTAT: libc::c_long = 451;
    if !HAS_CACHESTAT.load(Ordering::Relaxed) {
        return None;
    }
    let range = CachestatRange {
        offset,
        length: length as u64,
    };
    let mut stat = Cachestat::default();
    // SAFETY: both structures live through the call and have the layout of the kernel's uapi
    // header (linux/mman.h: cachestat_range, cachestat); the call writes to `stat` only.
    let result = unsafe { libc::syscall(SYS_CACHESTAT, file, &raw const range, &raw mut stat, 0) };
    if result == 0 {
        return Some(stat);
    }
    HAS_CACHESTAT.store(false, Ordering::Relaxed);
    None
}

/// Pages of `file` in the page cache, and how many pages the kernel has reclaimed since they were
/// last there; for tests. A page that somebody dropped on purpose does not count as reclaimed.
pub fn cached_pages(file: &File, offset: u64, bytes: usize) -> Option<(u64, u64)> {
    cachestat(file.as_raw_fd(), offset, bytes).map(|stat| (stat.cached, stat.evicted))
}

/// Reads at `offset`, and leaves no pages in the cache that were not there before.
///
/// Returns fewer bytes than requested only at the end of the file.
pub fn read_uncached(file: &File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        let at = offset + filled as u64;
        match read_once(file, at, &mut into[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn read_once(file: &File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    if HAS_DONTCACHE.load(Ordering::Relaxed) {
        match rustix::io::preadv2(file, &mut [IoSliceMut::new(into)], offset, DONTCACHE) {
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
                HAS_DONTCACHE.store(false, Ordering::Relaxed);
            }
            other => return other.map_err(io::Error::from),
        }
    }
    std::os::unix::fs::FileExt::read_at(file, into, offset)
}

/// The reads of one thread. Each is made at once from the cache, or queued to the device.
pub(crate) struct ReadQueue {
    ring: Option<Ring>,
    depth: usize,
    depth_max: usize,
    /// The pace that all reads have, if there is one.
    pace: Option<PacedStream>,
    /// Reads that are made but that are not done at their pace: when they will be, when the read
    /// began, and its result.
    held: VecDeque<(Instant, Instant, ReadDone)>,
}

/// A read that is to be made: `length` bytes of a file at `offset`, to the start of a buffer.
pub(crate) struct ReadRequest<'a> {
    pub(crate) file: &'a ReadFile,
    /// The number of the file, for a model.
    pub(crate) number: usize,
    pub(crate) offset: u64,
    pub(crate) length: usize,
    pub(crate) token: u64,
}

/// A finished read.
pub(crate) struct ReadDone {
    pub(crate) buffer: Buffer,
    pub(crate) token: u64,
    /// Bytes read. They are fewer than requested only at the end of the file.
    pub(crate) result: io::Result<usize>,
    pub(crate) elapsed: Duration,
    /// True when the device was used. Then the time was a wait, not work.
    pub(crate) waited: bool,
}

impl ReadQueue {
    /// A queue for at most `depth` reads in flight. Without a ring, every read is made at once.
    pub(crate) fn new(depth: usize, use_ring: bool, pace: Option<PacedStream>) -> Self {
        let ring = if use_ring && depth > 1 && pace.is_none() {
            Ring::new(depth).ok()
        } else {
            None
        };
        Self {
            ring,
            depth,
            depth_max: depth,
            pace,
            held: VecDeque::new(),
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.ring.as_ref().map_or(0, Ring::in_flight) + self.held.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.in_flight() >= self.depth
    }

    /// Changes how many reads may be in flight, up to the number with which the queue was made.
    pub(crate) fn set_depth(&mut self, depth: usize) {
        self.depth = depth.min(self.depth_max);
    }

    /// Makes a read at once, or queues it and returns `None`.
    pub(crate) fn submit(
        &mut self,
        request: &ReadRequest<'_>,
        buffer: Buffer,
    ) -> io::Result<Option<ReadDone>> {
        let begin = Instant::now();
        if let Some(pace) = &self.pace {
            let due = pace.done_at(request.number, request.offset, request.length);
            let read = || read_now(request, buffer, Way::Uncached, begin);
            let done = counted_by_caller(read);
            self.held.push_back((due, begin, done));
            return Ok(None);
        }
        let way = choose(request);
        if way == Way::Direct {
            return self.submit_direct(request, buffer, begin);
        }
        let read = || read_now(request, buffer, way, begin);
        Ok(Some(counted_by_caller(read)))
    }

    fn submit_direct(
        &mut self,
        request: &ReadRequest<'_>,
        buffer: Buffer,
        begin: Instant,
    ) -> io::Result<Option<ReadDone>> {
        let Some(direct) = request.file.direct() else {
            let read = || read_now(request, buffer, Way::Uncached, begin);
            return Ok(Some(counted_by_caller(read)));
        };
        let length = request
            .length
            .next_multiple_of(DIRECT_ALIGNMENT)
            .min(buffer.capacity());
        let Some(ring) = self.ring.as_mut() else {
            let read = || read_direct_now(request, direct, buffer, length, begin);
            return Ok(Some(counted_by_caller(read)));
        };
        ring.read(direct, request.offset, buffer, (0, length), request.token)?;
        Ok(None)
    }

    /// Waits for a queued read; `None` when nothing is in flight.
    pub(crate) fn wait(&mut self) -> io::Result<Option<ReadDone>> {
        if let (Some(pace), Some((due, begin, done))) = (&self.pace, self.held.pop_front()) {
            pace.paced.wait_until(due);
            let elapsed = begin.elapsed();
            return Ok(Some(ReadDone { elapsed, ..done }));
        }
        let Some(ring) = self.ring.as_mut() else {
            return Ok(None);
        };
        let done = ring.wait()?;
        Ok(done.map(|done| ReadDone {
            buffer: done.buffer,
            token: done.token,
            result: done.result,
            elapsed: done.elapsed,
            waited: true,
        }))
    }

    /// Waits as long as the pace says, for a read that was not made through the queue.
    pub(crate) fn pass(&self, number: usize, offset: u64, bytes: usize) {
        if let Some(pace) = &self.pace {
            pace.pass(number, offset, bytes);
        }
    }
}

fn choose(request: &ReadRequest<'_>) -> Way {
    let Some(file) = request.file.bytes.file() else {
        return Way::Uncached;
    };
    if request.length < DIRECT_BYTES_MIN || !request.offset.is_multiple_of(DIRECT_ALIGNMENT as u64)
    {
        return Way::Uncached;
    }
    let Some(stat) = cachestat(file.as_raw_fd(), request.offset, request.length) else {
        return Way::Uncached;
    };
    let pages = request.length.div_ceil(4096) as u64;
    if stat.cached >= pages {
        Way::Cached
    } else if stat.cached == 0 && stat.dirty == 0 && stat.writeback == 0 {
        Way::Direct
    } else {
        Way::Uncached
    }
}

fn read_now(request: &ReadRequest<'_>, mut buffer: Buffer, way: Way, begin: Instant) -> ReadDone {
    let into = &mut buffer.space()[..request.length];
    let result = request.file.read_uncached(request.offset, into);
    let (token, elapsed) = (request.token, begin.elapsed());
    ReadDone {
        buffer,
        token,
        result,
        elapsed,
        waited: way != Way::Cached,
    }
}

fn read_direct_now(
    request: &ReadRequest<'_>,
    direct: &File,
    mut buffer: Buffer,
    length: usize,
    begin: Instant,
) -> ReadDone {
    use std::os::unix::fs::FileExt;
    let result = direct.read_at(&mut buffer.space()[..length], request.offset);
    let result = result.or_else(|_| {
        let into = &mut buffer.space()[..request.length];
        request.file.read_uncached(request.offset, into)
    });
    ReadDone {
        buffer,
        token: request.token,
        result,
        elapsed: begin.elapsed(),
        waited: true,
    }
}
