//! The limits of a server (`ulimit`), its priority, and how soon the system kills it for its
//! memory: it inherits them from whoever starts it, and its administrator may have chosen them.
//!
//!   /proc/PID/limits, nice, oom_score_adj --> pg_ctl, before it runs its program --> server
//!
//! Never does: keep a server from starting. What this process may not give, the server lacks
//! ([`Lack`]).

use std::ffi::CStr;
use std::fmt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::process::{
    Pid, Resource, Rlimit, getpriority_process, getrlimit, setpriority_process, setrlimit,
};

/// The names of limits as the system writes them.
const NAMES: [(&str, Resource); 16] = [
    ("cpu time", Resource::Cpu),
    ("file size", Resource::Fsize),
    ("data size", Resource::Data),
    ("stack size", Resource::Stack),
    ("core file size", Resource::Core),
    ("resident set", Resource::Rss),
    ("processes", Resource::Nproc),
    ("open files", Resource::Nofile),
    ("locked memory", Resource::Memlock),
    ("address space", Resource::As),
    ("file locks", Resource::Locks),
    ("pending signals", Resource::Sigpending),
    ("msgqueue size", Resource::Msgqueue),
    ("nice priority", Resource::Nice),
    ("realtime priority", Resource::Rtprio),
    ("realtime timeout", Resource::Rttime),
];
const OWN_SCORE: &CStr = c"/proc/self/oom_score_adj";

/// What a server inherited from whoever started it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Limits {
    limits: Vec<(&'static str, Resource, Rlimit)>,
    nice: Option<i32>,
    /// The larger, the sooner the system kills it.
    oom_score: Option<i32>,
}

/// Something that a server had, and has less of since it was started again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// What it is: `open files`.
    pub what: &'static str,
    /// What it has.
    pub now: String,
    /// What it had.
    pub before: String,
}

impl fmt::Display for Lack {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {} (before: {})", self.what, self.now, self.before)
    }
}

impl Limits {
    /// Of a process. What the system does not tell, it does not have.
    pub(super) fn of(process: i32) -> Self {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{process}/{name}"));
        let score = read("oom_score_adj").ok();
        Self {
            limits: parse(&read("limits").unwrap_or_default()),
            nice: Pid::from_raw(process).and_then(|pid| getpriority_process(Some(pid)).ok()),
            oom_score: score.and_then(|score| score.trim().parse().ok()),
        }
    }

    /// Gives them to a command, as far as this process may.
    #[allow(
        unsafe_code,
        reason = "a process can only change what it has itself inherited"
    )]
    pub(super) fn give_to(&self, command: &mut Command) {
        let allowed: Vec<_> = self.limits.iter().map(allowed).collect();
        let (nice, score) = (self.nice, self.oom_score.map(|score| score.to_string()));
        let give = move || {
            // What is refused, the server lacks. This process may have more files open than the
            // server could, so the file of the score comes before the limits.
            if let Some(score) = &score {
                let own = rustix::fs::open(OWN_SCORE, OFlags::WRONLY, Mode::empty());
                let written = own.and_then(|own| rustix::io::write(&own, score.as_bytes()));
                written.unwrap_or_default();
            }
            for (resource, limit) in &allowed {
                setrlimit(*resource, *limit).unwrap_or_default();
            }
            if let Some(nice) = nice {
                setpriority_process(None, nice).unwrap_or_default();
            }
            Ok(())
        };
        // SAFETY: between fork and exec only async-signal-safe calls are allowed. The closure makes
        // system calls, and allocates, locks and frees nothing.
        unsafe {
            command.pre_exec(give);
        }
    }

    /// What a process has less of.
    pub(super) fn lacks_of(&self, now: &Self) -> Vec<Lack> {
        let mut lacks = Vec::new();
        for &(what, resource, before) in &self.limits {
            let mut all = now.limits.iter();
            let Some((_, _, now)) = all.find(|(_, other, _)| *other == resource) else {
                continue;
            };
            let pairs = [(now.current, before.current), (now.maximum, before.maximum)];
            let less = pairs
                .into_iter()
                .find(|(now, before)| is_less(*now, *before));
            lacks.extend(less.map(|(now, before)| Lack {
                what,
                now: shown(now),
                before: shown(before),
            }));
        }
        for (what, now, before) in [
            ("nice value", now.nice, self.nice),
            ("oom_score_adj", now.oom_score, self.oom_score),
        ] {
            if let (Some(now), Some(before)) = (now, before)
                && now > before
            {
                let (now, before) = (now.to_string(), before.to_string());
                lacks.push(Lack { what, now, before });
            }
        }
        lacks
    }
}

/// The lines of /proc/PID/limits: `Max open files            1024       524288       files`.
fn parse(text: &str) -> Vec<(&'static str, Resource, Rlimit)> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("Max "));
    let limits = lines.filter_map(|line| {
        let (name, rest) = NAMES
            .iter()
            .find_map(|(name, resource)| Some(((*name, *resource), line.strip_prefix(name)?)))?;
        let mut words = rest.split_whitespace();
        let limit = Rlimit {
            current: number(words.next()?)?,
            maximum: number(words.next()?)?,
        };
        Some((name.0, name.1, limit))
    });
    limits.collect()
}

/// A limit, or that there is none.
#[allow(
    clippy::option_option,
    reason = "a limit that cannot be read is not none"
)]
fn number(word: &str) -> Option<Option<u64>> {
    match word {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    }
}

/// A limit as far as this process may give it: nobody but root raises the maximum of it.
fn allowed((_, resource, limit): &(&'static str, Resource, Rlimit)) -> (Resource, Rlimit) {
    let most = getrlimit(*resource).maximum;
    let at_most = |one: Option<u64>, other: Option<u64>| match is_less(one, other) {
        true => one,
        false => other,
    };
    let maximum = at_most(limit.maximum, most);
    let current = at_most(limit.current, maximum);
    (*resource, Rlimit { current, maximum })
}

/// Whether one limit is less than another one. `None` is no limit.
fn is_less(one: Option<u64>, other: Option<u64>) -> bool {
    one.unwrap_or(u64::MAX) < other.unwrap_or(u64::MAX)
}

fn shown(limit: Option<u64>) -> String {
    limit.map_or("unlimited".to_owned(), |limit| limit.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
        Limit                     Soft Limit           Hard Limit           Units     \n\
        Max cpu time              unlimited            unlimited            seconds   \n\
        Max processes             15000                15000                processes \n\
        Max open files            1024                 524288               files     \n\
        Max something new         1                    2                    things    \n";

    #[test]
    fn limits_are_read_and_what_is_less_is_named() {
        let limits = |text: &str| Limits {
            limits: parse(text),
            nice: Some(-5),
            oom_score: Some(-900),
        };
        let before = limits(TEXT);
        let values = before.limits.iter().map(|(name, _, limit)| {
            let Rlimit { current, maximum } = limit;
            (*name, *current, *maximum)
        });
        assert_eq!(
            values.collect::<Vec<_>>(),
            [
                ("cpu time", None, None),
                ("processes", Some(15000), Some(15000)),
                ("open files", Some(1024), Some(524288)),
            ]
        );
        assert_eq!(before.lacks_of(&before), []);
        let now = Limits {
            nice: Some(0),
            oom_score: Some(-1000),
            ..limits(
                &TEXT
                    .replace("524288", "  4096")
                    .replacen("unlimited", "7        ", 1),
            )
        };
        let lacks: Vec<_> = before.lacks_of(&now).iter().map(Lack::to_string).collect();
        assert_eq!(
            lacks,
            [
                "cpu time 7 (before: unlimited)",
                "open files 4096 (before: 524288)",
                "nice value 0 (before: -5)",
            ]
        );
        assert_eq!(now.lacks_of(&before).len(), 1, "it may be killed sooner");
    }

    #[test]
    fn the_limits_of_this_process_can_be_given_again() {
        let process = i32::try_from(std::process::id()).unwrap();
        let own = Limits::of(process);
        assert_eq!(own.limits.len(), NAMES.len());
        let mut command = Command::new("cat");
        own.give_to(command.arg("/proc/self/limits"));
        let output = command.output().unwrap();
        assert_eq!(
            parse(&String::from_utf8(output.stdout).unwrap()),
            own.limits
        );
    }
}
