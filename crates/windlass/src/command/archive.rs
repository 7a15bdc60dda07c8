//! `windlass archive-push` and `windlass archive-get`: one file of a log, to a place or from it.

use std::process::{Command, Stdio};

use windlass_operations::{
    ArchiveGetRequest, ArchivePushRequest, archive_get, archive_get_ahead, archive_get_has_more,
    archive_push, archive_push_ahead,
};
use windlass_repository::{Fetched, Pushed};

use crate::cli::{ArchiveGet, ArchivePush, Global};
use crate::exit::{Code, Failure};
use crate::{output, requests};

pub fn push(global: &Global, arguments: &ArchivePush) -> Result<Code, Failure> {
    let caller = requests::quiet_caller(global);
    let request = ArchivePushRequest {
        path: arguments.path.clone(),
        to: arguments.to.clone(),
        system: arguments.system,
        look_ahead: arguments.look_ahead,
        codec: arguments.compress,
        encrypt: requests::log_readers(global, &arguments.to, &arguments.encrypt),
        threads: arguments.threads,
        spool: arguments.spool.clone(),
    };
    if arguments.fill {
        archive_push_ahead(&caller, &request)?;
        return Ok(Code::Done);
    }
    let archived = archive_push(&caller, &request)?;
    if archived.has_more {
        fill_beside();
    }
    // The exit code says what became of this file, so it stays 0: it is durable.
    if let Some(failure) = &archived.failure {
        output::note(&format!("warning: no segments are stored ahead: {failure}"));
    }
    if global.json {
        let (files, bytes, stored_bytes) = match archived.pushed {
            Pushed::Stored {
                files,
                bytes,
                stored_bytes,
            } => (files, bytes, stored_bytes),
            Pushed::Already => (0, 0, 0),
        };
        let document = serde_json::json!({
            "files": files,
            "bytes": bytes,
            "stored_bytes": stored_bytes,
        });
        output::line(&document.to_string());
    }
    Ok(Code::Done)
}

/// A file that the place does not have is no failure: servers ask for files to learn whether they
/// are there. The exit code tells them.
pub fn get(global: &Global, arguments: &ArchiveGet) -> Result<Code, Failure> {
    let caller = requests::quiet_caller(global);
    let request = ArchiveGetRequest {
        name: arguments.name.clone(),
        into: arguments.into.clone(),
        from: arguments.from.clone(),
        system: arguments.system,
        threads: arguments.threads,
        spool: arguments.spool.clone(),
        until: arguments.until,
    };
    if arguments.fill {
        archive_get_ahead(&caller, &request, arguments.ahead)?;
        return Ok(Code::Done);
    }
    let fetched = archive_get(&caller, &request)?;
    if matches!(fetched, Fetched::Complete { .. })
        && archive_get_has_more(&caller, &request, arguments.ahead)
    {
        fill_beside();
    }
    if global.json {
        let (found, end) = match fetched {
            Fetched::Complete { .. } => (true, None),
            Fetched::UpTo { end } => (true, Some(end.to_string())),
            Fetched::Absent => (false, None),
        };
        let document = serde_json::json!({ "found": found, "log_ends_at": end });
        output::line(&document.to_string());
    }
    Ok(match fetched {
        Fetched::Absent => Code::Absent,
        _ => Code::Done,
    })
}

/// Runs this command again, to work ahead beside the server: to fetch what it will ask for, or to
/// store what it will hand over. It is in the server's group of processes, so it ends when the
/// server is stopped at once. If it cannot be started, each file waits for its own call.
fn fill_beside() {
    let Ok(program) = std::env::current_exe() else {
        return;
    };
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).arg("--fill");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
        .stderr(Stdio::null())
        .spawn()
        .map(drop)
        .unwrap_or_default();
}
