//! One run in the catalog, and the table that holds it.

use rusqlite::{Connection, Row, params};
use serde::Serialize;

/// What is known of a run's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// It goes on.
    Running,
    /// It was done.
    Done,
    /// It was done, with warnings.
    Warnings,
    /// It failed.
    Failed,
    /// What was asked for could not be understood.
    Usage,
    /// It found damage.
    Damage,
    /// It was interrupted.
    Interrupted,
    /// Its process ended without a word.
    Killed,
}

impl CatalogRun {
    /// A run of which nothing is known yet but what runs, on what, since when.
    pub fn new(
        command: &str,
        operation: &str,
        (subject, series): (&str, &str),
        began: i64,
    ) -> Self {
        Self {
            row: 0,
            is_rebuilt: false,
            command: command.to_owned(),
            operation: operation.to_owned(),
            subject: subject.to_owned(),
            series: series.to_owned(),
            key: None,
            database: None,
            began,
            ended: None,
            state: RunState::Running,
            error: None,
            pid: 0,
            process_start: 0,
            boot: String::new(),
            tool: String::new(),
            set_id: None,
            set_type: None,
            base: None,
            bytes_read: None,
            bytes_written: None,
            seconds: None,
            limit: None,
            verdict: None,
            settings: "{}".to_owned(),
            warnings: "[]".to_owned(),
            report: None,
        }
    }
}

impl RunState {
    /// All of them.
    const ALL: [Self; 8] = [
        Self::Running,
        Self::Done,
        Self::Warnings,
        Self::Failed,
        Self::Usage,
        Self::Damage,
        Self::Interrupted,
        Self::Killed,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Warnings => "warnings",
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Damage => "damage",
            Self::Interrupted => "interrupted",
            Self::Killed => "killed",
        }
    }

    /// Whether the run did what it is for.
    pub fn is_success(self) -> bool {
        matches!(self, Self::Done | Self::Warnings)
    }

    /// Whether the run has ended without that.
    pub fn is_failure(self) -> bool {
        !self.is_success() && self != Self::Running
    }

    fn of_name(name: &str) -> Self {
        let found = Self::ALL.into_iter().find(|one| one.name() == name);
        // A version that knows more states has another version of the schema.
        found.unwrap_or(Self::Failed)
    }
}

/// One run. Times are in milliseconds since 1970; JSON stands as text.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogRun {
    /// The number of its row; zero before it has one.
    pub row: i64,
    /// Whether it was read from a set, because the catalog had lost it.
    pub is_rebuilt: bool,
    /// `backup`, `restore`, `verify`, `drill`.
    pub command: String,
    /// The same, but `trial` for a backup that keeps nothing, and `log` for one of the log.
    pub operation: String,
    /// What it worked on, as people call it.
    pub subject: String,
    /// What it worked on, the same every night.
    pub series: String,
    /// The key of the database that no other database has: a system identifier, or a path.
    pub key: Option<String>,
    /// The name of the database, as its sets have it.
    pub database: Option<String>,
    /// When it began.
    pub began: i64,
    /// When it ended.
    pub ended: Option<i64>,
    /// How it ended.
    pub state: RunState,
    /// What went wrong.
    pub error: Option<String>,
    /// The number of its process.
    pub pid: i64,
    /// When that process began, in ticks since the machine did.
    pub process_start: i64,
    /// The machine's run in which that was.
    pub boot: String,
    /// Name and version of the program.
    pub tool: String,
    /// The set that it made or read.
    pub set_id: Option<String>,
    /// The type of the set that it made.
    pub set_type: Option<String>,
    /// The set on which that builds.
    pub base: Option<String>,
    /// Bytes that were read.
    pub bytes_read: Option<i64>,
    /// Bytes that were written.
    pub bytes_written: Option<i64>,
    /// How long it took.
    pub seconds: Option<f64>,
    /// What limited it.
    pub limit: Option<String>,
    /// The same as a sentence.
    pub verdict: Option<String>,
    /// How it was set, and what its devices did: a JSON object.
    pub settings: String,
    /// The names of its warnings: a JSON array.
    pub warnings: String,
    /// Everything that it reported: a JSON object. Only the newest runs have it, and it is not read
    /// with the others.
    pub report: Option<String>,
}

const SCHEMA: &str = "
create table meta (key text primary key, value text not null) without rowid;
create table run (
    id integer primary key autoincrement, is_rebuilt integer not null, command text not null,
    operation text not null, subject text not null, series text not null, key text, database text,
    began integer not null, ended integer, state text not null, error text, pid integer not null,
    process_start integer not null, boot text not null, tool text not null, set_id text,
    set_type text, base text, bytes_read integer, bytes_written integer,
    seconds real, bound_by text, verdict text, settings text not null, warnings text not null,
    report text);
create index run_set on run (set_id);
";

const COLUMNS: &str = "is_rebuilt, command, operation, subject, series, key, database, began, \
     ended, state, error, pid, process_start, boot, tool, set_id, set_type, base, bytes_read, \
     bytes_written, seconds, bound_by, verdict, settings, warnings";

pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(SCHEMA)
}

/// Fails if the table cannot be read.
pub(super) fn check(connection: &Connection) -> rusqlite::Result<()> {
    let query = format!("select {COLUMNS}, report from run order by id desc limit 1");
    let mut statement = connection.prepare(&query)?;
    let mut rows = statement.query([])?;
    rows.next().map(drop)
}

pub(super) fn insert(connection: &Connection, run: &CatalogRun) -> rusqlite::Result<i64> {
    let statement = format!(
        "insert into run ({COLUMNS}, report) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, \
         ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26)"
    );
    write(connection, &statement, run)?;
    Ok(connection.last_insert_rowid())
}

/// Writes a row again. Returns how many rows have this number.
pub(super) fn update(
    connection: &Connection,
    row: i64,
    run: &CatalogRun,
) -> rusqlite::Result<usize> {
    let columns = COLUMNS.split(',').chain(["report"]).enumerate();
    let columns: Vec<_> = columns
        .map(|(index, column)| format!("{} = ?{}", column.trim(), index + 1))
        .collect();
    let statement = format!("update run set {} where id = {row}", columns.join(", "));
    write(connection, &statement, run)
}

fn write(connection: &Connection, statement: &str, run: &CatalogRun) -> rusqlite::Result<usize> {
    connection.execute(
        statement,
        params![
            run.is_rebuilt,
            run.command,
            run.operation,
            run.subject,
            run.series,
            run.key,
            run.database,
            run.began,
            run.ended,
            run.state.name(),
            run.error,
            run.pid,
            run.process_start,
            run.boot,
            run.tool,
            run.set_id,
            run.set_type,
            run.base,
            run.bytes_read,
            run.bytes_written,
            run.seconds,
            run.limit,
            run.verdict,
            run.settings,
            run.warnings,
            run.report,
        ],
    )
}

/// All rows without their reports, the oldest beginning first.
pub(super) fn all(connection: &Connection) -> rusqlite::Result<Vec<CatalogRun>> {
    let query = format!("select {COLUMNS}, id from run order by began, id");
    let mut statement = connection.prepare(&query)?;
    let rows = statement.query_map([], read)?;
    rows.collect()
}

fn read(row: &Row<'_>) -> rusqlite::Result<CatalogRun> {
    Ok(CatalogRun {
        row: row.get("id")?,
        is_rebuilt: row.get("is_rebuilt")?,
        command: row.get("command")?,
        operation: row.get("operation")?,
        subject: row.get("subject")?,
        series: row.get("series")?,
        key: row.get("key")?,
        database: row.get("database")?,
        began: row.get("began")?,
        ended: row.get("ended")?,
        state: RunState::of_name(&row.get::<_, String>("state")?),
        error: row.get("error")?,
        pid: row.get("pid")?,
        process_start: row.get("process_start")?,
        boot: row.get("boot")?,
        tool: row.get("tool")?,
        set_id: row.get("set_id")?,
        set_type: row.get("set_type")?,
        base: row.get("base")?,
        bytes_read: row.get("bytes_read")?,
        bytes_written: row.get("bytes_written")?,
        seconds: row.get("seconds")?,
        limit: row.get("bound_by")?,
        verdict: row.get("verdict")?,
        settings: row.get("settings")?,
        warnings: row.get("warnings")?,
        report: None,
    })
}
