//! A backup and a restore as the program would run them, and the checks of their result.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use windlass_engine::media::{BackupType, Codec, SetId};
use windlass_engine::{
    BackupOptions, BackupRun, BufferRequest, Cancel, Device, DirectoryTarget, FileDevice,
    FileDeviceOptions, METADATA_LIMIT_DEFAULT, OpenSet, Progress, RestoreOptions, TargetLayout,
    restore,
};
use windlass_postgres::{
    BackupOutcome, BackupRequest, Chain, ChainBase, Cluster, DatabaseFacts, Kept, PostgresError,
    RestorePlan, RestoreRequest, server_view,
};
use windlass_testkit::gate::Gate;
use windlass_testkit::postgres::{PrivateCluster, succeed};

const STRIPES: usize = 2;

static SETS: AtomicU64 = AtomicU64::new(1);

/// How a test wants its backup to run.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// Bytes per second. A limit makes the backup of a small cluster so slow that things can
    /// happen.
    pub source_rate: Option<u64>,
    /// The gate at which the devices wait before they write data.
    pub gate: Option<Gate>,
    /// The flag that stops it.
    pub cancel: Cancel,
    /// The label; empty for the default.
    pub label: String,
    /// Wait for a checkpoint that is spread over minutes.
    pub slow_checkpoint: bool,
    /// Take pages apart.
    pub pages: bool,
    /// Differential or incremental, and the directory of the set that it builds on.
    pub chain: Option<(BackupType, PathBuf)>,
    /// Fail if it cannot build on that.
    pub strict: bool,
}

/// Backs a cluster up into two stripes in `directory`.
pub fn backup(cluster: &PrivateCluster, directory: &Path) -> BackupOutcome {
    try_backup(cluster, directory, &Wish::default()).unwrap()
}

/// Like [`backup`], with the test's wishes; it may fail.
pub fn try_backup(
    cluster: &PrivateCluster,
    directory: &Path,
    wish: &Wish,
) -> Result<BackupOutcome, PostgresError> {
    let mut connected = Cluster::connect(&cluster.conninfo())?;
    backup_connected(&mut connected, directory, wish)
}

/// Like [`try_backup`], over an existing connection.
pub fn backup_connected(
    cluster: &mut Cluster,
    directory: &Path,
    wish: &Wish,
) -> Result<BackupOutcome, PostgresError> {
    std::fs::create_dir_all(directory).unwrap();
    let run = begin_run(directory, wish, cluster.scan_volumes()?);
    let mut request = BackupRequest {
        fast_checkpoint: !wish.slow_checkpoint,
        ..Default::default()
    };
    if let Some((backup_type, base)) = &wish.chain {
        let set = OpenSet::open(std::slice::from_ref(base), METADATA_LIMIT_DEFAULT).unwrap();
        request.chain = Some(Chain {
            backup_type: *backup_type,
            base: Arc::new(ChainBase::of_set(&set)?),
            is_strict: wish.strict,
        });
    }
    if !wish.label.is_empty() {
        request.label.clone_from(&wish.label);
    }
    cluster.backup(&request, run)
}

fn begin_run(directory: &Path, wish: &Wish, volumes: usize) -> BackupRun {
    let mut request = BufferRequest::default();
    // Writes that wait at a gate hold buffers. Use few and small buffers and no compression, so
    // that most of the source is still unread at that moment.
    if wish.gate.is_some() {
        request.transfer_bytes = Some(128 << 10);
    }
    let plan = request.plan(STRIPES, volumes).unwrap();
    let options = BackupOptions {
        plan,
        codec: if wish.gate.is_some() && !wish.pages {
            Codec::None
        } else {
            Codec::Zstd(1)
        },
        range: None,
        source_rate: wish.source_rate,
        device_rate: None,
        ring: true,
        pacing: None,
        page_frames: wish.pages,
        frame_proof: true,
        encryption: None,
        parities: 0,
    };
    let device = |index: usize| {
        let path = directory.join(format!("stripe-{index}"));
        let device = FileDevice::create(&path, FileDeviceOptions::default()).unwrap();
        let device: Box<dyn Device> = Box::new(device);
        match &wish.gate {
            Some(gate) => gate.device(device),
            None => device,
        }
    };
    let mut id = [7; 16];
    id[..8].copy_from_slice(&SETS.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    let devices = (0..STRIPES).map(device).collect();
    let progress = Arc::new(Progress::default());
    BackupRun::start(
        SetId(id),
        0,
        options,
        devices,
        progress,
        wish.cancel.clone(),
    )
    .unwrap()
}

/// Counts the sessions that wait for the lock on pg_tablespace. A backup does so at the end of a
/// window, because whoever plans a query reads pg_tablespace.
const WAITS_AT_END: &str = "SELECT count(*) FROM pg_stat_get_activity(NULL) \
    WHERE wait_event_type = 'Lock' AND query LIKE '%tablespace%'";

/// Takes that lock, until the prepared transaction ends.
const HOLD: &str =
    "BEGIN; LOCK TABLE pg_tablespace IN ACCESS EXCLUSIVE MODE; PREPARE TRANSACTION 'hold'";

/// Lets a backup that waits at the gate copy all files of its window, and closes the gate before
/// what comes next: another window, or the log. Needs `max_prepared_transactions = 1`.
pub fn end_window_at_gate(source: &PrivateCluster, gate: &Gate) {
    source.sql("postgres", HOLD);
    gate.open();
    source.wait_until(WAITS_AT_END, "1");
    gate.close();
    source.sql("postgres", "COMMIT PREPARED 'hold'");
}

/// Restores the set in `directory`. `map` says where tablespaces go.
pub fn restore_set(directory: &Path, into: &Path, map: &[(PathBuf, PathBuf)]) -> RestorePlan {
    restore_keeping(directory, into, map, Kept::default())
}

/// Like [`restore_set`]; `keep` says which connections to the outside stay on.
pub fn restore_keeping(
    directory: &Path,
    into: &Path,
    map: &[(PathBuf, PathBuf)],
    keep: Kept,
) -> RestorePlan {
    let request = RestoreRequest {
        into: into.into(),
        tablespace_map: map.to_vec(),
        keep,
        ..RestoreRequest::default()
    };
    restore_as(directory, &request).unwrap()
}

/// Restores the set in `directory` as the request says.
pub fn restore_as(
    directory: &Path,
    request: &RestoreRequest,
) -> Result<RestorePlan, PostgresError> {
    let set = OpenSet::open(&[directory.to_path_buf()], METADATA_LIMIT_DEFAULT).unwrap();
    let description = set.description();
    let plan = RestorePlan::new(&description.facts, &description.files, request)?;
    plan.prepare().unwrap();
    let target = DirectoryTarget::create(plan.layout(description.files.clone())).unwrap();
    let buffers = BufferRequest::default().plan(STRIPES, 1).unwrap();
    let options = RestoreOptions {
        plan: buffers,
        device_rate: None,
        ring: true,
        pacing: None,
    };
    let options = options.fit(&set).unwrap();
    restore(
        &set,
        &target,
        &options,
        &Arc::new(Progress::default()),
        &Cancel::new(),
    )
    .unwrap();
    Ok(plan)
}

/// Restores the set in `directory` in the form that an opened server must see: all of it in one
/// directory.
pub fn restore_view(directory: &Path, into: &Path) -> DatabaseFacts {
    let set = OpenSet::open(&[directory.to_path_buf()], METADATA_LIMIT_DEFAULT).unwrap();
    let description = set.description();
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(0o700).create(into).unwrap();
    let layout = TargetLayout {
        root: into.into(),
        files: server_view(&description.files).unwrap(),
        ..TargetLayout::default()
    };
    let target = DirectoryTarget::create(layout).unwrap();
    let options = RestoreOptions {
        plan: BufferRequest::default().plan(STRIPES, 1).unwrap(),
        device_rate: None,
        ring: true,
        pacing: None,
    };
    let options = options.fit(&set).unwrap();
    let progress = Arc::new(Progress::default());
    restore(&set, &target, &options, &progress, &Cancel::new()).unwrap();
    DatabaseFacts::of_set(&description.facts.database).unwrap()
}

/// True when `directory` holds no sealed set.
pub fn holds_no_set(directory: &Path) -> bool {
    OpenSet::open(&[directory.to_path_buf()], METADATA_LIMIT_DEFAULT).is_err()
}

/// Like [`verify_backup`], for servers of any version.
fn check_manifest(source: &PrivateCluster, restored: &Path) {
    let version = std::fs::read_to_string(restored.join("PG_VERSION")).unwrap();
    match version.trim().parse::<u32>().unwrap() {
        15 => verify_backup(source, restored),
        major => crate::versions::check_manifest(source, major, restored),
    }
}

/// Runs PostgreSQL's own check of a backup. No server may have started on it before.
pub fn verify_backup(cluster: &PrivateCluster, restored: &Path) {
    succeed(cluster.tool("pg_verifybackup").arg(restored));
}

/// Checks every table and index of a running server, also against each other.
pub fn check_relations(server: &PrivateCluster) {
    server.sql("postgres", "CREATE EXTENSION IF NOT EXISTS amcheck");
    let arguments = [
        "--all",
        "--install-missing",
        "--heapallindexed",
        "--parent-check",
        // PostgreSQL's own tests have it for a moment. Its function needs a search path that nobody
        // sets who checks indexes.
        "--exclude-index=vaccluster_wrap_do_analyze_idx",
    ];
    succeed(server.tool("pg_amcheck").args(arguments));
}

/// Restores and verifies the set, starts the server and checks it, stops it cleanly, checks page
/// checksums, and starts it again.
pub fn restore_and_judge(
    source: &PrivateCluster,
    directory: &Path,
    into: &Path,
    map: &[(PathBuf, PathBuf)],
) -> PrivateCluster {
    restore_set(directory, into, map);
    check_manifest(source, into);
    let mut server = PrivateCluster::adopt(into, source.bin());
    check_relations(&server);
    let own_tools = source.bin().join("pg_checksums").exists();
    if own_tools && server.sql("postgres", "SHOW data_checksums") == "on" {
        server.stop("fast");
        succeed(
            server
                .tool("pg_checksums")
                .args(["--check", "-D"])
                .arg(into),
        );
        server.run();
    }
    server
}
