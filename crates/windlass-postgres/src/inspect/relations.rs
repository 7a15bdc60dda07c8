//! Lets amcheck check the content of relations.

use postgres::error::{DbError, SqlState};
use postgres::{Client, Row};

use super::found::{FAULTS_NAMED, RelationFault};
use crate::error::{PostgresError, SqlContext};
use crate::open::Connection;

/// No timeout ends a check, only the user. The search path contains nothing that somebody planted.
const SETTINGS: &str = "SET statement_timeout = 0; SET lock_timeout = 0; \
     SET idle_in_transaction_session_timeout = 0; SET search_path = pg_catalog; \
     SET default_transaction_read_only = off; SET client_min_messages = error";
/// If the removal of a database was cut off, its limit is -2 and nobody can connect to it.
const DATABASES: &str = "SELECT datname::text FROM pg_database \
     WHERE datallowconn AND datconnlimit <> -2 ORDER BY oid";
const EXTENSION: &str = "SELECT n.nspname::text FROM pg_extension e \
     JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'amcheck'";
/// Tables of the heap access method, and valid B-trees. The largest come first, so that no thread
/// is still busy with a large one when the others have finished.
const RELATIONS: &str = "SELECT c.oid, format('%I.%I', n.nspname, c.relname), a.amname = 'btree' \
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     JOIN pg_am a ON a.oid = c.relam LEFT JOIN pg_index i ON i.indexrelid = c.oid \
     WHERE c.relpersistence <> 't' \
       AND (c.relkind IN ('r', 'm', 't') AND a.amname = 'heap' \
            OR c.relkind = 'i' AND a.amname = 'btree' AND i.indisvalid AND i.indisready) \
     ORDER BY pg_relation_size(c.oid) DESC, c.oid";

/// How the server says that a segment of pg_xact or pg_multixact is missing.
const STATUS_UNKNOWN: &str = "could not access status of transaction";

/// A relation to check.
pub(super) struct Relation {
    oid: u32,
    name: String,
    pub(super) is_index: bool,
    /// The statement that checks it.
    sql: String,
}

/// The result of checking one relation.
#[derive(Default)]
pub(super) struct Checked {
    pub(super) faults: Option<RelationFault>,
    pub(super) unchecked: Option<RelationFault>,
}

/// The databases that accept connections.
pub(super) fn databases(connection: &Connection) -> Result<Vec<String>, PostgresError> {
    let mut session = session(connection, &connection.database)?;
    let rows = session.query(DATABASES, &[]).doing("list databases")?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// A session in a database.
pub(super) fn session(connection: &Connection, database: &str) -> Result<Client, PostgresError> {
    let failed = |source: postgres::Error| PostgresError::OpenedConnect {
        roles: connection.user.clone(),
        source: source.into(),
    };
    let mut session = connection.session(database).map_err(failed)?;
    session.batch_execute(SETTINGS).doing("set up a session")?;
    Ok(session)
}

/// Opens a session in a database, installs amcheck, and lists what to check there.
pub(super) fn prepare(
    connection: &Connection,
    database: &str,
) -> Result<(Client, Vec<Relation>), PostgresError> {
    const DOING: &str = "list relations";
    let mut session = session(connection, database)?;
    let schema = install(&mut session).map_err(|source| PostgresError::Amcheck {
        database: database.into(),
        source: source.into(),
    })?;
    let rows = session.query(RELATIONS, &[]).doing(DOING)?;
    let relations = rows.iter().map(|row| relation(row, &schema)).collect();
    Ok((session, relations))
}

/// Installs amcheck, in a version that can check tables. Returns its schema, quoted. This database
/// is a copy that will be thrown away, so Windlass may change it.
fn install(session: &mut Client) -> Result<String, postgres::Error> {
    session.batch_execute(
        "CREATE EXTENSION IF NOT EXISTS amcheck WITH SCHEMA pg_catalog; \
         ALTER EXTENSION amcheck UPDATE",
    )?;
    let schema: String = session.query_one(EXTENSION, &[])?.try_get(0)?;
    Ok(format!("\"{}\"", schema.replace('"', "\"\"")))
}

fn relation(row: &Row, schema: &str) -> Relation {
    let is_index = row.get(2);
    let sql = if is_index {
        format!("SELECT {schema}.bt_index_check($1::oid::regclass, true)")
    } else {
        format!(
            "SELECT format('block %s, item %s: %s', blkno, offnum, msg) FROM \
             {schema}.verify_heapam($1::oid::regclass, on_error_stop => false, check_toast => true)"
        )
    };
    Relation {
        oid: row.get(0),
        name: row.get(1),
        is_index,
        sql,
    }
}

/// Checks one relation.
pub(super) fn check(
    session: &mut Client,
    database: &str,
    relation: &Relation,
) -> Result<Checked, PostgresError> {
    let about = |what: String| {
        Some(RelationFault {
            database: database.to_owned(),
            relation: relation.name.clone(),
            what,
        })
    };
    let mut checked = Checked::default();
    match session.query(&relation.sql, &[&relation.oid]) {
        Ok(rows) if relation.is_index || rows.is_empty() => {}
        Ok(rows) => checked.faults = about(summary(&rows)),
        Err(error) => match error.as_db_error() {
            Some(words) if is_damage(words) => checked.faults = about(said(words)),
            Some(words) => checked.unchecked = about(said(words)),
            // The session has ended, and perhaps the server too.
            None => return Err(error).doing("check a relation"),
        },
    }
    Ok(checked)
}

fn summary(rows: &[Row]) -> String {
    let words = rows.iter().take(FAULTS_NAMED);
    let mut text = words
        .map(|row| row.get(0))
        .collect::<Vec<String>>()
        .join("; ");
    if rows.len() > FAULTS_NAMED {
        text = format!("{text}; and {} more", rows.len() - FAULTS_NAMED);
    }
    text
}

/// True if the error says that data is wrong or cannot be read. Any other error (a missing library,
/// too little memory) says that the relation could not be checked.
fn is_damage(error: &DbError) -> bool {
    let codes = [
        SqlState::DATA_CORRUPTED,
        SqlState::INDEX_CORRUPTED,
        SqlState::IO_ERROR,
        SqlState::INTERNAL_ERROR,
    ];
    let of_status = error.message().starts_with(STATUS_UNKNOWN);
    codes.contains(error.code()) || *error.code() == SqlState::UNDEFINED_FILE && of_status
}

fn said(error: &DbError) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.message()),
        None => error.message().to_owned(),
    }
}
