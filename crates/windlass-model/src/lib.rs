//! Models of storage: when a volume, a disk or a bucket would be done with an I/O.
//!
//!   [`Model`] --> [`ModelClock`] --> when an I/O is done: asked in simulated time by the lab,
//!                                    in real time by a run on emulated storage ([`Emulation`])
//!
//! ```
//! use windlass_model::{Model, ModelClock, ModelIo};
//!
//! // A volume of 100 MB/s takes ten milliseconds for a megabyte.
//! let mut clock = ModelClock::new(&Model::parse("rate:100MB/s")?);
//! let io = ModelIo { stream: 0, file: 0, offset: 0, bytes: 1_000_000 };
//! assert_eq!(clock.done_at(&io, 0, None), 10_000_000);
//! # Ok::<_, windlass_model::ModelError>(())
//! ```

mod emulate;
mod error;
mod model;

pub use emulate::Emulation;
pub use error::ModelError;
pub use model::{
    Attachment, Burst, Instance, InstanceClock, Limits, Model, ModelClock, ModelIo,
    S3_STREAM_BYTES_PER_SECOND, Usage, Usages,
};
