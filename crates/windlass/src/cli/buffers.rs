//! How much memory and how many threads a run takes, and how a set is laid out.

use clap::Args;
use windlass_engine::{parse_amount, parse_rate_limit, parse_size};

/// Buffers and threads, of backup, restore and verify.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Buffers and threads")]
pub struct Buffers {
    /// Number of buffers, which then stays as it is [default: devices x 4 + devices + 2 x source
    /// volumes at the beginning, and more while they make the run faster]
    #[arg(long, value_name = "N", env = "WINDLASS_BUFFERS")]
    pub buffers: Option<usize>,
    /// Size of a buffer, which is also the size of a transfer: 64KiB to 4MiB [default: 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_amount, env = "WINDLASS_TRANSFER_SIZE")]
    pub transfer_size: Option<u64>,
    /// Number of threads that compress or decompress [default: number of cores]
    #[arg(long, value_name = "N", env = "WINDLASS_THREADS")]
    pub threads: Option<usize>,
    /// Memory and storage
    #[command(flatten)]
    pub bounds: Bounds,
    /// Do not use io_uring
    #[arg(long, env = "WINDLASS_NO_RING")]
    pub no_ring: bool,
}

/// What bounds a run from outside, and also the trials of `tune`.
#[derive(Debug, Default, Args)]
pub struct Bounds {
    /// Use no buffers that need more memory than this together [default: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_amount, env = "WINDLASS_MAX_MEMORY")]
    pub max_memory: Option<u64>,
    /// Behave as if the storage were slower: source=MODEL for the database's, target=MODEL for the
    /// stripes', instance=NAME, scale=FACTOR. A MODEL is gp2:1.5TB, s3:4x90MB/s, hdd and so on; see
    /// `windlass plan --help`. Repeat it for several
    #[arg(
        long,
        value_name = "WHAT=MODEL",
        env = "WINDLASS_EMULATE",
        value_delimiter = ' '
    )]
    pub emulate: Vec<String>,
}

/// Limits of speed, of backup and of the trials of `tune`.
#[derive(Debug, Default, Args)]
pub struct Rates {
    /// Read at most this much per second from the database
    #[arg(long, value_name = "RATE", value_parser = parse_rate_limit, env = "WINDLASS_MAX_RATE")]
    pub max_rate: Option<u64>,
    /// Write at most this much per second to all devices together
    #[arg(long, value_name = "RATE", value_parser = parse_rate_limit, env = "WINDLASS_MAX_DEVICE_RATE")]
    pub max_device_rate: Option<u64>,
}

/// What only a backup decides: a restore finds it in the set.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Layout of the set")]
pub struct Layout {
    /// Block size of the devices, a power of two from 512 to 65536 [default: 4096]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, env = "WINDLASS_BLOCK_SIZE")]
    pub block_size: Option<u64>,
    /// Largest frame, a power of two from 4KiB to half a transfer. Reading one page costs one frame
    /// [default: 128KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, env = "WINDLASS_FRAME_SIZE")]
    pub frame_size: Option<u64>,
    /// Number of threads that read each volume of the source [default: 2, or 1 on one core]
    #[arg(long, value_name = "N", env = "WINDLASS_READERS")]
    pub readers: Option<usize>,
}
