//! `windlass check` proves that a backup can run, without making one. `backup --dry-run` also says
//! what the backup would do.

use serde_json::json;
use windlass_engine::show_size;
use windlass_lab::Prediction;
use windlass_operations::check::{CheckedBackup, check_backup, check_round_trip};

use crate::cli::{Backup, Global};
use crate::devices::DeviceName;
use crate::exit::{Code, Failure};
use crate::{checks, foretold, output, requests, words};

pub fn run(global: &Global, arguments: &Backup) -> Result<Code, Failure> {
    let mut looked = looked(global, arguments, false)?;
    if arguments.repo.repo.is_some() {
        check_round_trip(&requests::backup(arguments)?, &mut looked);
    }
    let code = Code::from(looked.checks.ending());
    if global.json {
        let document = json!({
            "checks": checks::document(&looked.checks),
            "exit_code": code.number(),
        });
        output::line(&document.to_string());
    } else {
        checks::print(&looked.checks, global.quiet);
    }
    Ok(code)
}

/// Makes the same checks, and says what the run would read, write and take.
pub fn dry_run(global: &Global, arguments: &Backup) -> Result<Code, Failure> {
    let looked = looked(global, arguments, true)?;
    let code = Code::from(looked.checks.ending());
    let to: Vec<_> = looked.devices.iter().map(describe).collect();
    if global.json {
        let document = json!({
            "dry_run": true,
            "bytes": looked.bytes,
            "to": to,
            "plan": looked.plan,
            "prediction": looked.prediction.as_ref().map(foretold::document),
            "checks": checks::document(&looked.checks),
            "exit_code": code.number(),
        });
        output::line(&document.to_string());
        return Ok(code);
    }
    checks::print(&looked.checks, global.quiet);
    if global.quiet {
        return Ok(code);
    }
    if let Some(bytes) = looked.bytes {
        output::line(&format!("would read    {}", show_size(bytes)));
    }
    for place in &to {
        output::line(&format!("would write   {place}"));
    }
    show_time(looked.prediction.as_ref());
    output::line("nothing was changed");
    Ok(code)
}

/// How long it would take, if the storage was probed.
pub fn show_time(prediction: Option<&Prediction>) {
    output::line(&match prediction {
        Some(prediction) if prediction.is_too_short() => {
            format!("would take    {}", words::TOO_SHORT)
        }
        Some(prediction) => format!(
            "would take    about {}, {}",
            words::duration(prediction.seconds),
            words::bound(prediction.limit.stage)
        ),
        None => "would take    unknown: `windlass lab probe PATH` measures the storage of each end"
            .to_owned(),
    });
}

fn looked(global: &Global, arguments: &Backup, predicts: bool) -> Result<CheckedBackup, Failure> {
    let request = requests::backup(arguments)?;
    let caller = requests::quiet_caller(global);
    Ok(check_backup(&caller, &request, predicts)?)
}

/// What would be written, in a few words.
fn describe(device: &DeviceName) -> String {
    match device {
        DeviceName::Nul => "nothing (nul)".to_owned(),
        DeviceName::File(path) | DeviceName::Object(path) => path.display().to_string(),
        DeviceName::Directory(path) | DeviceName::Bucket(path) => {
            format!("a new stripe in {}", path.display())
        }
        DeviceName::NewDirectory(path) => {
            format!("a new stripe in {}, a directory to be made", path.display())
        }
    }
}
