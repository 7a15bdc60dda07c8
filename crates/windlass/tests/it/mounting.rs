//! `windlass mount` and `windlass extract`: the files of a set equal those of the source, byte by
//! byte.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use windlass_testkit::sqlite::{Random, run_once};

use crate::opening::{Scratch, User, open_to_all, users};
use crate::support::{Place, text};

/// The number of reads at random places.
const PROBES: u32 = 40;

/// SQLite's page size.
const PAGE_BYTES: u64 = 4096;

/// A mounted set. A process of its own serves it in the foreground.
struct Mounted {
    child: Child,
    at: PathBuf,
    user: User,
}

impl Mounted {
    /// Mounts on a directory of this user, and returns when the files are there.
    fn start(scratch: &Scratch, user: User, at: &str, words: &[&str]) -> Self {
        let at = scratch.path().join(at);
        let words = [&["mount", "--foreground"], words, &[at.to_str().unwrap()]].concat();
        let mut child = scratch
            .command(user, &words)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        assert!(line.starts_with("mounted  "), "{words:?}: {line:?}");
        Self { child, at, user }
    }

    /// Runs a program in the mount, as the user who mounted it.
    fn run(&self, program: &str, words: &[&str]) -> Output {
        let mut command = Command::new(program);
        as_user(&mut command, self.user);
        command.current_dir(&self.at).args(words).output().unwrap()
    }

    /// Runs it from outside the mount: a program cannot work inside a dead mount.
    fn run_at(&self, program: &str, names: &[&str]) -> Output {
        let mut command = Command::new(program);
        as_user(&mut command, self.user);
        let paths = names.iter().map(|name| self.at.join(name));
        command.args(paths).output().unwrap()
    }

    /// Unmounts as the user would. Returns the exit code of `mount`.
    fn unmount(mut self) -> Option<i32> {
        let mut helper = Command::new("fusermount3");
        as_user(&mut helper, self.user);
        let output = helper.arg("-u").arg(&self.at).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        self.child.wait().unwrap().code()
    }
}

/// A failed test leaves no mount behind.
impl Drop for Mounted {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
            windlass_mount::detach(&self.at).map_or_else(drop, drop);
        }
    }
}

fn as_user(command: &mut Command, user: User) {
    use std::os::unix::process::CommandExt;
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
}

/// Creates an empty directory that belongs to a user.
fn directory(scratch: &Scratch, user: User, name: &str) {
    let mut mkdir = Command::new("mkdir");
    as_user(&mut mkdir, user);
    assert!(
        mkdir
            .arg(scratch.path().join(name))
            .status()
            .unwrap()
            .success()
    );
}

/// A database that zstd halves and lz4 cannot compress.
fn noisy_database(at: &Path) {
    let digits = (1..=90).map(|factor| {
        format!(
            "(i * {} + {factor}) * 2654435761 % 4294967291",
            factor * 7919
        )
    });
    let digits: Vec<_> = digits.collect();
    let words = "%08x".repeat(digits.len());
    let sql = format!(
        "CREATE TABLE noise AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
         WHERE i < 24000) SELECT i, printf('{words}', {}) AS x FROM n",
        digits.join(", ")
    );
    run_once(at, &sql).unwrap();
}

#[test]
fn a_set_of_mixed_codecs_is_mounted_and_extracted_as_its_source_was() {
    let scratch = Scratch::new();
    let source = scratch.path().join("noise.db");
    noisy_database(&source);
    let source = source.to_str().unwrap();
    let set = scratch.path().join("one.stripe");
    let to = set.to_str().unwrap();
    // At first the device is so slow that stronger compression pays.
    let slow = [
        "--emulate",
        "target=rate:4MB/s",
        "--compress",
        "auto",
        "--transfer-size",
        "128KiB",
    ];
    let words = [
        &["backup", source, "--quiet", "--json", "--to", to],
        &slow[..],
    ]
    .concat();
    let output = scratch.run(None, &words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    open_to_all(&set, 0o644);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let used = report["compression"]["used"].as_array().unwrap();
    assert!(used.len() > 1, "{report}");
    let pages = std::fs::metadata(source).unwrap().len() / PAGE_BYTES;
    let pages = u32::try_from(pages).unwrap();
    for (index, user) in users().into_iter().enumerate() {
        let at = format!("at-{index}");
        directory(&scratch, user, &at);
        let mounted = Mounted::start(&scratch, user, &at, &[to]);
        let mut random = Random(7);
        for _ in 0..PROBES {
            let offset = (u64::from(random.below(pages)) * PAGE_BYTES).to_string();
            let same = mounted.run("cmp", &["-i", &offset, "-n", "8192", "noise.db", source]);
            assert!(same.status.success(), "{}", text(&same));
        }
        let same = mounted.run("cmp", &["noise.db", source]);
        assert!(same.status.success(), "{}", text(&same));
        assert_eq!(mounted.unmount(), Some(0));
        let into = scratch.path().join(format!("out-{index}"));
        let words = ["extract", to, "*.db", "--into", into.to_str().unwrap()];
        let output = scratch.run(user, &words);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let extracted = std::fs::read(into.join("noise.db")).unwrap();
        assert!(extracted == std::fs::read(source).unwrap());
    }
    scratch.assert_clean();
}

#[test]
fn a_mount_past_the_page_cache_gives_the_same_to_copies_and_to_programs_that_map_it() {
    let place = Place::new();
    let set = readable_set(&place);
    let scratch = Scratch::new();
    let copy = scratch.path().join("copy.db");
    for (index, user) in users().into_iter().enumerate() {
        let at = format!("at-{index}");
        directory(&scratch, user, &at);
        let mounted = Mounted::start(&scratch, user, &at, &["--direct-io", &set]);
        let copied = mounted.run("cat", &["shop.db"]);
        assert!(copied.status.success(), "{}", text(&copied));
        std::fs::write(&copy, copied.stdout).unwrap();
        assert_eq!(place.ledger.check(&copy), 20);
        let mapped = "PRAGMA mmap_size = 1000000; PRAGMA integrity_check";
        let checked = mounted.run("sqlite3", &["file:shop.db?mode=ro&immutable=1", mapped]);
        let said = String::from_utf8_lossy(&checked.stdout);
        assert_eq!(said, "1000000\nok\n", "{}", text(&checked));
        assert_eq!(mounted.unmount(), Some(0));
    }
    let words = ["mount", &set, "at-0", "--direct-io", "--overlay", "changes"];
    let output = scratch.run(None, &words);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("cannot be used with"));
    scratch.assert_clean();
}

/// A set of a small database, readable for every user.
fn readable_set(place: &Place) -> String {
    let set = place.back_up();
    open_to_all(place.dir.path(), 0o755);
    open_to_all(&place.path("sets"), 0o755);
    open_to_all(&set, 0o644);
    set.to_str().unwrap().to_owned()
}

#[test]
fn a_killed_mount_is_mounted_again_and_its_overlay_goes_on() {
    let place = Place::new();
    let set = readable_set(&place);
    let before = std::fs::read(&set).unwrap();
    let scratch = Scratch::new();
    for (index, user) in users().into_iter().enumerate() {
        let [at, overlay] = ["at", "overlay"].map(|name| format!("{name}-{index}"));
        directory(&scratch, user, &at);
        let mount = || {
            let words = ["--overlay", &overlay, &set];
            Mounted::start(&scratch, user, &at, &words)
        };
        let mut mounted = mount();
        // The script lists the files first, so that the kernel caches what it can know about them.
        let script = "ls -la . && rm shop.db && echo kept > new && sync new && sync .";
        let output = mounted.run("sh", &["-c", script]);
        assert!(output.status.success(), "{}", text(&output));
        mounted.child.kill().unwrap();
        mounted.child.wait().unwrap();
        let dead = mounted.run_at("cat", &["new"]);
        assert!(text(&dead).contains("not connected"), "{}", text(&dead));
        let mounted = mount();
        assert_eq!(text(&mounted.run("ls", &[])), "new\n");
        assert_eq!(text(&mounted.run("cat", &["new"])), "kept\n");
        assert_eq!(mounted.unmount(), Some(0));
    }
    assert!(
        before == std::fs::read(&set).unwrap(),
        "the set has changed"
    );
}

/// Whether `windlass status` shows an operation of this process.
fn is_shown(scratch: &Scratch, user: User, process: u32) -> bool {
    let output = scratch.run(user, &["status", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let operations = status["operations"].as_array().unwrap();
    operations.iter().any(|one| one["pid"] == process)
}

#[test]
fn status_shows_a_mount_until_its_process_is_killed() {
    let place = Place::new();
    let set = readable_set(&place);
    let scratch = Scratch::new();
    for (index, user) in users().into_iter().enumerate() {
        let at = format!("at-{index}");
        directory(&scratch, user, &at);
        let mut mounted = Mounted::start(&scratch, user, &at, &[&set]);
        let process = mounted.child.id();
        // It shows itself at about the moment when the files can be read.
        while !is_shown(&scratch, user, process) {
            std::thread::yield_now();
        }
        mounted.child.kill().unwrap();
        mounted.child.wait().unwrap();
        assert!(!is_shown(&scratch, user, process));
        assert!(!is_shown(&scratch, None, process), "nor does root see it");
        // The kernel still has the mount. The next one on this directory replaces it.
        let dead = mounted.run_at("ls", &[""]);
        assert!(text(&dead).contains("not connected"), "{}", text(&dead));
        let mounted = Mounted::start(&scratch, user, &at, &[&set]);
        assert_eq!(mounted.unmount(), Some(0));
    }
    scratch.assert_clean();
}

#[test]
fn what_cannot_be_mounted_on_says_why_and_nothing_is_left_behind() {
    let place = Place::new();
    let set = readable_set(&place);
    let scratch = Scratch::new();
    for name in ["at", "taken", "full/file"] {
        std::fs::create_dir_all(scratch.path().join(name)).unwrap();
    }
    let taken = Mounted::start(&scratch, None, "taken", &[&set]);
    let refused = |words: &[&str], code: i32, says: &str, hint: &str| {
        let words = [&["mount", &set], words].concat();
        let output = scratch.run(None, &words);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(says), "{words:?}: {said}");
        assert!(
            said.contains(&format!("\nhint: {hint}")),
            "{words:?}: {said}"
        );
    };
    let empty = "Name an empty directory";
    let new = ["--overlay", "new"];
    refused(&[&["nowhere"], &new[..]].concat(), 1, "No such file", empty);
    refused(&[&["full"], &new[..]].concat(), 1, "is not empty", empty);
    let says = "something is mounted there already";
    refused(
        &[&["taken"], &new[..]].concat(),
        1,
        says,
        "Type fusermount3 -u ",
    );
    let below = "would disappear below the mount";
    for overlay in ["at", "at/inside", "at/../at/inside"] {
        refused(
            &["at", "--overlay", overlay],
            2,
            below,
            "Name a directory elsewhere",
        );
    }
    refused(
        &["at", "--overlay", "full"],
        1,
        "is not empty",
        "Name a directory",
    );
    assert_eq!(taken.unmount(), Some(0));
    let names = std::fs::read_dir(scratch.path()).unwrap();
    let names: BTreeSet<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    let expected = ["at", "full", "taken"].map(Into::into);
    assert_eq!(names, BTreeSet::from(expected));
    assert!(
        std::fs::read_dir(scratch.path().join("at"))
            .unwrap()
            .next()
            .is_none()
    );
    scratch.assert_clean();
}

#[test]
fn an_ordinary_user_is_told_what_is_not_his() {
    let place = Place::new();
    let set = readable_set(&place);
    let scratch = Scratch::new();
    let Some(&Some(user)) = users().last() else {
        // If there is no second user, no file here belongs to somebody else.
        assert!(!rustix::process::geteuid().is_root());
        return;
    };
    directory(&scratch, None, "roots");
    let refused = |words: &[&str], says: &str| {
        let output = scratch.run(Some(user), words);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert_eq!(text(&output), says);
    };
    let at = scratch.path().join("roots");
    let says = format!(
        "error: mount on {}: you may not write there\n\
         hint: Name an empty directory that is yours.\n",
        at.display()
    );
    refused(&["mount", &set, "roots"], &says);
    open_to_all(Path::new(&set), 0o600);
    for words in [&["mount", &set, "roots"][..], &["open", &set]] {
        let output = scratch.run(Some(user), words);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.starts_with(&format!("error: {set} cannot be read by user ")),
            "{said}"
        );
        assert!(said.ends_with("or let this user read it.\n"), "{said}");
    }
}

#[test]
fn words_that_are_not_meant_so_are_explained() {
    let place = Place::new();
    let set = readable_set(&place);
    let scratch = Scratch::new();
    let explained = |words: &[&str], code: i32, hint: &str| {
        let output = scratch.run(None, words);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(&format!("hint: {hint}")), "{said}");
    };
    let dashes = "A command comes after two dashes";
    explained(&["open", &set, "sqlite3", "{}"], 1, dashes);
    let words = ["extract", &set, "--relation", "public.t", "--into", "x"];
    explained(&words, 2, "A SQLite table comes out of the opened set");
}

/// A process that finds no more memory ends at once, and its mount would be dead.
#[test]
fn a_mount_that_could_find_no_memory_is_refused_before_it_is_made() {
    let place = Place::new();
    let set = readable_set(&place);
    let scratch = Scratch::new();
    let user = users()[0];
    directory(&scratch, user, "at");
    let at = scratch.path().join("at");
    let at = at.to_str().unwrap();
    let overlay = scratch.path().join("overlay");
    let words = ["mount", &set, at, "--overlay", overlay.to_str().unwrap()];
    let command = scratch.command(user, &words);
    let script = "ulimit -v 300000 && exec \"$0\" \"$@\"";
    let mut limited = Command::new("sh");
    as_user(&mut limited, user);
    let set_variables = command
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    limited.envs(set_variables).args(["-c", script]);
    let output = limited
        .arg(command.get_program())
        .args(command.get_args())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("address space"), "{}", text(&output));
    assert!(text(&output).contains("--threads"), "{}", text(&output));
    assert_eq!(std::fs::read_dir(at).unwrap().count(), 0);
    assert!(!overlay.exists());
    scratch.assert_clean();
}
