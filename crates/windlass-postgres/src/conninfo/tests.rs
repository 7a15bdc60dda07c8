//! What libpq's documentation says about connection strings, with one example each.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use proptest::prelude::*;

use super::*;

fn resolve(conninfo: &str, variables: &[(&str, &str)], home: Option<&Path>) -> Conninfo {
    try_resolve(conninfo, variables, home).unwrap()
}

fn try_resolve(
    conninfo: &str,
    variables: &[(&str, &str)],
    home: Option<&Path>,
) -> Result<Conninfo, PostgresError> {
    let variable = |name: &str| {
        variables
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| (*value).to_owned())
    };
    let environment = Environment {
        variable: &variable,
        user: Some("operator".into()),
        home: home.map(Path::to_path_buf),
    };
    Conninfo::complete(conninfo, &environment)
}

fn tcp(host: &str, port: u16) -> Address {
    Address::Tcp {
        host: host.into(),
        number: None,
        port,
    }
}

#[test]
fn keywords_take_spaces_quotes_and_escapes() {
    let conninfo = resolve(
        r"host = db user='o\'neil \\ co' password=a\ b port=6000",
        &[],
        None,
    );
    assert_eq!(conninfo.get("user"), Some(r"o'neil \ co"));
    assert_eq!(conninfo.get("password"), Some("a b"));
    assert_eq!(conninfo.addresses, [tcp("db", 6000)]);
}

#[test]
fn a_uri_takes_credentials_hosts_database_and_parameters() {
    let text = "postgresql://us%65r:p%40ss@h1:1,[::1]:2/data?application_name=x&connect_timeout=3";
    let conninfo = resolve(text, &[], None);
    assert_eq!(conninfo.get("user"), Some("user"));
    assert_eq!(conninfo.get("password"), Some("p@ss"));
    assert_eq!(conninfo.get("dbname"), Some("data"));
    assert_eq!(conninfo.addresses, [tcp("h1", 1), tcp("::1", 2)]);
    assert_eq!(conninfo.get("application_name"), Some("x"));
}

#[test]
fn a_uri_names_a_socket_directory_percent_encoded_or_as_parameter() {
    let socket = [Address::Socket {
        directory: "/run/pg".into(),
        port: 5433,
    }];
    assert_eq!(
        resolve("postgresql://%2Frun%2Fpg:5433/d", &[], None).addresses,
        socket
    );
    assert_eq!(
        resolve("postgres:///d?host=/run/pg&port=5433", &[], None).addresses,
        socket
    );
}

#[test]
fn string_wins_over_service_over_environment_over_default() {
    let home = tempfile::tempdir().unwrap();
    let service = "# comment\n[other]\nhost=wrong\n[mine]\nhost=svc\nport=7\nuser=from_service\n";
    std::fs::write(home.path().join(".pg_service.conf"), service).unwrap();
    let variables = [
        ("PGSERVICE", "mine"),
        ("PGUSER", "from_env"),
        ("PGDATABASE", "envdb"),
        ("PGPORT", "9"),
    ];
    let conninfo = resolve("port=8", &variables, Some(home.path()));
    assert_eq!(conninfo.addresses, [tcp("svc", 8)]);
    assert_eq!(conninfo.get("user"), Some("from_service"));
    assert_eq!(conninfo.get("dbname"), Some("envdb"));
}

#[test]
fn what_nothing_says_is_the_local_cluster() {
    let conninfo = resolve("", &[], None);
    assert_eq!(conninfo.get("user"), Some("operator"));
    assert_eq!(conninfo.get("dbname"), Some("postgres"));
    assert!(matches!(
        &conninfo.addresses[..],
        [Address::Socket { port: 5432, .. }]
    ));
    assert_eq!(
        conninfo
            .config(&conninfo.addresses[0])
            .unwrap()
            .get_application_name(),
        Some(APPLICATION_NAME)
    );
}

#[test]
fn the_first_matching_line_of_a_private_password_file_counts() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(".pgpass");
    let text = "# x\nother:*:*:*:no\ndb:5432:a\\:b:me:s\\\\e\\:t\n*:*:*:*:last\n";
    std::fs::write(&path, text).unwrap();
    let set_mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    set_mode(0o600);
    let password = |conninfo: &str| {
        resolve(conninfo, &[], Some(home.path()))
            .get("password")
            .map(str::to_owned)
    };
    assert_eq!(
        password("host=db dbname=a:b user=me").as_deref(),
        Some(r"s\e:t")
    );
    assert_eq!(
        password("host=db dbname=c user=me").as_deref(),
        Some("last")
    );
    assert_eq!(password("host=db password=given").as_deref(), Some("given"));
    set_mode(0o640);
    assert_eq!(
        password("host=db"),
        None,
        "a file others may read is not used"
    );
}

#[test]
fn what_cannot_be_right_is_refused_by_name() {
    for (conninfo, expected) in [
        ("host", "missing \"=\""),
        ("host='x", "unterminated quote"),
        ("hots=x", "invalid keyword \"hots\""),
        ("host=localhost:5633", "write host=localhost port=5633"),
        ("port=0", "port is \"0\""),
        ("port=70000", "port is \"70000\""),
        ("host=a,b port=1,2,3", "3 ports for 2 hosts"),
        ("host=a,b hostaddr=::1", "2 hosts for 1 hostaddrs"),
        ("requirepeer=postgres", "requirepeer is not supported"),
        ("require_auth=scram-sha-256", "require_auth is not"),
        (
            "target_session_attrs=standby",
            "target_session_attrs is not",
        ),
        ("sslmode=on", "invalid sslmode \"on\""),
        (
            "sslrootcert=system sslmode=require",
            "needs sslmode=verify-full",
        ),
        ("sslnegotiation=direct", "needs sslmode=require"),
        (
            "ssl_max_protocol_version=TLSv1.1",
            "neither TLS 1.2 nor 1.3",
        ),
        ("channel_binding=maybe", "invalid channel_binding"),
        ("gssencmode=require", "GSSAPI is not supported"),
        ("hostaddr=db", "hostaddr is \"db\""),
        ("postgresql://[::1/d", "missing \"]\""),
        ("postgresql://h/%zz", "percent-encoding"),
        ("postgresql://h/d?x", "missing \"=\""),
    ] {
        let error = try_resolve(conninfo, &[], None).unwrap_err().to_string();
        assert!(error.contains(expected), "{conninfo:?} gave {error:?}");
    }
    let peer = [("PGREQUIREPEER", "postgres")];
    assert!(try_resolve("host=h", &peer, None).is_err());
    assert!(try_resolve("host=h target_session_attrs=any", &[], None).is_ok());
    let error = try_resolve("service=none", &[], None).unwrap_err();
    assert!(matches!(error, PostgresError::Service { .. }));
}

#[test]
fn the_hint_about_a_password_names_the_place_that_counts() {
    let hint = |conninfo: &str, variables: &[(&str, &str)]| {
        resolve(conninfo, variables, None).password_hint()
    };
    let usual = hint("host=h user=keeper", &[]);
    assert!(usual.contains("role keeper in ~/.pgpass"), "{usual}");
    let home = Some(Path::new("/var/lib/owner"));
    let of_owner = resolve("host=h user=keeper", &[], home).password_hint();
    let path = "role keeper in /var/lib/owner/.pgpass (mode 0600)";
    assert!(of_owner.contains(path), "{of_owner}");
    for named in [
        hint("host=h passfile=/srv/pass", &[]),
        hint("host=h", &[("PGPASSFILE", "/srv/pass")]),
    ] {
        assert!(named.contains("names /srv/pass: correct"), "{named}");
        assert!(
            named.contains("The password file /srv/pass was not used"),
            "{named}"
        );
    }
    for given in [
        hint("host=h password=x passfile=/srv/pass", &[]),
        hint("host=h", &[("PGPASSWORD", "x")]),
    ] {
        assert!(given.contains("password= or PGPASSWORD"), "{given}");
    }
}

#[test]
fn encryption_follows_string_environment_and_home() {
    let home = tempfile::tempdir().unwrap();
    let tls = |conninfo: &str, variables: &[(&str, &str)]| {
        resolve(conninfo, variables, Some(home.path())).tls
    };
    assert_eq!(tls("host=h", &[]).mode, TlsMode::Prefer);
    assert_eq!(
        tls("host=h", &[("PGSSLMODE", "require")]).mode,
        TlsMode::Require
    );
    let uri = "postgresql://h/d?sslmode=verify-ca&sslrootcert=%2Fca.crt";
    let both = tls(
        uri,
        &[("PGSSLMODE", "disable"), ("PGSSLROOTCERT", "/other")],
    );
    assert_eq!(both.mode, TlsMode::VerifyCa);
    assert_eq!(both.roots, Some(Roots::File("/ca.crt".into())));
    assert_eq!(tls("postgresql://h/d?ssl=true", &[]).mode, TlsMode::Require);
    let system = tls("host=h sslrootcert=system", &[]);
    assert_eq!(
        (system.mode, system.roots),
        (TlsMode::VerifyFull, Some(Roots::System))
    );
    assert_eq!(tls("host=h", &[]).roots, None);
    let directory = home.path().join(".postgresql");
    std::fs::create_dir(&directory).unwrap();
    for file in ["root.crt", "postgresql.crt", "root.crl"] {
        std::fs::write(directory.join(file), "").unwrap();
    }
    let found = tls("host=h sslkey=/my.key", &[]);
    assert_eq!(found.roots, Some(Roots::File(directory.join("root.crt"))));
    assert_eq!(found.client.unwrap().key, Path::new("/my.key"));
    assert_eq!(found.revoked, Some(directory.join("root.crl")));
}

#[test]
fn a_host_with_a_number_keeps_its_name_for_the_certificate() {
    let conninfo = resolve("host=db hostaddr=10.0.0.1 port=7", &[], None);
    let expected = Address::Tcp {
        host: "db".into(),
        number: Some([10, 0, 0, 1].into()),
        port: 7,
    };
    assert_eq!(conninfo.addresses, [expected]);
    assert_eq!(conninfo.addresses[0].display(), "db:7");
}

#[test]
fn a_password_is_not_shown() {
    let conninfo = resolve("host=db password=secret", &[], None);
    assert!(!format!("{conninfo:?} {}", conninfo.addresses[0].display()).contains("secret"));
}

proptest! {
    #[test]
    fn any_value_survives_quoting(value in "\\PC*") {
        let quoted = value.replace('\\', r"\\").replace('\'', r"\'");
        let conninfo = resolve(&format!("user='{quoted}' host=h"), &[], None);
        let expected = if value.is_empty() { "operator" } else { &value };
        prop_assert_eq!(conninfo.get("user"), Some(expected));
    }

    #[test]
    fn no_string_breaks_the_parser(text in any::<String>(), query in "\\PC*") {
        drop(try_resolve(&text, &[], None));
        drop(try_resolve(&format!("postgresql://{query}"), &[], None));
    }
}
