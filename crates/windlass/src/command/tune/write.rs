//! Writes the setting that was found into the configuration.

use std::path::{Path, PathBuf};

use windlass_engine::media::fitted;
use windlass_operations::tuning::TuneOutcome;

use crate::cli::{Global, Tune};
use crate::config::{self, edit};
use crate::database::DatabaseName;
use crate::devices::DeviceName;
use crate::exit::{Code, Failure};

/// Writes it. Returns the file, and the database's name in it.
pub(super) fn write(
    global: &Global,
    arguments: &Tune,
    found: &TuneOutcome,
) -> Result<(PathBuf, String), Failure> {
    let path = edit::file(global.config.as_deref());
    let name = arguments.name.clone();
    let name = name.unwrap_or_else(|| found.database.short_name());
    let setting = found.advised();
    let number = |value: usize| fitted::<i64, _>(value).into();
    let mut options = vec![
        ("compress", setting.codec.to_string().into()),
        ("buffers", number(setting.buffers)),
        (
            "transfer-size",
            format!("{}KiB", setting.transfer_bytes >> 10).into(),
        ),
        ("readers", number(setting.readers)),
        ("threads", number(setting.threads)),
    ];
    // The trials were fast with it, so backups have to do the same.
    if let Some(pages) = &arguments.pages {
        options.push(("pages", pages.clone().into()));
    }
    // Another file of the configuration may name the database, and its devices hold the backups.
    let whose = match config::database_names().contains(&name) {
        true => Vec::new(),
        false => whose(&found.database, &found.devices)?,
    };
    edit::set(&path, &name, whose, options)?;
    Ok((path, name))
}

/// Where a database is and where its backups go, for a database that the configuration does not
/// name yet. A device that keeps nothing is for trials only, so `to` is then left out.
fn whose(database: &DatabaseName, devices: &[DeviceName]) -> Result<edit::Options, Failure> {
    let source = match database {
        DatabaseName::Postgres(conninfo) => conninfo.clone(),
        DatabaseName::Sqlite(path) => absolute(path)?,
    };
    let mut whose = vec![("source", source.into())];
    let paths: Option<Vec<_>> = devices.iter().map(DeviceName::path).collect();
    if let Some(paths) = paths {
        let to: Result<toml_edit::Array, _> = paths.into_iter().map(absolute).collect();
        whose.push(("to", to?.into()));
    }
    Ok(whose)
}

/// A path as it is meant wherever the next backup starts.
fn absolute(path: &Path) -> Result<String, Failure> {
    let absolute = std::path::absolute(path).map_err(|error| {
        let message = format!("{}: {error}", path.display());
        Failure::new(Code::Failed, message, "Name the whole path.")
    })?;
    Ok(absolute.display().to_string())
}
