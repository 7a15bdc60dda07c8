//! What users read when a connection string or a role is wrong: the fault, and what to type.

use windlass_postgres::{Cluster, PostgresError, Right};
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user};

use crate::support::{Wish, backup_connected};
use crate::versions::versions;

fn hint(conninfo: &str) -> String {
    Cluster::connect(conninfo).err().unwrap().hint().unwrap()
}

#[test]
fn each_refusal_of_a_session_says_what_to_do() {
    become_server_user();
    let options = ClusterOptions {
        listens: true,
        ..ClusterOptions::default()
    };
    let mut source = PrivateCluster::start(&options);
    let address = source.address();
    source.sql("postgres", "CREATE ROLE limited LOGIN PASSWORD 'right'");
    source.sql("postgres", "CREATE DATABASE closed");
    source.sql("postgres", "REVOKE CONNECT ON DATABASE closed FROM PUBLIC");
    let lines = "host all limited all scram-sha-256\n";
    let hba = source.data().join("pg_hba.conf");
    let old = std::fs::read_to_string(&hba).unwrap();
    let peer = "local all mapped peer\n";
    std::fs::write(&hba, [peer, lines, &old].concat()).unwrap();
    source.sql("postgres", "CREATE ROLE mapped LOGIN");
    source.stop("fast");
    source.run();
    let socket = source.conninfo();
    let as_role = |role: &str| socket.replace("user=postgres", &format!("user={role}"));
    let open = source.place().join("open.pgpass");
    std::fs::write(&open, "*:*:*:*:x\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&open, mode).unwrap();
    let open = open.display();
    for (conninfo, says) in [
        (as_role("nobody"), "CREATE ROLE nobody LOGIN REPLICATION;"),
        (
            as_role("postgres@noon"),
            "CREATE ROLE \"postgres@noon\" LOGIN REPLICATION;",
        ),
        (format!("{socket} dbname=nowhere"), "write dbname=postgres"),
        (
            as_role("mapped"),
            "lets only certain users of the system connect as role mapped",
        ),
        (
            // A password file that is skipped is named, with the reason.
            format!("host={address} user=limited passfile={open} dbname=postgres"),
            "open.pgpass was not used: others may use it (mode 0644, and 0600 is the most)",
        ),
        (
            format!("{} dbname=closed", as_role("limited")),
            "GRANT CONNECT ON DATABASE closed TO limited;",
        ),
        (
            format!("host={address} user=limited password=wrong dbname=postgres"),
            "The password is the one of password= or PGPASSWORD",
        ),
        (
            format!("host={address} user=limited passfile=/nowhere dbname=postgres"),
            "names /nowhere: correct the role's line",
        ),
    ] {
        let hint = hint(&conninfo);
        assert!(hint.contains(says), "{conninfo}: {hint}");
    }
}

#[test]
fn a_server_that_is_down_is_asked_for_and_those_that_answer_are_named() {
    become_server_user();
    let source = PrivateCluster::start(&ClusterOptions::default());
    let place = source.place().display();
    // A socket that a killed server left behind must not count as a server.
    drop(std::os::unix::net::UnixListener::bind(source.place().join(".s.PGSQL.7777")).unwrap());
    let hint = hint(&format!("host={place} port=6543"));
    assert!(hint.contains("Is the server running"), "{hint}");
    assert!(
        hint.contains(&format!(
            "Other servers run here, at 'host={place} port=5432'"
        )),
        "{hint}"
    );
    assert!(!hint.contains("7777"), "{hint}");
    let nowhere = hint_of_nowhere();
    assert!(nowhere.contains("Is the server running"), "{nowhere}");
}

#[test]
fn damage_of_the_servers_files_is_no_fault_of_the_connection_string() {
    become_server_user();
    let source = PrivateCluster::start(&ClusterOptions::default());
    source.sql("postgres", "CREATE DATABASE shop");
    let number = "SELECT oid FROM pg_database WHERE datname = 'shop'";
    let shop = format!("base/{}", source.sql("postgres", number));
    let conninfo = source.conninfo();
    let to_shop = format!("{conninfo} dbname=shop");
    let harm = |path: &str, bytes: &[u8]| {
        let path = source.data().join(path);
        let sound = std::fs::read(&path).unwrap();
        std::fs::write(&path, bytes).unwrap();
        move || std::fs::write(&path, &sound).unwrap()
    };
    for file in ["pg_filenode.map", "PG_VERSION"] {
        let mend = harm(&format!("{shop}/{file}"), &[0xA5; 512]);
        let hint = hint(&to_shop);
        assert!(
            hint.contains("Files of this database are damaged"),
            "{file}: {hint}"
        );
        assert!(hint.contains("dbname=template1"), "{file}: {hint}");
        // The hint is true: a session in another database is enough for a backup.
        let place = tempfile::tempdir().unwrap();
        let other = conninfo.clone() + " dbname=template1";
        let mut cluster = Cluster::connect(&other).unwrap();
        backup_connected(&mut cluster, &place.path().join("set"), &Wish::default()).unwrap();
        mend();
    }
    let mend = harm("global/pg_filenode.map", &[0xA5; 512]);
    let hint = hint(&conninfo);
    assert!(hint.contains("Files of the server are damaged"), "{hint}");
    assert!(!hint.contains("dbname"), "{hint}");
    mend();
}

fn hint_of_nowhere() -> String {
    hint("host=127.0.0.1 port=1 sslmode=disable")
}

#[test]
fn a_missing_right_names_the_statement_that_gives_it_in_each_version() {
    become_server_user();
    let mut bins = vec![ClusterOptions::default().bin];
    bins.extend(versions().into_iter().map(|(_, bin)| bin));
    for bin in bins {
        let options = ClusterOptions {
            bin,
            ..ClusterOptions::default()
        };
        let source = PrivateCluster::start(&options);
        source.sql("postgres", "CREATE ROLE \"Back-Up\" LOGIN");
        let conninfo = source.conninfo().replace("user=postgres", "user='Back-Up'");
        // Repeat while a right is missing, and type each statement exactly as the hint shows it.
        let mut typed = Vec::new();
        let place = tempfile::tempdir().unwrap();
        let mut cluster = loop {
            let error = match Cluster::connect(&conninfo) {
                Ok(mut cluster) => {
                    let set = place.path().join(format!("set{}", typed.len()));
                    match backup_connected(&mut cluster, &set, &Wish::default()) {
                        Ok(_) => break cluster,
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            let hint = error.hint().unwrap();
            assert!(
                matches!(error, PostgresError::Right { .. }),
                "{error}: {hint}"
            );
            let start = "As a superuser, type in database postgres: ";
            let statement = hint.strip_prefix(start).unwrap_or_else(|| panic!("{hint}"));
            assert!(!typed.contains(&statement.to_owned()), "{hint} again");
            source.sql("postgres", statement);
            typed.push(statement.to_owned());
        };
        assert!(typed.len() >= 3, "{typed:?}");
        // Now the role lacks only the right that a backup can do without.
        let rights = cluster.rights().unwrap();
        assert_eq!(rights.role, "\"Back-Up\"");
        let missing = |rights: &[Right]| -> Vec<Right> {
            rights.iter().filter(|it| !it.granted).cloned().collect()
        };
        let left = missing(&rights.rights);
        assert_eq!(left.len(), 1, "{left:?}");
        assert!(left[0].optional);
        source.sql("postgres", &left[0].grant);
        assert_eq!(missing(&cluster.rights().unwrap().rights), []);
    }
}
