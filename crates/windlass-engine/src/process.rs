//! What this process has used: CPU time and memory; what a crash of it leaves; and the machine on
//! which it runs.

use std::sync::Once;
use std::time::Duration;

use memmap2::MmapOptions;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use windlass_media::fitted;

/// The name of this machine; empty if the system does not say it.
pub fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| String::new(), |name| name.trim().to_owned())
}

/// CPU time of this process so far, in seconds.
pub(crate) fn process_cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = fitted(time.tv_sec);
    Duration::new(seconds, fitted(time.tv_nsec)).as_secs_f64()
}

/// Most memory that this process has had since it was started, in bytes: `VmHWM` of proc(5). Unlike
/// `ru_maxrss`, it begins anew at exec.
pub(crate) fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes =
        peak.and_then(|peak| peak.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

/// Whether this process may take so many more bytes of address space now (`ulimit -v`). The kernel
/// answers: this maps them, touches none, and unmaps them again.
pub fn address_space_has(bytes: u64) -> bool {
    let mut mapping = MmapOptions::new();
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    // A mapping of no bytes is an error.
    let mapped = mapping.len(bytes.max(1)).no_reserve_swap().map_anon();
    mapped.is_ok()
}

/// How much address space this process may still take, as far as proc(5) says what it has; `None`
/// without a limit. Only [`address_space_has`] knows whether something fits.
pub fn address_space_left() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kibibytes =
        size.and_then(|size| size.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Some(limit.saturating_sub(kibibytes.unwrap_or(0) * 1024))
}

/// Makes sure that a crash of this process writes no memory to a disk. A limit of one byte is what
/// Linux takes for no core file at all, also where a program takes core files (core(5)).
pub fn without_core_files() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        let maximum = getrlimit(Resource::Core).maximum;
        let current = Some(1.min(maximum.unwrap_or(1)));
        let limit = Rlimit { current, maximum };
        // If the system refuses that, the key is still worth more than no restore.
        setrlimit(Resource::Core, limit).unwrap_or_default();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_room_in_the_address_space_is_asked_of_the_kernel() {
        assert!(address_space_has(0));
        assert!(address_space_has(1 << 30));
        // No process has more than 56 bits of it.
        assert!(!address_space_has(1 << 60));
        assert!(!address_space_has(u64::MAX));
    }

    #[test]
    fn the_peak_of_memory_rises_with_what_was_touched_and_never_falls() {
        let before = peak_memory_bytes();
        assert!(before > 0, "the kernel says it");
        let block = std::hint::black_box(vec![1u8; 64 << 20]);
        let with = peak_memory_bytes();
        drop(block);
        let after = peak_memory_bytes();
        // The kernel counts pages for each core separately, so a few may be missing at any moment.
        assert!(with >= 60 << 20, "{before} {with}");
        assert!(after >= 60 << 20, "{with} {after}");
    }
}
