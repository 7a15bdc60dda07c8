//! The content of files, and its effect.

use super::*;

fn parsed(config: &str, words: &[&str]) -> Result<Cli, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("windlass.toml");
    #[allow(clippy::disallowed_methods)]
    std::fs::write(&path, config).unwrap();
    let path = path.to_str().unwrap();
    let words = ["windlass", "--config", path]
        .into_iter()
        .chain(words.iter().copied());
    let words: Vec<OsString> = words.map(OsString::from).collect();
    parse(&words).map_err(|failed| match failed {
        Failed::Clap(error) => error.to_string(),
        Failed::Config(failure) => format!("{failure:?}"),
    })
}

fn backup(cli: Cli) -> cli::Backup {
    match cli.command {
        cli::Command::Backup(backup) => *backup,
        _ => panic!("not a backup"),
    }
}

const SHOP: &str = "[backup]\ncompress = \"lz4\"\nbuffers = 9\n\
    [database.shop]\nsource = \"/srv/shop.db\"\nto = [\"/a\", \"/b\"]\ncompress = \"none\"\n";

#[test]
fn a_configured_database_brings_its_devices_and_options() {
    let backup = backup(parsed(SHOP, &["backup", "shop"]).unwrap());
    assert_eq!(backup.database, "/srv/shop.db");
    assert_eq!(backup.to, ["/a", "/b"]);
    assert_eq!(backup.coding.compress, "none");
    assert_eq!(backup.buffers.buffers, Some(9));
}

#[test]
fn only_the_word_for_the_database_chooses_it() {
    let words = ["backup", "/srv/x.db", "--to", "/c", "--label", "shop"];
    let backup = backup(parsed(SHOP, &words).unwrap());
    assert_eq!(backup.to, ["/c"]);
    assert_eq!(backup.coding.compress, "lz4");
}

#[test]
fn a_configured_database_is_tuned_by_its_name() {
    let cli = parsed(SHOP, &["tune", "shop"]).unwrap();
    let cli::Command::Tune(tune) = cli.command else {
        panic!("not a tune")
    };
    assert_eq!(tune.database, "/srv/shop.db");
    assert_eq!(tune.to, ["/a", "/b"]);
    assert_eq!(tune.name.as_deref(), Some("shop"));
    assert_eq!(tune.compress.len(), 4, "the codec is looked for");
}

#[test]
fn every_command_has_a_table() {
    let config = "quiet = true\n[plan]\nsource = \"hdd\"\ntarget = [\"s3\"]\nfiles = [1, 4]\n\
        [tune]\nbudget = \"7s\"\n[info]\nfiles = true\n[lab.probe]\nbudget = \"5s\"\n\
        [database.shop]\nsource = \"/srv/shop.db\"\ncompress = \"zstd:3\"\nmax-rate = \"1MiB\"\n";
    let run = |words: &[&str]| parsed(config, words).unwrap();
    let plan = run(&["plan", "shop"]);
    assert!(plan.global.quiet);
    let cli::Command::Plan(plan) = plan.command else {
        panic!("not a plan")
    };
    assert_eq!(plan.database.as_deref(), Some("/srv/shop.db"));
    assert_eq!(
        (plan.source, plan.target),
        (vec!["hdd".to_owned()], vec!["s3".to_owned()])
    );
    assert_eq!(
        (plan.files, plan.compress),
        (vec![1, 4], vec!["zstd:3".to_owned()])
    );
    assert_eq!(plan.max_rate, Some(1 << 20));
    let cli::Command::Tune(tune) = run(&["tune", "shop", "--to", "nul"]).command else {
        panic!("not a tune")
    };
    assert_eq!((tune.budget, tune.rates.max_rate), (7.0, Some(1 << 20)));
    let cli::Command::Info(info) = run(&["info", "x"]).command else {
        panic!("not an info")
    };
    assert!(info.files);
    let cli::Command::Lab(cli::Lab::Probe(probe)) = run(&["lab", "probe", "/"]).command else {
        panic!("not a probe")
    };
    assert_eq!(probe.budget, 5.0);
}

/// It is where backups go.
#[test]
fn the_devices_of_a_configured_database_are_not_the_place_of_its_snapshots() {
    let config = format!("{SHOP}[snapshot.rotate]\nkeep = 7\n[snapshot.create]\nto = \"/c\"\n");
    let making = |words: &[&str]| match parsed(&config, words).unwrap().command {
        cli::Command::Snapshot(cli::Snapshot::Create(create)) => (create.of, create.making, 0),
        cli::Command::Snapshot(cli::Snapshot::Rotate(rotate)) => {
            (rotate.of, rotate.making, rotate.keep)
        }
        _ => panic!("no snapshot is made"),
    };
    let (of, rolling, keep) = making(&["snapshot", "rotate", "shop"]);
    assert_eq!((of.database.as_str(), keep), ("/srv/shop.db", 7));
    assert_eq!(rolling.to, None);
    // What the table of the command says counts.
    let (_, made, _) = making(&["snapshot", "create", "shop", "now"]);
    assert_eq!(made.to, Some("/c".into()));
}

#[test]
fn a_plan_takes_no_codec_that_adapts() {
    let config = "[database.shop]\nsource = \"/srv/shop.db\"\ncompress = \"auto\"\n";
    let cli = parsed(config, &["plan", "shop"]).unwrap();
    let cli::Command::Plan(plan) = cli.command else {
        panic!("not a plan")
    };
    assert_eq!(plan.compress, ["zstd:1"]);
}

#[test]
fn the_command_line_wins() {
    let words = ["backup", "shop", "--to", "/c", "--compress", "zstd:3"];
    let backup = backup(parsed(SHOP, &words).unwrap());
    assert_eq!(backup.to, ["/c"]);
    assert_eq!(backup.coding.compress, "zstd:3");
}

#[test]
fn a_flag_is_yes_or_no() {
    let flag = |value: &str| {
        let config = format!("[backup]\noverwrite = {value}\n");
        parsed(&config, &["backup", "/x", "--to", "/y"]).map(|cli| backup(cli).overwrite)
    };
    for yes in ["true", "\"yes\"", "\"on\"", "1", "\"TRUE\""] {
        assert_eq!(flag(yes), Ok(true), "{yes}");
    }
    for no in ["false", "\"no\"", "\"off\"", "0"] {
        assert_eq!(flag(no), Ok(false), "{no}");
    }
    for neither in ["\"nein\"", "\"\"", "2", "\"y e s\""] {
        let error = flag(neither).unwrap_err();
        assert!(
            error.contains("line 2") && error.contains("Usage"),
            "{error}"
        );
    }
}

#[test]
fn a_mistake_is_named_with_its_line() {
    let mistakes = [
        (
            "\n[backup]\ncompres = \"lz4\"\n",
            "line 3: ",
            "Did you mean compress?",
        ),
        (
            "[backups]\n",
            "line 1: no command is called backups",
            "Did you mean backup?",
        ),
        ("quite = true\n", "line 1: ", "Did you mean quiet?"),
        (
            "[backup]\nbuffers = \"many\"\n",
            "line 2: ",
            "invalid value 'many'",
        ),
        (
            "[backup]\ncompress = [\"lz4\", \"none\"]\n",
            "line 2: ",
            "takes one value",
        ),
        (
            "[restore]\n[backup\n",
            "line 2: ",
            "Close the bracket: [backup]",
        ),
        ("[restore]\nx\n", "line 2: ", "TOML"),
        (
            "[backup]\nquiet = true\n",
            "line 2: ",
            "above the first table",
        ),
        (
            "[database.a]\nsource = \"/x\"\nlog = \"/y\"\n",
            "line 3: ",
            "above the first table",
        ),
        ("[database.a]\nto = \"/x\"\n", "line 1: ", "has no source"),
        (
            "[database.a]\nsource = \"/x\"\nmax-rat = 1\n",
            "line 3: ",
            "Did you mean max-rate?",
        ),
        ("[database]\na = 1\n", "line 2: ", "[database.NAME]"),
        (
            "[databse.a]\nsource = \"/x\"\n",
            "line 1: no table is called [databse.a]",
            "Did you mean [database.a]?",
        ),
        ("[backup.a]\nx = 1\n", "line 1: ", "a name of two parts"),
        ("[backup]\ndatabase = \"x\"\n", "line 2: ", "no option"),
        ("[info]\nfiles = 1979-05-27\n", "line 2: ", "true or false"),
        (
            "[database.a]\nsource = \"\"\n",
            "line 2: ",
            "its text is empty",
        ),
        ("[database.a]\nsource = 5\n", "line 2: ", "one text"),
        (
            "[database.a]\nsource = [\"/a\", \"/b\"]\n",
            "line 2: ",
            "one text",
        ),
        (
            "[database.a]\nsourc = \"/a\"\n",
            "line 2: ",
            "Did you mean source?",
        ),
        (
            "[database.\"\"]\nsource = \"/a\"\n",
            "line 1: a database has no name",
            "[database.NAME]",
        ),
        ("[backup]\nto = []\n", "line 2: to must be", "a list of"),
        (
            "[backup]\nto = [\"a\", 5]\n",
            "line 2: to must be",
            "a list of",
        ),
        (
            "[backup]\nto = [[\"a\"], [\"b\"]]\n",
            "line 2: to must be",
            "a list of",
        ),
        ("[backup]\nto = [5]\n", "line 2: ", "to must be a text"),
        ("[backup]\nto = \"\"\n", "line 2: ", "has no name"),
        ("[backup]\nlabel = 5\n", "line 2: ", "in quotes"),
        ("log = true\n", "line 1: ", "log must be a text"),
        (
            "[backup]\nmax-rate = \"1MiB\"\nmax_rate = \"2MiB\"\n",
            "line 3: ",
            "is there twice",
        ),
        (
            "[lab.prob]\nbudget = \"5s\"\n",
            "line 1: ",
            "Did you mean lab probe?",
        ),
        (
            "[snapshot]\nkeep = 7\n",
            "line 2: ",
            "Write [snapshot.NAME] above",
        ),
    ];
    for (config, place, says) in mistakes {
        // The mistake is found whatever command runs.
        let error = parsed(config, &["status"]).unwrap_err();
        assert!(
            error.contains(place) && error.contains(says),
            "{config}: {error}"
        );
        assert!(error.contains("Usage"), "{config}: {error}");
    }
}

#[test]
fn a_value_that_only_its_command_understands_is_checked_by_every_command() {
    let values = [
        ("[backup]\ncompress = \"lz5\"\n", "is no codec"),
        (
            "[database.a]\nsource = \"/x\"\ncompress = \"zstd:77\"\n",
            "is no codec",
        ),
        ("[tune]\ncompress = [\"lz4\", \"zip\"]\n", "is no codec"),
        ("[restore]\nemulate = \"source=floppy\"\n", "storage model"),
        ("[plan]\ntarget = [\"hdd\", \"floppy\"]\n", "storage model"),
        ("[backup]\nbefore = \"sh -c 'x\"\n", "quote without its end"),
        ("[backup]\ntransfer-size = \"100KiB\"\n", "64KiB or 128KiB"),
        ("[backup]\nframe-size = \"300KiB\"\n", "256KiB or 512KiB"),
        ("[backup]\nblock-size = 1000\n", "512 or 1024"),
        ("[verify]\nthreads = 9999\n", "number of threads"),
        ("[backup]\nbuffers = 1\n", "too few"),
        ("[backup]\nmax-rate = 10\n", "did you mean 10MiB/s?"),
        ("[backup]\nmetrics = \"zz\"\n", "is no address"),
        ("[verify]\nmetrics = \":9187\"\n", "is no address"),
        ("[restore]\nmetrics = \"127.0.0.1:x\"\n", "is no address"),
        ("[backup]\nhook-timeout = \" 5\"\n", "5 what?"),
        (
            "[backup]\nevents-limit = \"100KiB\"\n",
            "write at least 1 MiB",
        ),
        (
            "[backup]\naccept = [\"link-followed\", \"x\"]\n",
            "invalid value 'x'",
        ),
    ];
    for (config, says) in values {
        let error = parsed(config, &["status"]).unwrap_err();
        let line = config.lines().count();
        let found = error.contains(says) && error.contains(&format!("line {line}: "));
        assert!(found && error.contains("Usage"), "{config}: {error}");
    }
    let right = "[backup]\ncompress = \"auto:lz4..zstd:6\"\nframe-size = \"1MiB\"\n\
        emulate = \"source=hdd target=s3\"\nafter = \"echo 'a b'\"\n\
        [plan]\nsource = [\"/srv\", \"gp2:1.5TB\"]\n\
        [lab.sweep]\nemulate = [\"slow: source=hdd target=s3\"]\n";
    parsed(right, &["status"]).unwrap();
}

#[test]
fn the_hint_about_an_unknown_option_names_the_command_with_all_its_words() {
    for (config, says) in [
        ("[backup]\nlable = \"x\"\n", "`windlass backup --help`"),
        (
            "[snapshot.rotate]\nprefix = \"x\"\n",
            "`windlass snapshot rotate --help`",
        ),
    ] {
        let error = parsed(config, &["status"]).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_name_like_a_configured_one_is_asked_back() {
    let error = parsed(SHOP, &["backup", "shpo"]).unwrap_err();
    assert!(error.contains("Did you mean shop,"), "{error}");
    let error = parsed(SHOP, &["plan", "warehouse"]).unwrap_err();
    assert!(error.contains("The configuration names shop."), "{error}");
}

#[test]
fn a_brief_command_line_means_what_it_means_as_part_of_the_whole() {
    let push = ["archive-push", "pg_wal/0A", "--to", "/place"];
    let get = ["archive-get", "0A", "pg_wal/R", "--from", "/place"];
    let lines: [&[&str]; 9] = [
        &push,
        &get,
        &[
            "--json",
            "--log",
            "archive-get",
            "archive-push",
            "p",
            "--to=/x",
        ],
        &[
            "archive-push",
            "--quiet",
            "p",
            "--to",
            "/x",
            "--compress",
            "zstd:-3",
        ],
        &[
            "archive-push",
            "p",
            "--to",
            "/x",
            "--look-ahead",
            "3",
            "--fill",
            "--spool",
            "s",
        ],
        &[
            "archive-get",
            "n",
            "p",
            "--from",
            "/x",
            "--spool",
            "s",
            "--ahead",
            "2",
        ],
        // These are not understood, whichever way.
        &["archive-push", "p"],
        &["archive-push", "--help"],
        &["--log", "archive-push", "status"],
    ];
    for line in lines {
        let words: Vec<OsString> = ["windlass"]
            .iter()
            .chain(line)
            .map(OsString::from)
            .collect();
        let brief = brief::of(&words).expect("it names such a command");
        let whole = parse_as(cli(), &words).map(|cli| format!("{cli:?}"));
        let both = match (parse_as(flags(brief), &words), &whole) {
            (Ok(brief), Ok(whole)) => format!("{brief:?}") == *whole,
            (Err(Failed::Clap(_)), _) => true,
            _ => false,
        };
        assert!(both, "{line:?}");
        let read = parse(&words).map(|cli| format!("{cli:?}"));
        let text = |read: Result<String, Failed>| match read {
            Err(Failed::Clap(error)) => error.to_string(),
            Err(Failed::Config(failure)) => format!("{failure:?}"),
            Ok(cli) => cli,
        };
        assert_eq!(text(read), text(whole), "{line:?}");
    }
    for line in [&push[..], &get] {
        let words: Vec<OsString> = line.iter().map(OsString::from).collect();
        let command = brief::of(&words).expect("it names such a command");
        assert_eq!(command.get_subcommands().count(), 1);
    }
    assert!(brief::of(&["windlass".into(), "backup".into()]).is_none());
}

#[test]
fn a_mistake_in_the_configuration_is_found_by_a_brief_command_line_too() {
    let push = ["archive-push", "p", "--to", "/place"];
    for wrong in [
        "[backup]\nbufers = 9\n",
        "[bakup]\n",
        "[backup]\nbuffers = \"many\"\n",
    ] {
        let found = parsed(wrong, &push).unwrap_err();
        assert!(found.contains("windlass.toml, line"), "{found}");
    }
    let place = "[archive-push]\nto = \"/configured\"\n";
    let cli = parsed(place, &["archive-push", "p"]).unwrap();
    let cli::Command::ArchivePush(push) = cli.command else {
        panic!("not a push")
    };
    assert_eq!(push.to, PathBuf::from("/configured"));
}
