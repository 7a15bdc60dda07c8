//! Opening a set's data directory as a running server: for each version, privately, and without
//! harm to the source.

use std::path::{Path, PathBuf};
use std::process::Output;

use windlass_engine::Cancel;
use windlass_postgres::{Cluster, OpenRequest, PostgresError, Programs, Server, Warning};
use windlass_testkit::gate::Gate;
use windlass_testkit::postgres::{
    ClusterOptions, DEFAULT_BIN, PrivateCluster, become_server_user, succeed,
};

use crate::outgoing::UNARCHIVED;
use crate::support::{Wish, backup_connected, restore_view, try_backup};
use crate::versions::versions;

/// A set, restored in the form that a server must see, and room for the server.
pub struct Opened {
    pub place: tempfile::TempDir,
    owner: String,
    was: PathBuf,
    bin: PathBuf,
}

impl Opened {
    pub fn new(bin: &Path, place: tempfile::TempDir) -> Self {
        let facts = restore_view(&place.path().join("set"), &place.path().join("view"));
        std::fs::create_dir(place.path().join("scratch")).unwrap();
        Self {
            place,
            owner: facts.owner,
            was: facts.data_directory.into(),
            bin: bin.into(),
        }
    }

    pub fn request(&self, major: u32) -> OpenRequest {
        OpenRequest {
            data: self.place.path().join("view"),
            was: self.was.clone(),
            scratch: self.place.path().join("scratch"),
            programs: Programs::find(major, Some(&self.bin)).unwrap(),
            writable: true,
            port: None,
            listen: String::new(),
            preload: String::new(),
            settings: Vec::new(),
            role: None,
            owner: self.owner.clone(),
            recovery: None,
            run_as: None,
            lock: None,
        }
    }

    /// Runs a client program against the server.
    fn client(&self, server: &Server, program: &str, arguments: &[&str]) -> Output {
        let mut command = std::process::Command::new(Path::new(DEFAULT_BIN).join(program));
        command.args(arguments);
        for (name, value) in server.connection().environment() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.output().unwrap()
    }

    pub fn sql(&self, server: &Server, sql: &str) -> String {
        let output = self.try_sql(server, sql);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{sql}: {error}");
        String::from_utf8(output.stdout).unwrap().trim_end().into()
    }

    fn try_sql(&self, server: &Server, sql: &str) -> Output {
        let arguments = ["-XqAt", "-v", "ON_ERROR_STOP=1", "-c", sql];
        self.client(server, "psql", &arguments)
    }
}

/// A cluster whose settings all reach outside, or would keep a copy from starting.
fn outgoing(major: u32, bin: &Path, place: &Path) -> PrivateCluster {
    let options = ClusterOptions {
        bin: bin.into(),
        ..ClusterOptions::default()
    };
    let options = options
        .initdb("--data-checksums")
        .setting("archive_mode = on")
        .setting("max_prepared_transactions = 3")
        .setting("datestyle = 'SQL, DMY'")
        .setting(format!(
            "archive_command = 'touch {}/%f'",
            place.join("archive").display()
        ));
    let source = PrivateCluster::start(&options);
    let space = place.join("space");
    std::fs::create_dir(&space).unwrap();
    let sql = |sql: &str| source.sql("postgres", sql);
    sql(&format!(
        "CREATE TABLESPACE s LOCATION '{}'",
        space.display()
    ));
    sql("CREATE TABLE t TABLESPACE s AS SELECT generate_series(1, 50000) i");
    sql("CREATE TABLE day AS SELECT date '2026-11-21' AS day");
    sql("CREATE TABLE hits (i int)");
    sql("BEGIN; INSERT INTO hits VALUES (7); PREPARE TRANSACTION 'half'");
    // Each of these settings keeps a server from starting, or leads it to another server.
    sql("ALTER SYSTEM SET shared_preload_libraries = 'no_such_library'");
    sql("ALTER SYSTEM SET primary_conninfo = 'host=203.0.113.1'");
    sql("ALTER SYSTEM SET hba_file = '/nowhere/pg_hba.conf'");
    sql("ALTER SYSTEM SET listen_addresses = '*'");
    if major >= 17 {
        sql(
            "CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS \
            'BEGIN RAISE EXCEPTION ''no entry''; END'",
        );
        sql(
            "CREATE EVENT TRIGGER no_entry ON login EXECUTE FUNCTION refuse(); \
            ALTER EVENT TRIGGER no_entry ENABLE ALWAYS",
        );
    }
    source
}

fn opens_privately(major: u32, bin: &Path, settings: &[(&str, &str)]) {
    let place = tempfile::tempdir().unwrap();
    let archive = place.path().join("archive");
    std::fs::create_dir(&archive).unwrap();
    let mut source = outgoing(major, bin, place.path());
    let set = place.path().join("set");
    // On 17 and newer nobody can log in from here on, so the backup uses a session from before.
    try_backup_beside_triggers(&source, major, &set);
    // A command that archives may outlive its server.
    source.wait_until(UNARCHIVED, "0");
    source.stop("immediate");
    let space = place.path().join("space");
    let (archived, spaces) = (listing(&archive), listing(&space));

    let opened = Opened::new(bin, place);
    let mut request = opened.request(major);
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    request.settings = settings.iter().map(own).collect();
    let server = Server::start(request, &Cancel::new()).unwrap();
    check_content(&opened, &server);
    for (name, value) in settings {
        assert_eq!(opened.sql(&server, &format!("SHOW {name}")), *value);
    }
    check_tablespaces(&opened, &server);
    assert_eq!(opened.sql(&server, "SHOW listen_addresses"), "");
    server.stop().unwrap();
    assert_eq!(listing(&archive), archived, "nothing is archived");
    assert_eq!(
        listing(&space),
        spaces,
        "the source's tablespace is untouched"
    );
}

fn try_backup_beside_triggers(source: &PrivateCluster, major: u32, set: &Path) {
    if major >= 17 {
        source.configure(&["event_triggers = off"]);
        let mut reload = source.tool("pg_ctl");
        succeed(reload.args(["reload", "-s", "-D"]).arg(source.data()));
        while !source.try_sql("postgres", "SELECT 1").status.success() {}
    }
    try_backup(source, set, &Wish::default()).unwrap();
}

fn check_content(opened: &Opened, server: &Server) {
    let sql = |text: &str| opened.sql(server, text);
    assert_eq!(sql("SELECT sum(i) FROM t"), "1250025000");
    assert_eq!(
        sql("SELECT day FROM day"),
        "21/11/2026",
        "values look as they did"
    );
    assert_eq!(sql("SELECT gid FROM pg_prepared_xacts"), "half");
    sql("COMMIT PREPARED 'half'");
    assert_eq!(sql("SELECT i FROM hits"), "7");
    assert_eq!(sql("SELECT pg_is_in_recovery()"), "f");
    assert_eq!(
        sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE '%replication%'"),
        "0"
    );
    // pg_dumpall asks where each tablespace is.
    let dump = opened.client(
        server,
        "psql",
        &[
            "-XAtc",
            "SELECT pg_tablespace_location(oid) FROM pg_tablespace WHERE spcname = 's'",
        ],
    );
    assert!(dump.status.success());
    assert!(String::from_utf8_lossy(&dump.stdout).contains("windlass_tablespaces/"));
}

fn check_tablespaces(opened: &Opened, server: &Server) {
    let sql = |text: &str| opened.sql(server, text);
    let place = server.connection().host.join("made");
    std::fs::create_dir(&place).unwrap();
    sql("CREATE TABLE t2 TABLESPACE s AS SELECT * FROM t");
    sql("CREATE DATABASE d TABLESPACE s");
    sql("DROP DATABASE d");
    sql("DROP TABLE t, t2");
    sql("DROP TABLESPACE s");
    sql(&format!(
        "CREATE TABLESPACE n LOCATION '{}'",
        place.display()
    ));
    sql("CREATE TABLE t3 TABLESPACE n AS SELECT 5 AS i");
    sql("CHECKPOINT");
    assert_eq!(sql("SELECT i FROM t3"), "5");
}

/// Everything below a directory, with lengths and times of change.
fn listing(place: &Path) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(place).unwrap() {
        let (path, metadata) = entry.map(|e| (e.path(), e.metadata().unwrap())).unwrap();
        if metadata.is_dir() {
            found.extend(listing(&path));
        }
        found.push((path, metadata.len(), metadata.modified().unwrap()));
    }
    found.sort();
    found
}

#[test]
fn a_set_of_the_oldest_version_opens_privately() {
    become_server_user();
    let (major, bin) = &versions()[0];
    opens_privately(*major, bin, &[]);
}

#[test]
fn a_set_of_debians_version_opens_privately() {
    become_server_user();
    opens_privately(15, Path::new(DEFAULT_BIN), &[]);
}

#[test]
fn sets_of_newer_versions_open_privately() {
    become_server_user();
    for (major, bin) in versions().into_iter().filter(|(major, _)| *major > 15) {
        let methods: &[&str] = if major >= 18 {
            &["worker", "sync"]
        } else {
            &[]
        };
        if methods.is_empty() {
            opens_privately(major, &bin, &[]);
        }
        for method in methods {
            opens_privately(major, &bin, &[("io_method", method)]);
        }
    }
}

/// A set of a small cluster of Debian's version. `prepare` runs before the backup, and `work` while
/// its copy waits at the gate. Each statement is a session of its own.
fn set_while(prepare: &[&str], work: &[&str]) -> (tempfile::TempDir, PrivateCluster) {
    let place = tempfile::tempdir().unwrap();
    let source = PrivateCluster::start(&ClusterOptions::default());
    prepare
        .iter()
        .for_each(|sql| drop(source.sql("postgres", sql)));
    let gate = Gate::default();
    let wish = Wish {
        gate: Some(gate.clone()),
        ..Wish::default()
    };
    std::thread::scope(|scope| {
        let backup = scope.spawn(|| try_backup(&source, &place.path().join("set"), &wish));
        gate.wait_reached();
        let run = |sql: &&str| source.try_sql("postgres", sql);
        let worked: Vec<_> = work.iter().map(run).collect();
        gate.open();
        backup.join().unwrap().unwrap();
        let is_done = |output: &Output| output.status.success();
        assert!(worked.iter().all(is_done), "{worked:?}");
    });
    (place, source)
}

#[test]
fn a_log_with_the_commits_of_a_subscription_is_replayed() {
    become_server_user();
    let prepare = [
        "CREATE TABLE t (i int)",
        "SELECT pg_replication_origin_create('elsewhere')",
    ];
    let commit = "SELECT pg_replication_origin_session_setup('elsewhere'); \
        BEGIN; INSERT INTO t VALUES (1); \
        SELECT pg_replication_origin_xact_setup('0/1234', now()); COMMIT";
    let (place, source) = set_while(&prepare, &[commit]);
    let without_room = place.path().join("without-room");
    restore_view(&place.path().join("set"), &without_room);
    let opened = Opened::new(source.bin(), place);
    let scratch = opened.place.path().join("another-scratch");
    std::fs::create_dir(&scratch).unwrap();
    let request = OpenRequest {
        data: without_room,
        scratch,
        settings: vec![("max_replication_slots".into(), "0".into())],
        ..opened.request(15)
    };
    let error = Server::start(request, &Cancel::new())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("replication origin"),
        "the log has none of them: {error}"
    );
    let server = Server::start(opened.request(15), &Cancel::new()).unwrap();
    let origins = opened.sql(
        &server,
        "SELECT remote_lsn FROM pg_replication_origin_status",
    );
    assert_eq!(origins, "0/1234");
}

#[test]
fn a_tablespace_made_during_the_backup_is_opened_and_its_source_left_alone() {
    become_server_user();
    let space = tempfile::tempdir().unwrap();
    let sql = format!(
        "CREATE TABLESPACE late LOCATION '{}'",
        space.path().display()
    );
    let table = "CREATE TABLE t TABLESPACE late AS SELECT 1 AS i; CHECKPOINT";
    let (place, source) = set_while(&[], &[&sql, table]);
    source.sql("postgres", "INSERT INTO t VALUES (2)");
    source.sql("postgres", "CHECKPOINT");
    let before = listing(space.path());
    let opened = Opened::new(source.bin(), place);
    let server = Server::start(opened.request(15), &Cancel::new()).unwrap();
    assert_eq!(opened.sql(&server, "SELECT sum(i) FROM t"), "1");
    opened.sql(&server, "INSERT INTO t VALUES (7); CHECKPOINT");
    assert_eq!(listing(space.path()), before);
    assert_eq!(source.sql("postgres", "SELECT sum(i) FROM t"), "3");
}

/// Such a tablespace needs no other window, because replay makes it in the data directory. The
/// files were listed before it existed, so only the log has it.
#[test]
fn a_tablespace_that_the_log_creates_in_place_is_opened() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let options = ClusterOptions::default().setting("allow_in_place_tablespaces = on");
    let source = PrivateCluster::start(&options);
    let gate = Gate::default();
    let wish = Wish {
        gate: Some(gate.clone()),
        ..Wish::default()
    };
    std::thread::scope(|scope| {
        let backup = scope.spawn(|| try_backup(&source, &place.path().join("set"), &wish));
        gate.wait_reached();
        source.sql("postgres", "CREATE TABLESPACE tz LOCATION ''");
        source.sql("postgres", "CREATE TABLE t TABLESPACE tz AS SELECT 7 AS i");
        gate.open();
        backup.join().unwrap().unwrap();
    });
    let opened = Opened::new(source.bin(), place);
    let spaces = std::fs::read_dir(opened.place.path().join("view/pg_tblspc"));
    assert_eq!(spaces.unwrap().count(), 0, "only the log has it");
    let server = Server::start(opened.request(15), &Cancel::new()).unwrap();
    assert_eq!(opened.sql(&server, "SELECT i FROM t"), "7");
    opened.sql(&server, "DROP TABLE t; CHECKPOINT");
    opened.sql(&server, "DROP TABLESPACE tz");
}

#[test]
fn a_set_that_lacks_a_file_of_the_server_fails_with_the_servers_last_words() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let source = PrivateCluster::start(&ClusterOptions::default());
    try_backup(&source, &place.path().join("set"), &Wish::default()).unwrap();
    let opened = Opened::new(source.bin(), place);
    let status = opened.place.path().join("view/pg_xact");
    std::fs::rename(status.join("0000"), status.join("0007")).unwrap();
    let error = Server::start(opened.request(15), &Cancel::new()).unwrap_err();
    let said = error.to_string();
    let (_, words) = said.split_once(": ").unwrap();
    let expected = "FATAL:  could not access status of transaction";
    assert!(words.starts_with(expected), "{said}");
    assert!(!said.contains("external PID file"), "{said}");
    let hint = error.hint().unwrap();
    assert!(hint.starts_with("The set lacks a file"), "{hint}");
}

#[test]
fn a_link_that_leaves_the_directory_is_refused() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let source = PrivateCluster::start(&ClusterOptions::default());
    try_backup(&source, &place.path().join("set"), &Wish::default()).unwrap();
    let opened = Opened::new(source.bin(), place);
    let link = opened.place.path().join("view/pg_tblspc/16400");
    std::os::unix::fs::symlink("/var/tmp", &link).unwrap();
    let error = Server::start(opened.request(15), &Cancel::new()).unwrap_err();
    assert!(
        matches!(&error, PostgresError::Link { path, .. } if *path == link),
        "{error}"
    );
}

#[test]
fn shown_read_only_unless_asked_and_without_preloaded_libraries_unless_named() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let source = PrivateCluster::start(&ClusterOptions::default());
    source.sql(
        "postgres",
        "CREATE ROLE chief SUPERUSER LOGIN PASSWORD 'secret'",
    );
    try_backup(&source, &place.path().join("set"), &Wish::default()).unwrap();
    let opened = Opened::new(source.bin(), place);
    let request = OpenRequest {
        writable: false,
        role: Some("chief".into()),
        preload: "auto_explain".into(),
        port: Some(free_port()),
        listen: "127.0.0.1".into(),
        ..opened.request(15)
    };
    let server = Server::start(request, &Cancel::new()).unwrap();
    let refused = opened.try_sql(&server, "CREATE TABLE t (i int)");
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(words.contains("read-only transaction"), "{words}");
    assert_eq!(opened.sql(&server, "SELECT current_user"), "chief");
    assert_eq!(
        opened.sql(&server, "SHOW shared_preload_libraries"),
        "auto_explain"
    );
    // Over TCP the server asks for the cluster's own passwords.
    let port = server.connection().port;
    let over_tcp = |password: &str| {
        let target = format!("host=127.0.0.1 port={port} user=chief password={password}");
        opened.client(&server, "psql", &["-XAtc", "SELECT 1", &target])
    };
    assert!(!over_tcp("guess").status.success());
    assert!(over_tcp("secret").status.success());
}

/// Opens the set in `place` with Debian's programs.
fn open_debians(place: tempfile::TempDir) -> (Opened, Server) {
    let opened = Opened::new(Path::new(DEFAULT_BIN), place);
    let server = Server::start(opened.request(15), &Cancel::new()).unwrap();
    (opened, server)
}

#[test]
fn the_role_that_initdb_made_is_found_whatever_its_name_and_databases_are() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let source = PrivateCluster::start(&ClusterOptions::default());
    let sql = |database: &str, sql: &str| source.sql(database, sql);
    sql("postgres", "CREATE DATABASE shop");
    sql("postgres", "CREATE ROLE other SUPERUSER LOGIN");
    let rename = source
        .tool("psql")
        .args(["-XqU", "other", "-d", "shop"])
        .args([
            "-c",
            "ALTER ROLE postgres RENAME TO \"Frau Müller\"",
            "-c",
            "DROP DATABASE postgres",
            "-c",
            "UPDATE pg_database SET datallowconn = false WHERE datname = 'template1'",
        ])
        .status();
    assert!(rename.unwrap().success());
    let conninfo = source
        .conninfo()
        .replace("user=postgres", "user=other dbname=shop");
    let mut cluster = Cluster::connect(&conninfo).unwrap();
    backup_connected(&mut cluster, &place.path().join("set"), &Wish::default()).unwrap();
    let (opened, server) = open_debians(place);
    let connection = server.connection();
    assert_eq!(
        (connection.user.as_str(), connection.database.as_str()),
        ("Frau Müller", "shop")
    );
    assert_eq!(opened.sql(&server, "SELECT current_user"), "Frau Müller");
}

#[test]
fn libraries_that_roles_and_databases_load_do_not_keep_a_set_from_opening() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let source = PrivateCluster::start(&ClusterOptions::default());
    let (set, session) = (place.path().join("set"), source.conninfo());
    // Nobody can log in once these are set.
    let mut cluster = Cluster::connect(&session).unwrap();
    source.sql(
        "postgres",
        "ALTER ROLE postgres SET session_preload_libraries = 'no_such_library'; \
         ALTER DATABASE postgres SET local_preload_libraries = 'no_such_either'; \
         ALTER ROLE ALL SET session_preload_libraries = 'nor_such'",
    );
    backup_connected(&mut cluster, &set, &Wish::default()).unwrap();
    let (opened, server) = open_debians(place);
    assert_eq!(opened.sql(&server, "SELECT 1"), "1");
    let conninfo = server.connection().conninfo();
    let psql = opened.client(&server, "psql", &["-XAtc", "SELECT 2", &conninfo]);
    assert!(psql.status.success(), "{conninfo}");
    // The settings themselves are those of the set.
    let settings = "SELECT count(*) FROM pg_db_role_setting";
    assert_eq!(opened.sql(&server, settings), "3");
}

#[test]
fn settings_of_included_files_are_carried_over_and_none_from_outside() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let mut source = PrivateCluster::start(&ClusterOptions::default());
    std::fs::create_dir(source.data().join("conf.d")).unwrap();
    source.configure(&["include_dir = 'conf.d'"]);
    let outside = place.path().join("outside.conf");
    std::fs::write(&outside, "intervalstyle = 'sql_standard'\n").unwrap();
    let (data, out) = (source.data().display(), outside.display());
    let lines = format!("datestyle = 'German'\ninclude '{data}/conf.d/more'\ninclude '{out}'\n");
    std::fs::write(source.data().join("conf.d/10.conf"), lines).unwrap();
    let more = source.data().join("conf.d/more");
    std::fs::write(more, "bytea_output = escape\n").unwrap();
    source.stop("fast");
    source.run();
    let outcome = try_backup(&source, &place.path().join("set"), &Wish::default()).unwrap();
    let warning = Warning::IncludeOutside {
        path: outside.display().to_string(),
    };
    assert_eq!(outcome.facts.warnings, [warning]);
    let (opened, server) = open_debians(place);
    let shown = |name: &str| opened.sql(&server, &format!("SHOW {name}"));
    assert_eq!(shown("datestyle"), "German, DMY");
    assert_eq!(shown("bytea_output"), "escape");
    assert_eq!(shown("intervalstyle"), "postgres", "not in the set");
}

#[test]
fn programs_are_found_by_a_relative_path() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let source = PrivateCluster::start(&ClusterOptions::default());
    try_backup(&source, &place.path().join("set"), &Wish::default()).unwrap();
    let opened = Opened::new(Path::new(DEFAULT_BIN), place);
    let here = std::env::current_dir().unwrap();
    let up = here.components().skip(1).map(|_| "..").collect::<PathBuf>();
    let relative = up.join(Path::new(DEFAULT_BIN).strip_prefix("/").unwrap());
    let mut request = opened.request(15);
    request.programs = Programs::find(15, Some(&relative)).unwrap();
    let server = Server::start(request, &Cancel::new()).unwrap();
    assert_eq!(opened.sql(&server, "SELECT 1"), "1");
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn programs_of_another_version_are_refused_by_name() {
    let error = Programs::find(14, Some(Path::new(DEFAULT_BIN))).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("no programs of PostgreSQL 14"), "{text}");
    assert!(
        text.contains(&format!("{DEFAULT_BIN} is PostgreSQL 15")),
        "{text}"
    );
    let error = Programs::find(15, Some(Path::new("/nowhere"))).unwrap_err();
    assert!(
        error.to_string().contains("/nowhere has no postgres"),
        "{error}"
    );
    assert_eq!(Programs::find(15, None).unwrap().major(), 15);
}
