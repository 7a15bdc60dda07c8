//! The samples in docs/samples: the program that reads each of them must accept it.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::*;

fn sample(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/samples");
    root.join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(sample(name)).unwrap()
}

#[test]
fn the_sample_configuration_is_one_and_its_database_is_backed_up() {
    let path = sample("windlass.toml");
    let path = path.to_str().unwrap();
    let place = Place::new();
    // Every command checks the whole file. Its log belongs to root, so this names another.
    let log = place.arg("log");
    let output = windlass(&["status", "--config", path, "--log", &log]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let config = read("windlass.toml");
    let config = config
        .replace("/srv/shop/shop.db", &place.arg("shop.db"))
        .replace("/backup/shop", &place.arg("sets"))
        .replace("/var/log/windlass.log", &log)
        .replace(
            "/var/lib/prometheus/node-exporter",
            place.dir.path().to_str().unwrap(),
        );
    std::fs::write(place.path("windlass.toml"), config).unwrap();
    let path = place.arg("windlass.toml");
    let output = windlass(&["backup", "shop", "--quiet", "--config", &path]);
    assert_eq!(text(&output), "");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(place.sets().len(), 1);
    assert!(place.path("windlass-shop.prom").exists());
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("backup: ended: exit code 0"), "{log}");
}

#[test]
fn systemd_finds_nothing_wrong_with_the_sample_units() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_windlass");
    let mut units = Vec::new();
    for name in ["windlass-backup@.service", "windlass-backup@.timer"] {
        let text = read(name).replace("/usr/local/bin/windlass", program);
        std::fs::write(place.path(name), text).unwrap();
        units.push(place.arg(&name.replace('@', "@shop")));
        std::fs::write(
            units.last().unwrap(),
            std::fs::read(place.path(name)).unwrap(),
        )
        .unwrap();
    }
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .args(&units)
        .output()
        .expect("systemd-analyze of Debian's package `systemd`");
    let printed = text(&output);
    // Complaints about the machine's own units are fine, complaints about Windlass's are not.
    let ours: Vec<_> = printed
        .lines()
        .filter(|line| line.contains("windlass"))
        .collect();
    assert!(output.status.success() && ours.is_empty(), "{printed}");
}

#[test]
fn prometheus_takes_the_sample_rules() {
    let program = std::env::var_os("WINDLASS_TEST_PROMTOOL");
    let program = program.unwrap_or_else(|| "promtool".into());
    let output = Command::new(program)
        .args(["check", "rules"])
        .arg(sample("windlass-alerts.yml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    // The textfile has the metrics that the rules ask for.
    let place = Place::new();
    let file = place.arg("windlass.prom");
    let words = [
        "backup",
        &place.arg("shop.db"),
        "--to",
        "nul",
        "--metrics-file",
        &file,
    ];
    assert_eq!(windlass(&words).status.code(), Some(0));
    let metrics = std::fs::read_to_string(&file).unwrap();
    let rules = read("windlass-alerts.yml");
    let names = rules.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    for name in names.filter(|name| name.starts_with("windlass_")) {
        assert!(metrics.contains(&format!("# TYPE {name} gauge")), "{name}");
    }
}

#[test]
fn the_lines_of_the_sample_crontab_are_commands_that_exist() {
    let crontab = read("windlass.cron");
    let lines = crontab.lines().filter(|line| {
        let line = line.trim();
        let sets = ["MAILTO=", "PATH=/usr/local/bin:"];
        !line.is_empty() && !line.starts_with('#') && !sets.iter().any(|it| line.starts_with(it))
    });
    let config = sample("windlass.toml");
    let mut count = 0;
    for line in lines {
        let words: Vec<_> = line.split_whitespace().collect();
        assert!(
            words[..5]
                .iter()
                .all(|word| word.chars().all(|it| "0123456789*/,-".contains(it)))
        );
        if words[6] == "windlass-remove-old" {
            // Another test runs this sample.
            assert!(words[7..].len() == 3 && words[8] == "30", "{line}");
            continue;
        }
        assert_eq!(words[5..7], ["root", "windlass"], "{line}");
        // With the sample configuration, it gets as far as the database, which does not exist.
        let mut command = command();
        command
            .args(&words[7..])
            .args(["--log", "/dev/null", "--config"])
            .arg(&config);
        command.env("WINDLASS_ON_FAILURE", "true");
        let output = command.output().unwrap();
        let printed = text(&output);
        let code = output.status.code().unwrap();
        assert!(
            [1, 2].contains(&code) && !printed.contains("Usage:"),
            "{line}: {printed}"
        );
        assert!(
            !printed.contains("unexpected argument"),
            "{line}: {printed}"
        );
        count += 1;
    }
    assert_eq!(count, 4);
}

#[test]
fn the_sample_that_removes_old_sets_keeps_them_when_no_new_one_is_sound() {
    let place = Place::new();
    let config = format!(
        "[database.shop]\nsource = \"{}\"\nto = \"{}\"\n",
        place.arg("shop.db"),
        place.arg("sets")
    );
    std::fs::write(place.path("windlass.toml"), config).unwrap();
    std::os::unix::fs::symlink(place.path("sets"), place.path("link")).unwrap();
    let (old, new) = (place.back_up(), place.back_up());
    let age = |set: &Path, days: u64| {
        let file = std::fs::File::options().append(true).open(set).unwrap();
        let then = std::time::SystemTime::now() - std::time::Duration::from_hours(24 * days);
        file.set_modified(then).unwrap();
    };
    let run = |days: &str| {
        let mut script = around("sh");
        script.arg(sample("windlass-remove-old"));
        // The directory is named by a link, as when sets were moved to a larger disk.
        script.args(["shop", days]).arg(place.path("link"));
        let programs = Path::new(env!("CARGO_BIN_EXE_windlass")).parent().unwrap();
        script.env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
        script.env("WINDLASS_CONFIG", place.path("windlass.toml"));
        let output = script.output().unwrap();
        (output.status.code(), text(&output))
    };
    age(&old, 40);
    // A month without backups: the newest set is old, too.
    age(&new, 35);
    let (code, printed) = run("30");
    assert_eq!((code, place.sets().len()), (Some(1), 2), "{printed}");
    assert!(printed.contains("nothing is removed"), "{printed}");
    assert_eq!(run("1").0, Some(1));
    // The newest set is damaged.
    let newest = place.back_up();
    let bytes = std::fs::read(&newest).unwrap();
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    std::fs::write(&newest, damaged).unwrap();
    let (code, printed) = run("30");
    assert_eq!((code, place.sets().len()), (Some(4), 3), "{printed}");
    std::fs::write(&newest, bytes).unwrap();
    let (code, printed) = run("30");
    assert_eq!((code, printed.as_str()), (Some(0), ""));
    assert_eq!(place.sets().len(), 1);
    assert_eq!(place.restored(&newest), 20);
}
