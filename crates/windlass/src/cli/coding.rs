//! The options that make a backup smaller.

use clap::Args;

/// How a backup compresses.
#[derive(Args, Clone, Debug)]
pub struct Coding {
    /// Codec: none, lz4, zstd or zstd:LEVEL (1 to 19, or -7 to -1 for more speed). With auto,
    /// Windlass chooses during the run from lz4 to zstd:9; auto:WEAKEST..STRONGEST sets other
    /// bounds
    #[arg(
        long,
        default_value = "zstd:1",
        value_name = "CODEC",
        env = "WINDLASS_COMPRESS",
        allow_hyphen_values = true
    )]
    pub compress: String,
    /// Sort the parts of pages by kind before they are compressed (auto, where that makes them
    /// smaller), or leave pages as they are (off). Without this option: auto for PostgreSQL with
    /// zstd, else off
    #[arg(long, value_name = "HOW", value_parser = ["auto", "off"], env = "WINDLASS_PAGES")]
    pub pages: Option<String>,
    /// Do not put pages that were taken apart together again before they are stored. Faster; a
    /// mistake of the page codec would be found by `windlass verify` only
    #[arg(long, env = "WINDLASS_NO_FRAME_PROOF")]
    pub no_frame_proof: bool,
}
