//! Encrypted sessions: what each sslmode accepts and refuses, with a server that has real
//! certificates.

mod certificates;

use std::process::Command;

use windlass_postgres::{Cluster, PostgresError, ReplicationSession};
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user, succeed};

use crate::support::{Wish, backup_connected, holds_no_set, restore_and_judge};
use crate::versions::versions;
use certificates::Authority;

/// The name in the server's certificate. No resolver has to know it.
const HOST: &str = "db.example.test";
const ENCRYPTED: &str = "SELECT count(*) FILTER (WHERE ssl) || ' of ' || count(*) \
    FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'windlass'";
const SESSIONS: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'windlass'";

/// A server that listens on TCP, and the authority that signed its certificate.
struct Secured {
    cluster: PrivateCluster,
    authority: Authority,
    place: tempfile::TempDir,
}

impl Secured {
    /// Starts a server. `hba` is pg_hba.conf's rule for connections over the network.
    fn start(hba: &str) -> Self {
        Self::start_with(hba, ClusterOptions::default())
    }

    /// Starts the newest version available: it accepts a handshake without a request before it.
    fn start_newest(hba: &str) -> Self {
        let newest = versions().into_iter().max();
        let (major, bin) = newest.expect("a version");
        assert!(major >= 17, "{major}");
        let options = ClusterOptions {
            bin,
            ..ClusterOptions::default()
        };
        Self::start_with(hba, options)
    }

    fn start_with(hba: &str, options: ClusterOptions) -> Self {
        become_server_user();
        let place = tempfile::tempdir().unwrap();
        let authority = Authority::new(&place.path().join("authority"), "Test authority");
        authority.sign("server", HOST, &format!("DNS:{HOST}"));
        let setting = |name, file| format!("{name} = '{}'", authority.path(file).display());
        let options = ClusterOptions {
            listens: true,
            ..options
        };
        let options = options
            .setting("ssl = on")
            .setting(setting("ssl_cert_file", "server.crt"))
            .setting(setting("ssl_key_file", "server.key"))
            .setting(setting("ssl_ca_file", "ca.crt"));
        let cluster = PrivateCluster::start(&options);
        let hba = format!("local all all trust\n{hba}\n");
        std::fs::write(cluster.data().join("pg_hba.conf"), hba).unwrap();
        cluster.sql("postgres", "SELECT pg_reload_conf()");
        let secured = Self {
            cluster,
            authority,
            place,
        };
        secured.wait_for_hba();
        secured
    }

    /// Waits, because the server reads its files some time after it was told to.
    fn wait_for_hba(&self) {
        let lines = "SELECT count(*) FROM pg_hba_file_rules WHERE error IS NOT NULL";
        assert_eq!(self.cluster.sql("postgres", lines), "0");
        let loaded = "SELECT pg_conf_load_time() > pg_postmaster_start_time()";
        self.cluster.wait_until(loaded, "t");
    }

    fn conninfo(&self, more: &str) -> String {
        let address = self.cluster.address();
        format!("host={HOST} hostaddr={address} user=postgres {more}")
    }

    fn connect(&self, more: &str) -> Result<Cluster, PostgresError> {
        Cluster::connect(&self.conninfo(more))
    }

    /// Waits until the server has ended the sessions of before: it does so some time after the
    /// client has left.
    fn wait_until_alone(&self) {
        self.cluster.wait_until(SESSIONS, "0");
    }

    /// Connects, and counts the sessions that are encrypted.
    fn encrypted(&self, more: &str) -> String {
        self.wait_until_alone();
        let connected = self.connect(more);
        let _open = connected.unwrap_or_else(|error| panic!("{more}: {error:?}"));
        self.cluster.sql("postgres", ENCRYPTED)
    }

    /// Tries to connect and expects an error. Returns the error with its causes, and the hint.
    fn refused(&self, more: &str) -> (String, String) {
        let Err(error) = self.connect(more) else {
            panic!("{more}: connected");
        };
        (chain(&error), error.hint().unwrap_or_default())
    }

    fn root(&self, file: &str) -> String {
        format!("sslrootcert={}", self.authority.path(file).display())
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let cause = error.source().map(|cause| format!(": {}", chain(cause)));
    format!("{error}{}", cause.unwrap_or_default())
}

#[test]
fn a_backup_over_a_verified_session_restores() {
    let secured = Secured::start("hostssl all all all trust");
    secured.cluster.sql(
        "postgres",
        "CREATE TABLE t AS SELECT generate_series(1, 1000) i",
    );
    let more = format!("sslmode=verify-full {}", secured.root("ca.crt"));
    let mut connected = secured.connect(&more).unwrap();
    assert_eq!(secured.cluster.sql("postgres", ENCRYPTED), "1 of 1");
    let set = secured.place.path().join("set");
    backup_connected(&mut connected, &set, &Wish::default()).unwrap();
    drop(connected);
    // The restored server's settings contain the certificates' paths, and it reads them there.
    let into = secured.place.path().join("restored");
    let restored = restore_and_judge(&secured.cluster, &set, &into, &[]);
    assert_eq!(restored.sql("postgres", "SELECT sum(i) FROM t"), "500500");
}

#[test]
fn each_mode_encrypts_what_it_promises() {
    let secured = Secured::start("host all all all trust");
    let root = secured.root("ca.crt");
    for (more, expected) in [
        ("sslmode=disable", "0 of 1"),
        ("sslmode=allow", "0 of 1"),
        ("", "1 of 1"),
        ("sslmode=prefer", "1 of 1"),
        ("sslmode=require", "1 of 1"),
        ("sslmode=require ssl_max_protocol_version=TLSv1.2", "1 of 1"),
        (&format!("sslmode=verify-ca {root}"), "1 of 1"),
        (&format!("sslmode=verify-full {root}"), "1 of 1"),
    ] {
        assert_eq!(secured.encrypted(more), expected, "{more}");
    }
    let address = secured.cluster.address();
    let uri = format!("postgresql://postgres@{address}/postgres?sslmode=require");
    secured.wait_until_alone();
    let _open = Cluster::connect(&uri).unwrap();
    assert_eq!(secured.cluster.sql("postgres", ENCRYPTED), "1 of 1");
}

#[test]
fn a_certificate_of_another_authority_is_refused_wherever_a_root_is_given() {
    let secured = Secured::start("host all all all trust");
    let other = Authority::new(&secured.place.path().join("other"), "Another authority");
    let root = format!("sslrootcert={}", other.path("ca.crt").display());
    for mode in ["require", "verify-ca", "verify-full"] {
        let (error, hint) = secured.refused(&format!("sslmode={mode} {root}"));
        assert!(error.contains("UnknownIssuer"), "{mode}: {error}");
        assert!(hint.contains("sslrootcert"), "{mode}: {hint}");
    }
    // As in libpq, `prefer` then connects without TLS.
    assert_eq!(
        secured.encrypted(&format!("sslmode=prefer {root}")),
        "0 of 1"
    );
    let (error, hint) = secured.refused("sslmode=verify-ca sslrootcert=/nonexistent");
    assert!(error.contains("sslrootcert /nonexistent"), "{error}");
    assert!(hint.contains("PEM"), "{hint}");
}

#[test]
fn a_certificate_for_another_name_is_refused_by_verify_full_only() {
    let secured = Secured::start("host all all all trust");
    secured
        .authority
        .sign("other", HOST, "DNS:other.example.test");
    let root = secured.root("ca.crt");
    let file = secured.authority.path("other.crt");
    let key = secured.authority.path("other.key");
    for (name, path) in [("ssl_cert_file", file), ("ssl_key_file", key)] {
        let set = format!("ALTER SYSTEM SET {name} = '{}'", path.display());
        secured.cluster.sql("postgres", &set);
    }
    secured.cluster.sql("postgres", "SELECT pg_reload_conf()");
    secured.cluster.wait_until(
        "SHOW ssl_cert_file",
        &secured.authority.path("other.crt").display().to_string(),
    );
    // The common name is right, but it counts only if the certificate has no other names.
    let (error, hint) = secured.refused(&format!("sslmode=verify-full {root}"));
    assert!(error.contains("NotValidForName"), "{error}");
    assert!(hint.contains("verify-ca"), "{hint}");
    assert_eq!(
        secured.encrypted(&format!("sslmode=verify-ca {root}")),
        "1 of 1"
    );
    let address = secured.cluster.address();
    let named = format!("host=other.example.test hostaddr={address} user=postgres");
    Cluster::connect(&format!("{named} sslmode=verify-full {root}")).unwrap();
}

#[test]
fn a_server_that_takes_encrypted_sessions_only_refuses_others_with_a_hint() {
    let secured = Secured::start("hostssl all all all trust");
    let (error, hint) = secured.refused("sslmode=disable");
    assert!(error.contains("pg_hba.conf"), "{error}");
    assert!(hint.contains("sslmode=require"), "{hint}");
    for mode in ["allow", "prefer", "require"] {
        assert_eq!(secured.encrypted(&format!("sslmode={mode}")), "1 of 1");
    }
}

#[test]
fn a_server_that_refuses_encrypted_sessions_gets_what_was_only_preferred() {
    let secured = Secured::start("hostnossl all all all trust");
    assert_eq!(secured.encrypted("sslmode=prefer"), "0 of 1");
    let (error, hint) = secured.refused("sslmode=require");
    assert!(error.contains("pg_hba.conf"), "{error}");
    assert!(hint.contains("pg_hba.conf"), "{hint}");
}

#[test]
fn a_server_without_certificates_is_refused_where_encryption_is_required() {
    become_server_user();
    let options = ClusterOptions {
        listens: true,
        ..ClusterOptions::default()
    };
    let cluster = PrivateCluster::start(&options);
    let hba = "local all all trust\nhost all all all trust\n";
    std::fs::write(cluster.data().join("pg_hba.conf"), hba).unwrap();
    cluster.sql("postgres", "SELECT pg_reload_conf()");
    cluster.wait_until(
        "SELECT pg_conf_load_time() > pg_postmaster_start_time()",
        "t",
    );
    let conninfo = format!("hostaddr={} user=postgres", cluster.address());
    Cluster::connect(&conninfo).unwrap();
    let error = Cluster::connect(&format!("{conninfo} sslmode=require"));
    let error = error.err().unwrap();
    assert!(chain(&error).contains("does not support TLS"), "{error}");
    assert!(error.hint().unwrap().contains("ssl = on"));
    // A session over the socket has nothing to encrypt.
    Cluster::connect(&format!("{} sslmode=verify-full", cluster.conninfo())).unwrap();
}

#[test]
fn a_client_certificate_identifies_and_its_key_must_be_private() {
    let secured = Secured::start("hostssl all all all cert");
    secured
        .authority
        .sign("client", "postgres", "DNS:client.example.test");
    let file = |file: &str| secured.authority.path(file).display().to_string();
    let (error, _) = secured.refused("sslmode=require");
    assert!(error.contains("certificate"), "{error}");
    let both = format!(
        "sslmode=require sslcert={} sslkey={}",
        file("client.crt"),
        file("client.key")
    );
    assert_eq!(secured.encrypted(&both), "1 of 1");
    secured.refused(&format!("{both} sslcertmode=disable"));
    secured.authority.set_key_mode("client", 0o644);
    let (error, hint) = secured.refused(&both);
    assert!(error.contains("mode 0644"), "{error}");
    assert!(hint.contains("0600"), "{hint}");
}

#[test]
fn the_manuals_own_self_signed_certificate_is_good_by_its_common_name() {
    let secured = Secured::start("host all all all trust");
    secured.authority.self_sign("server", HOST);
    secured.authority.self_sign("twin", HOST);
    secured.cluster.sql("postgres", "SELECT pg_reload_conf()");
    // New sessions show the new certificate as soon as the server has read it.
    let more = format!("sslmode=verify-full {}", secured.root("server.crt"));
    while secured.connect(&more).is_err() {}
    assert_eq!(secured.encrypted(&more), "1 of 1");
    let (error, _) = secured.refused(&format!("sslmode=verify-ca {}", secured.root("twin.crt")));
    assert!(error.contains("invalid peer certificate"), "{error}");
}

#[test]
fn a_withdrawn_certificate_is_refused() {
    let secured = Secured::start("host all all all trust");
    secured.authority.sign("unused", "unused", "DNS:unused");
    let list = secured.authority.revoke("unused");
    let more = format!(
        "sslmode=verify-full {} sslcrl={}",
        secured.root("ca.crt"),
        list.display()
    );
    assert_eq!(secured.encrypted(&more), "1 of 1");
    secured.authority.revoke("server");
    let (error, _) = secured.refused(&more);
    assert!(error.contains("Revoked"), "{error}");
}

#[test]
fn lists_of_withdrawn_certificates_may_lie_in_a_directory() {
    let secured = Secured::start("host all all all trust");
    let lists = secured.place.path().join("lists");
    std::fs::create_dir(&lists).unwrap();
    let more = format!(
        "sslmode=verify-full {} sslcrldir={}",
        secured.root("ca.crt"),
        lists.display()
    );
    // Without a list nobody can say whether a certificate is still good.
    let (error, hint) = secured.refused(&more);
    assert!(error.contains("holds no lists"), "{error}");
    assert!(hint.contains("PEM"), "{hint}");
    secured.authority.sign("unused", "unused", "DNS:unused");
    let list = lists.join("one.crl");
    std::fs::copy(secured.authority.revoke("unused"), &list).unwrap();
    assert_eq!(secured.encrypted(&more), "1 of 1");
    std::fs::copy(secured.authority.revoke("server"), &list).unwrap();
    let (error, _) = secured.refused(&more);
    assert!(error.contains("Revoked"), "{error}");
    std::fs::write(lists.join("notes"), "no list").unwrap();
    let (error, hint) = secured.refused(&more);
    assert!(error.contains("notes"), "{error}");
    assert!(hint.contains("PEM"), "{hint}");
}

#[test]
fn a_handshake_that_comes_first_is_taken_by_servers_that_know_it() {
    let secured = Secured::start_newest("hostssl all all all scram-sha-256");
    let role = "ALTER ROLE postgres PASSWORD 'secret'";
    secured.cluster.sql("postgres", role);
    let more = format!(
        "sslnegotiation=direct password=secret channel_binding=require sslmode=verify-full {}",
        secured.root("ca.crt")
    );
    assert_eq!(secured.encrypted(&more), "1 of 1");
    let (error, _) = secured.refused("sslnegotiation=direct sslmode=prefer");
    assert!(error.contains("sslmode=require"), "{error}");
    let (error, _) = secured.refused("sslnegotiation=later");
    assert!(error.contains("sslnegotiation"), "{error}");
    // An older server waits for the request. It fails here, so the client really sends the
    // handshake first.
    let older = Secured::start("hostssl all all all trust");
    let (_, hint) = older.refused("sslnegotiation=direct sslmode=require");
    assert!(hint.contains("sslnegotiation=postgres"), "{hint}");
    assert_eq!(older.encrypted("sslmode=require"), "1 of 1");
}

/// The variable that gives a child process its connection string.
const SYSTEM: &str = "WINDLASS_TEST_TLS_SYSTEM";

#[test]
fn the_authorities_that_this_machine_trusts_are_those_it_says() {
    // The environment decides which authorities a process trusts, so this test runs itself again.
    if let Some(conninfo) = std::env::var_os(SYSTEM) {
        let connected = Cluster::connect(conninfo.to_str().unwrap()).map(drop);
        println!(
            "ends {}",
            connected.map_or_else(|e| chain(&e), |()| "well".into())
        );
        return;
    }
    let secured = Secured::start("hostssl all all all trust");
    let other = Authority::new(&secured.place.path().join("other"), "Another authority");
    let ends = |trusted: &Authority, more: &str| {
        let test = "tls::the_authorities_that_this_machine_trusts_are_those_it_says";
        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", test, "--nocapture"])
            .env(SYSTEM, secured.conninfo(more))
            .env("SSL_CERT_FILE", trusted.path("ca.crt"))
            .env_remove("SSL_CERT_DIR");
        let said = succeed(&mut child);
        said.lines()
            .find_map(|line| line.split("ends ").nth(1))
            .unwrap_or_else(|| panic!("{said}"))
            .to_owned()
    };
    // Without an sslmode, the strictest one applies, because anybody can get a certificate of a
    // public authority.
    assert_eq!(ends(&secured.authority, "sslrootcert=system"), "well");
    let foreign = ends(&other, "sslrootcert=system");
    assert!(foreign.contains("UnknownIssuer"), "{foreign}");
    let weak = ends(&secured.authority, "sslrootcert=system sslmode=verify-ca");
    assert!(weak.contains("needs sslmode=verify-full"), "{weak}");
}

#[test]
fn a_password_is_bound_to_the_encrypted_channel() {
    let secured = Secured::start("host all all all scram-sha-256");
    secured
        .cluster
        .sql("postgres", "ALTER ROLE postgres PASSWORD 'secret'");
    let more = "password=secret channel_binding=require";
    assert_eq!(
        secured.encrypted(&format!("{more} sslmode=require")),
        "1 of 1"
    );
    let (error, _) = secured.refused(&format!("{more} sslmode=disable"));
    assert!(error.contains("channel binding"), "{error}");
}

#[test]
fn a_statement_of_an_encrypted_session_can_be_cancelled() {
    let hba = "hostssl all all all trust";
    is_cancelled(&Secured::start(hba), "sslmode=require");
    let direct = "sslmode=require sslnegotiation=direct";
    is_cancelled(&Secured::start_newest(hba), direct);
}

/// Log is received over sessions that another client opens.
#[test]
fn a_session_for_replication_keeps_what_its_mode_promises() {
    let secured = Secured::start("hostssl replication all all trust");
    let connect = |more: &str| ReplicationSession::connect(&secured.conninfo(more));
    let own = "SELECT system_identifier FROM pg_control_system()";
    let own = secured.cluster.sql("postgres", own);
    let root = secured.root("ca.crt");
    for mode in ["require", "verify-ca", "verify-full"] {
        let mut session = connect(&format!("sslmode={mode} {root}")).unwrap();
        assert_eq!(session.identify().unwrap().system.to_string(), own);
        let all = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
            WHERE backend_type = 'walsender'";
        assert_eq!(secured.cluster.sql("postgres", all), "t", "{mode}");
    }
    let other = Authority::new(&secured.place.path().join("other"), "Another authority");
    let other = format!("sslrootcert={}", other.path("ca.crt").display());
    for (more, says) in [
        (format!("sslmode=verify-full {other}"), "UnknownIssuer"),
        ("sslmode=disable".to_owned(), "pg_hba.conf"),
    ] {
        let Err(error) = connect(&more) else {
            panic!("{more}: connected");
        };
        assert!(chain(&error).contains(says), "{more}: {}", chain(&error));
    }
}

/// The kernel of a machine accepts connections, also while everything else there stands still.
#[test]
fn a_server_that_accepts_and_says_nothing_is_left() {
    let mut secured = Secured::start("host replication all all trust");
    secured.cluster.hold();
    for mode in ["require", "disable"] {
        let conninfo = secured.conninfo(&format!("sslmode={mode} connect_timeout=1"));
        let Err(error) = ReplicationSession::connect(&conninfo) else {
            panic!("{mode}: connected");
        };
        assert!(
            chain(&error).contains("timed out"),
            "{mode}: {}",
            chain(&error)
        );
    }
    secured.cluster.kill();
}

/// Starts a backup over such a session, and cancels it while it waits for the server's checkpoint.
fn is_cancelled(secured: &Secured, more: &str) {
    secured.cluster.sql(
        "postgres",
        "CREATE TABLE t AS SELECT generate_series(1, 300000) i",
    );
    let wish = Wish {
        slow_checkpoint: true,
        ..Wish::default()
    };
    let set = secured.place.path().join("set");
    let mut connected = secured.connect(more).unwrap();
    let error = std::thread::scope(|scope| {
        let backup = scope.spawn(|| backup_connected(&mut connected, &set, &wish).unwrap_err());
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'windlass' \
            AND wait_event IN ('CheckpointStart', 'CheckpointDone')";
        secured.cluster.wait_until(waits, "1");
        wish.cancel.cancel();
        backup.join().unwrap()
    });
    assert_eq!(error.to_string(), "interrupted");
    assert!(holds_no_set(&set));
}
