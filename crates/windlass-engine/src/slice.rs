//! Short time slices for the threads that others wait for.
//!
//! Readers and writers work for microseconds at a time, compressors for milliseconds. If there are
//! as many compressors as cores, a reader that wakes up would wait until the time slice of a
//! compressor ends (3 ms here), and the other compressors would wait for the reader's buffer. A
//! thread that asks for a shorter slice gets a core at once (Linux 6.12; older kernels ignore it).
//! It does not get more CPU time in all.

#![allow(unsafe_code, reason = "sched_setattr has no safe wrapper")]

/// The requested slice. It is the shortest that the scheduler accepts.
const SLICE_NANOS: u64 = 100_000;

/// Asks for a short slice for the calling thread. Without it everything works, only slower.
pub(crate) fn shorten() {
    // Zeros are the defaults: SCHED_OTHER, nice 0, no utilization bounds.
    // SAFETY: sched_attr is plain integers, for which all zeros is a valid value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = windlass_media::fitted(size_of::<libc::sched_attr>());
    attributes.sched_runtime = SLICE_NANOS;
    // SAFETY: the structure lives through the call and states its own size; thread 0 is the
    // caller; the call writes nothing.
    unsafe {
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0);
    }
}
