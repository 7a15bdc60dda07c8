//! What can go wrong between a source and a device, by place.

mod hints;
mod operation;

use std::io;
use std::path::PathBuf;

use windlass_media::{FileNo, FormatError, SetId, StripeIndex};

use crate::keys::KeyFault;
use crate::mismatch::Mismatch;
use crate::resource::StageName;
use crate::setting::{Setting, SettingFault};
pub use hints::{FILE_SIZE_LIMIT, locked_words, place_hint_for_all};
use hints::{damage_hint, device_words, mixed_words};
pub use operation::DeviceOperation;
pub(crate) use operation::{damage, read_error};

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// Bytes of a file were left out, and the set does not take the file from a base.
    #[error("bytes of file {file} were left out, and no base of the set has them")]
    LeftOut {
        /// The file.
        file: FileNo,
    },
    /// The type of the backup does not go with its base.
    #[error("a full backup builds on no set, and every other backup of files builds on one")]
    WrongBase,
    /// The caller asked the run to stop.
    #[error("interrupted")]
    Cancelled,
    /// A file of the source cannot be opened or read.
    #[error("{operation} source file {path} at offset {offset}: {source}")]
    SourceIo {
        /// What was being done: `open`, `read`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// Where in the file.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// A file of the source is shorter than it must be.
    #[error(
        "read source file {path}: it ends at byte {found_bytes}, but {needed_bytes} bytes have to be there"
    )]
    SourceShort {
        /// The file.
        path: PathBuf,
        /// Where it ends. If reading stopped even earlier, where it stopped.
        found_bytes: u64,
        /// How many bytes must be there.
        needed_bytes: u64,
    },
    /// What was pushed in a hurry was not read before the hurry ended the run.
    #[error("the run did not read the source in the time that it had")]
    HurryEnded,
    /// A device failed. After a failed write its stripe is dead.
    #[error("{}", device_words(*operation, device, *offset, source))]
    DeviceIo {
        /// What was being done.
        operation: DeviceOperation,
        /// The device.
        device: String,
        /// Where on the stripe.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// A file of the target cannot be created, written or synced.
    #[error("{operation} target {path}: {source}")]
    TargetIo {
        /// What was being done.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file that a run's events go to cannot be created or written.
    #[error("{operation} the file of events {path}: {source}")]
    EventFile {
        /// What was being done.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The path of an output belongs to something that must stay.
    #[error("cannot write {path}: {what}")]
    OutputRefused {
        /// The output as it was named.
        path: PathBuf,
        /// What is there, or what the path belongs to.
        what: String,
    },
    /// This user may not enter a directory of the output's path, so nobody sees whether the path
    /// belongs to a database.
    #[error(
        "cannot write {path}: the user of this run may not enter {directory}, and that may belong to a database"
    )]
    OutputUnseen {
        /// The output as it was named.
        path: PathBuf,
        /// The directory.
        directory: PathBuf,
    },
    /// The output would replace a file of another kind.
    #[error("cannot replace {path}: it is not {noun}")]
    OutputForeign {
        /// The output as it was named.
        path: PathBuf,
        /// The output's kind with its article, as in `a file of events`.
        noun: &'static str,
    },
    /// A rename would replace a device or a pipe by a file.
    #[error("cannot replace {path}: it is a device or a pipe, not a file")]
    OutputStream {
        /// The output as it was named.
        path: PathBuf,
    },
    /// An output cannot be created or written.
    #[error("{operation} {path}: {source}")]
    OutputIo {
        /// What was being done.
        operation: &'static str,
        /// The output.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The target directory or file is there already and is not empty.
    #[error("target {path} {what}")]
    TargetRefused {
        /// The target.
        path: PathBuf,
        /// Why it is refused.
        what: &'static str,
    },
    /// Bytes of a stripe are damaged, or are not those of a stripe.
    #[error("stripe {location} at offset {offset}: {source}")]
    Damage {
        /// The stripe's file or object.
        location: String,
        /// Where on the stripe.
        offset: u64,
        /// What is wrong.
        source: FormatError,
    },
    /// The stripe exists but was never sealed, because the run that wrote it did not finish.
    #[error("stripe {location} is not sealed: the backup that wrote it did not finish")]
    NotSealed {
        /// The stripe's file or object.
        location: String,
    },
    /// Somebody removes the set, or did.
    #[error("set {set} is gone: another run removes what has expired")]
    SetRemoved {
        /// The set.
        set: SetId,
    },
    /// The set is encrypted, and no key that is here opens it.
    #[error("set {set} is encrypted: {}", locked_words(fault, recipients))]
    Locked {
        /// The set.
        set: SetId,
        /// Who can open it.
        recipients: Vec<String>,
        /// Why no key opens it.
        fault: KeyFault,
    },
    /// A stripe of the set was not found.
    #[error("stripe {stripe} of set {set} is missing (it was written to {location})")]
    StripeMissing {
        /// The set.
        set: SetId,
        /// Which stripe.
        stripe: StripeIndex,
        /// Where the set says it was written.
        location: String,
    },
    /// More is lost of a set with parity than can be rebuilt.
    #[error(
        "set {set}: {} devices are missing or damaged, and its parity can rebuild {parities}: {}",
        lost.len(), lost.join(", ")
    )]
    BeyondParity {
        /// The set.
        set: SetId,
        /// How many devices can be lost.
        parities: u16,
        /// Where the devices are, or were written.
        lost: Vec<String>,
    },
    /// A set that has no parity cannot be repaired.
    #[error("set {set} has no parity")]
    NoParity {
        /// The set.
        set: SetId,
    },
    /// The directory in which a device was written is gone.
    #[error("cannot write the lost device anew: the directory {} does not exist", directory.display())]
    RepairNoDirectory {
        /// The directory.
        directory: PathBuf,
    },
    /// Another set has the name of a device that is to be written anew.
    #[error("cannot write the lost device anew: {} is of set {set}", path.display())]
    RepairOtherSet {
        /// The file.
        path: PathBuf,
        /// The set that it is of.
        set: SetId,
    },
    /// The same stripe was given twice, in two files. It does not matter whether their bytes are
    /// the same.
    #[error("stripe {stripe} of set {set} is there twice: in {first} and in {second}")]
    StripeTwice {
        /// The set.
        set: SetId,
        /// Which stripe.
        stripe: StripeIndex,
        /// One of them.
        first: String,
        /// The other.
        second: String,
    },
    /// The given places hold stripes of more than one set.
    #[error("stripes of different sets were given:{}", mixed_words(stripes))]
    SetsMixed {
        /// Where each stripe is, and its set.
        stripes: Vec<(String, SetId)>,
    },
    /// Nobody can make a database of this set, or this version does not know how.
    #[error("set {set} is {what}, and this version of Windlass cannot make a database of it")]
    NoDatabase {
        /// The set.
        set: SetId,
        /// What the set is, with its article.
        what: &'static str,
    },
    /// The set builds on another one, which was not found.
    #[error("set {set} builds on set {base}, which is missing (it was at {location})")]
    BaseMissing {
        /// The set.
        set: SetId,
        /// The set on which it builds.
        base: SetId,
        /// Where a stripe of the base was when the set was written.
        location: String,
    },
    /// There is a set with the id of the base, but it is not the set that was the base.
    #[error("set {set} builds on set {base}, and the set with this id is another one")]
    BaseDiffers {
        /// The set.
        set: SetId,
        /// The id of the base.
        base: SetId,
    },
    /// The content of the stripes does not add up to the files that the set lists.
    #[error("set {set}: {what}")]
    Incomplete {
        /// The set.
        set: SetId,
        /// What does not add up.
        what: Mismatch,
    },
    /// There is no set at the named place.
    #[error("no backup set at {location}")]
    NoSet {
        /// Where the search looked.
        location: String,
    },
    /// The buffers would take more memory than allowed.
    #[error(
        "{buffers} buffers of {transfer_bytes} bytes take {needed_bytes} bytes, above the limit of {limit_bytes}"
    )]
    MemoryLimit {
        /// Buffer count.
        buffers: usize,
        /// Bytes of each.
        transfer_bytes: usize,
        /// Their product.
        needed_bytes: u64,
        /// What is allowed.
        limit_bytes: u64,
    },
    /// The buffers and the parity would take more memory than allowed.
    #[error(
        "parity needs {needed_bytes} bytes of memory with the buffers, the limit is {limit_bytes}"
    )]
    ParityMemory {
        /// What is needed, with the buffers.
        needed_bytes: u64,
        /// What is allowed.
        limit_bytes: u64,
    },
    /// The buffers and what takes pages apart would take more memory than allowed.
    #[error("taking pages apart needs {needed_bytes} bytes of memory, the limit is {limit_bytes}")]
    PagesMemory {
        /// What is needed, with the buffers.
        needed_bytes: u64,
        /// What is allowed.
        limit_bytes: u64,
    },
    /// The set's frames need larger buffers, and these do not fit into the allowed memory.
    #[error(
        "the set's frames of up to {frame_bytes} bytes need {buffers} buffers of {transfer_bytes} bytes: the memory limit is {limit_bytes} and must be at least {needed_bytes}"
    )]
    FramesTooLarge {
        /// The set's largest frame.
        frame_bytes: u32,
        /// Buffer count.
        buffers: usize,
        /// How many bytes each buffer must hold.
        transfer_bytes: usize,
        /// Their product.
        needed_bytes: u64,
        /// What is allowed.
        limit_bytes: u64,
    },
    /// The system refused one more thread.
    #[error("cannot start one more {stage} thread: {source}")]
    Thread {
        /// The stage.
        stage: StageName,
        /// What the system said.
        source: io::Error,
    },
    /// The file of a stripe was moved away or replaced while it was written.
    #[error("{} was moved, removed or replaced during the backup: the stripe is not there", path.display())]
    StripeTaken {
        /// The name under which it was written.
        path: PathBuf,
    },
    /// A setting has a value with which the engine cannot work.
    #[error("{setting}: {fault}")]
    Setting {
        /// Which one.
        setting: Setting,
        /// What is wrong.
        fault: SettingFault,
    },
    /// The format refused something that the run wanted to write.
    #[error("cannot describe the set: {0}")]
    Format(#[from] FormatError),
    /// A database's crate failed inside the pipeline.
    #[error("{0}")]
    Source(Box<dyn std::error::Error + Send + Sync>),
    /// A thread of the run panicked, which is a bug in Windlass or in a hook.
    #[error("a thread of the run panicked: {message}")]
    ThreadPanicked {
        /// What it said.
        message: String,
    },
    /// Another thread of the run failed first. Its error is the one to show.
    #[error("the run stopped because of another error")]
    Stopped,
}

impl Setting {
    /// The error that says what is wrong with the value of this setting.
    pub(crate) fn refused(self, fault: SettingFault) -> EngineError {
        EngineError::Setting {
            setting: self,
            fault,
        }
    }
}

const REPAIR_NO_DIRECTORY: &str =
    "Create the directory, or mount the new disk there. Then run the same command again.";
const REPAIR_OTHER_SET: &str = "A later backup has that name. Move the rest of the set that you \
     repair to other directories, and name these.";

impl EngineError {
    /// True if media are damaged or unread, false if the run failed for another reason.
    pub(crate) fn is_of_media(&self) -> bool {
        use io::ErrorKind::{ConnectionRefused, HostUnreachable, PermissionDenied};
        // Whoever may not read, or cannot reach a server, learns nothing about the media.
        let says_nothing = [ConnectionRefused, HostUnreachable, PermissionDenied];
        let unread = matches!(self, Self::DeviceIo { operation, source, .. }
            if *operation == DeviceOperation::Read && !says_nothing.contains(&source.kind()));
        self.is_damage() || unread
    }

    /// True when this user may not read the media. That says nothing about their state.
    pub fn is_denied(&self) -> bool {
        let denied = |source: &io::Error| source.kind() == io::ErrorKind::PermissionDenied;
        let read = DeviceOperation::Read;
        matches!(
            self,
            Self::DeviceIo { operation, source, .. } if *operation == read && denied(source)
        )
    }

    /// True when media were read and were found damaged, incomplete or mixed up.
    pub fn is_damage(&self) -> bool {
        match self {
            // The source is a set itself.
            Self::SourceIo { source, .. } => source.kind() == io::ErrorKind::InvalidData,
            Self::Damage { .. }
            | Self::NotSealed { .. }
            | Self::StripeMissing { .. }
            | Self::BeyondParity { .. }
            | Self::StripeTwice { .. }
            | Self::SetsMixed { .. }
            | Self::BaseMissing { .. }
            | Self::BaseDiffers { .. }
            | Self::Incomplete { .. } => true,
            _ => false,
        }
    }

    /// What can be done about it, as a full sentence. Whoever has commands and options to offer
    /// says more.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::NoSet { .. } => {
                "Name a stripe of the set, or the directory that holds its stripes."
            }
            Self::StripeMissing { .. } | Self::BeyondParity { .. } => {
                "Name every place that holds stripes of this set, or copy the missing one back."
            }
            Self::NoParity { .. } => "Restore from another set, or from the base of this one.",
            Self::RepairNoDirectory { .. } => REPAIR_NO_DIRECTORY,
            Self::RepairOtherSet { .. } => REPAIR_OTHER_SET,
            Self::StripeTwice { .. } => "Name the file that you mean instead of the directory.",
            Self::NoDatabase { .. } => "Use a newer version of Windlass.",
            Self::BaseMissing { .. } => "Copy the base back beside the set, or to where it was.",
            Self::BaseDiffers { .. } => {
                "Move the set that has this id away, and copy the right one back."
            }
            Self::StripeTaken { .. } => {
                "Nothing may move, remove or replace the files of a backup under way. Begin it again."
            }
            Self::SetsMixed { .. } => {
                "Name one stripe of the set that you mean: Windlass finds its other stripes beside \
                 it and where they were written."
            }
            Self::NotSealed { .. } => {
                "The next backup to this place removes it, or gives it its name if it is complete."
            }
            Self::Damage { source, offset, .. } => damage_hint(source, *offset)?,
            Self::Thread { .. } => {
                "Raise the limit of this user on processes (ulimit -u, TasksMax of a systemd unit) \
                 or on memory (ulimit -v)."
            }
            Self::OutputRefused { .. } => {
                "Windlass writes to no source, to nothing that belongs to one, to no stripe that \
                 it reads, and to no file for two purposes. Name another place."
            }
            Self::OutputUnseen { .. } => {
                "If root starts a run, the run goes on as the owner of the database. Name another \
                 place, or let that user enter the directory."
            }
            Self::OutputStream { .. } => {
                "Windlass puts a new file under this name. Name a regular file, or a new one."
            }
            Self::OutputForeign { .. } => {
                "Windlass replaces only files of the same kind. Name another file, or move this \
                 one away first."
            }
            Self::SourceShort { .. } => {
                "Something cut the file off, or its end is lost: check the source before you back \
                 it up again."
            }
            Self::TargetRefused { .. } => "Name an empty or a new directory.",
            Self::ThreadPanicked { .. } => {
                "This is a bug in Windlass. Report it with this message and the lines above it."
            }
            _ => self.hint_of_io()?,
        };
        Some(text.to_owned())
    }
}
