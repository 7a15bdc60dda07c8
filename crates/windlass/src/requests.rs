//! From the command line to the requests of operations. Every option that only says how a run is
//! done is read here, once.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use windlass_engine::media::{BackupType, saturated};
use windlass_engine::{BufferRequest, EventFormat};
use windlass_model::Emulation;
use windlass_operations::history::{History, HistoryRequest};
use windlass_operations::metrics::MetricsAddress;
use windlass_operations::{
    BackupRequest, Caller, Compression, Events, HookCommands, LogBackupRequest, OpenSettings,
    PageChoice, ProcessUse, Rates, RestoreRequest, RunSettings, SetChoice, SetRequest,
    VerifyRequest, Watching,
};

use windlass_postgres::Kept;

use crate::cli::{
    self, Backup, BackupKind, Buffers, Choice, Global, Layout, OffOrKeep, TraceFormat,
};
use crate::exit::Failure;
use crate::log;
use crate::observer::Terminal;

/// The command line as the caller of an operation.
pub fn caller(global: &Global, terminal: Terminal) -> Caller {
    Caller {
        process: ProcessUse::Own,
        tool: format!("windlass {}", env!("CARGO_PKG_VERSION")),
        host: global.host(),
        log: log::file(global).map(std::path::Path::to_owned),
        observer: Arc::new(terminal),
        history: match global.no_history {
            true => History::none(),
            false => History::of_process(),
        },
    }
}

/// The caller of an operation that reports little while it runs.
pub fn quiet_caller(global: &Global) -> Caller {
    caller(global, Terminal::new(global, false, 10))
}

/// The sets that these words mean.
pub fn sets(global: &Global, words: &[PathBuf], choice: &Choice) -> SetRequest {
    SetRequest {
        words: words.to_vec(),
        choice: SetChoice {
            which: choice.which.clone(),
            of: choice.of.clone(),
        },
        configured: global.configured.clone(),
    }
}

/// What a backup does.
pub fn backup(arguments: &Backup) -> Result<BackupRequest, Failure> {
    if arguments.base.is_some() && arguments.kind == BackupKind::Full {
        return Err(Failure::usage(
            "--base: a full backup builds on no other set".to_owned(),
            "Add --type diff or --type incr, or leave --base out.",
        ));
    }
    Ok(BackupRequest {
        database: arguments.database.clone(),
        name: arguments.name.clone(),
        to: arguments.to.clone(),
        to_is_expected: arguments.to_is_configured,
        backup_type: match arguments.kind {
            BackupKind::Full | BackupKind::Log => BackupType::Full,
            BackupKind::Diff => BackupType::Diff,
            BackupKind::Incr => BackupType::Incr,
        },
        base: arguments.base.clone(),
        is_strict: arguments.strict,
        compression: Compression::parse(&arguments.coding.compress)?,
        compression_text: arguments.coding.compress.clone(),
        pages: page_choice(arguments.coding.pages.as_deref()),
        frame_proof: !arguments.coding.no_frame_proof,
        mirrors: arguments.mirrors.clone(),
        encrypt: arguments.encrypt.clone(),
        parities: arguments.parity,
        rates: rates(&arguments.rates),
        overwrite: arguments.overwrite,
        buffered: arguments.buffered,
        label: arguments.label.clone(),
        fast_checkpoint: arguments.checkpoint == "fast",
        page_checksums: !arguments.no_page_checksums,
        lock_wait: arguments.lock_wait.map(Duration::from_secs),
        lock_limit: arguments.lock_limit.map(Duration::from_secs),
        accept: arguments.accept.clone(),
        keep_prediction: !arguments.no_prediction,
        hooks: hooks(&arguments.hooks)?,
        watching: watching(&arguments.watching)?,
        settings: settings(&arguments.buffers, &arguments.layout)?,
    })
}

/// What a merge does: that of a backup which concerns no live database.
pub fn merge(arguments: &cli::Merge) -> Result<BackupRequest, Failure> {
    let words = arguments.set.iter();
    let words: Vec<_> = words.map(|word| word.display().to_string()).collect();
    let subject = words.join(", ");
    let to: Vec<_> = arguments.to.iter().map(String::as_str).collect();
    Ok(BackupRequest {
        name: Some(subject.clone()),
        compression: Compression::parse(&arguments.coding.compress)?,
        compression_text: arguments.coding.compress.clone(),
        pages: page_choice(arguments.coding.pages.as_deref()),
        frame_proof: !arguments.coding.no_frame_proof,
        encrypt: arguments.encrypt.clone(),
        rates: rates(&arguments.rates),
        buffered: arguments.buffered,
        keep_prediction: false,
        hooks: hooks(&arguments.hooks)?,
        watching: watching(&arguments.watching)?,
        settings: settings(&arguments.buffers, &arguments.layout)?,
        ..BackupRequest::new(&subject, &to)
    })
}

/// Who can read the log that is written to a place: who was named, or who can read its sets by the
/// configuration.
pub fn log_readers(global: &Global, place: &std::path::Path, named: &[String]) -> Vec<String> {
    if !named.is_empty() {
        return named.to_vec();
    }
    let same = |other: &PathBuf| match (place.canonicalize(), other.canonicalize()) {
        (Ok(place), Ok(other)) => place == other,
        _ => place == other,
    };
    let of_place = global.encrypted_places.iter();
    let of_place = of_place.filter(|(other, _)| same(other));
    let mut readers = Vec::new();
    for word in of_place.flat_map(|(_, words)| words) {
        if !readers.contains(word) {
            readers.push(word.clone());
        }
    }
    readers
}

/// What a backup of the log does.
pub fn log_backup(global: &Global, arguments: &Backup) -> Result<LogBackupRequest, Failure> {
    let place = arguments.to.first().map_or("", String::as_str);
    Ok(LogBackupRequest {
        database: arguments.database.clone(),
        name: arguments.name.clone(),
        to: arguments.to.clone(),
        codec: Compression::parse(&arguments.coding.compress)?.first(),
        encrypt: log_readers(global, place.as_ref(), &arguments.encrypt),
        threads: arguments.buffers.threads,
        accept: arguments.accept.clone(),
        hooks: hooks(&arguments.hooks)?,
        watching: watching(&arguments.watching)?,
    })
}

/// What a restore does.
pub fn restore(global: &Global, arguments: &cli::Restore) -> Result<RestoreRequest, Failure> {
    Ok(RestoreRequest {
        set: sets(global, &arguments.set, &arguments.choice),
        into: arguments.into.clone(),
        tablespace_map: arguments.tablespace_map.clone(),
        only_databases: arguments.only_database.clone(),
        only_tablespaces: arguments.only_tablespace.clone(),
        keep: Kept {
            archive: arguments.archive == OffOrKeep::Keep,
            subscriptions: arguments.subscriptions == OffOrKeep::Keep,
        },
        recovery: Some(arguments.target.request()),
        delta: arguments.delta,
        force: arguments.force,
        max_rate: arguments.max_rate,
        keep_prediction: !arguments.no_prediction,
        hooks: hooks(&arguments.hooks)?,
        watching: watching(&arguments.watching)?,
        settings: settings(&arguments.buffers, &Layout::default())?,
    })
}

/// What a verification does.
pub fn verify(global: &Global, arguments: &cli::Verify) -> Result<VerifyRequest, Failure> {
    let writable = false;
    Ok(VerifyRequest {
        set: sets(global, &arguments.set, &arguments.choice),
        at: arguments
            .at
            .recovery()
            .map(|recovery| windlass_operations::MomentRequest {
                recovery,
                settings: opening(&arguments.opening, writable),
            }),
        latest: arguments.latest,
        // What is only looked at is not read, whatever the configuration says of reading.
        new_since: arguments.new.filter(|_| !arguments.quick),
        quick: arguments.quick,
        open: arguments
            .open
            .then(|| opening(&arguments.opening, writable)),
        max_rate: arguments.max_rate,
        watching: watching(&arguments.watching)?,
        settings: settings(&arguments.buffers, &Layout::default())?,
    })
}

/// How a set is opened.
pub fn opening(options: &cli::OpenOptions, writable: bool) -> OpenSettings {
    OpenSettings {
        scratch: options.scratch.clone(),
        cache_bytes: options.cache,
        bindir: options.bindir.clone(),
        preload: options.preload.clone(),
        settings: options.settings.clone(),
        role: options.user.clone(),
        run_as: options.run_as.clone(),
        port: options.port,
        listen: options.listen.clone(),
        writable,
        name: None,
    }
}

/// What is asked of the history.
pub fn history(global: &Global, arguments: &cli::History) -> HistoryRequest {
    HistoryRequest {
        database: arguments.of.clone(),
        since: arguments.since,
        limit: (arguments.limit > 0).then_some(arguments.limit),
        failed: arguments.failed,
        rebuild: arguments.rebuild,
        from: arguments.from.clone(),
        page: arguments.html.clone(),
        configured: global.configured.clone(),
    }
}

/// What was asked about pages.
pub(crate) fn page_choice(asked: Option<&str>) -> PageChoice {
    match asked {
        None => PageChoice::Usual,
        Some("auto") => PageChoice::Auto,
        Some(_) => PageChoice::Off,
    }
}

/// Limits of speed.
pub fn rates(rates: &cli::Rates) -> Rates {
    Rates {
        read: rates.max_rate,
        write: rates.max_device_rate,
    }
}

/// How a run is recorded.
pub fn watching(watching: &cli::Watching) -> Result<Watching, Failure> {
    let address = watching.metrics.as_deref();
    Ok(Watching {
        events: watching.events.as_ref().map(|path| Events {
            path: path.clone(),
            format: match watching.events_format {
                TraceFormat::Jsonl => EventFormat::JsonLines,
                TraceFormat::Trace => EventFormat::Chrome,
            },
            limit_bytes: watching.events_limit,
        }),
        metrics: address.map(MetricsAddress::parse).transpose()?,
        metrics_file: watching.metrics_file.clone(),
    })
}

/// How a run is recorded that is not begun: no more than its file of metrics can tell of it.
pub fn watching_nothing(watching: &cli::Watching) -> Watching {
    Watching {
        metrics_file: watching.metrics_file.clone(),
        ..Watching::default()
    }
}

/// The commands before and after. One that cannot be parsed is a mistake in the options.
pub fn hooks(options: &cli::Hooks) -> Result<HookCommands, Failure> {
    let words = |option: &str, text: &Option<String>| -> Result<_, Failure> {
        let Some(text) = text.as_deref().filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let words = shlex::split(text).filter(|words| !words.is_empty());
        words.map(Some).ok_or_else(|| {
            Failure::usage(
                format!("--{option}: {text:?} has a quote without its end"),
                "Write a program and its arguments, as for a shell but without its other signs.",
            )
        })
    };
    Ok(HookCommands {
        before: words("before", &options.before)?,
        after: words("after", &options.after)?,
        on_failure: words("on-failure", &options.on_failure)?,
        timeout: options.hook_timeout.map(Duration::from_secs_f64),
    })
}

/// The models that storage has to imitate.
pub fn emulation(buffers: &Buffers) -> Result<Emulation, Failure> {
    Ok(Emulation::parse(
        buffers.bounds.emulate.iter().map(String::as_str),
    )?)
}

/// Buffers, threads and storage.
pub fn settings(buffers: &Buffers, layout: &Layout) -> Result<RunSettings, Failure> {
    Ok(RunSettings {
        buffers: request(buffers, layout)?,
        emulation: emulation(buffers)?,
        ring: !buffers.no_ring,
    })
}

/// Buffers and threads.
pub fn request(buffers: &Buffers, layout: &Layout) -> Result<BufferRequest, Failure> {
    let narrow = |option, value: Option<u64>| {
        value
            .map(|value| {
                usize::try_from(value).map_err(|_| {
                    Failure::usage(format!("{option}: {value} is too large"), "Lower it.")
                })
            })
            .transpose()
    };
    Ok(BufferRequest {
        buffers: buffers.buffers,
        transfer_bytes: narrow("--transfer-size", buffers.transfer_size)?,
        alignment: layout.block_size.map(saturated),
        frame_bytes: narrow("--frame-size", layout.frame_size)?,
        compressors: buffers.threads,
        readers: layout.readers,
        memory_limit: buffers.bounds.max_memory,
        gathered_bytes: 0,
        restores: false,
    })
}
