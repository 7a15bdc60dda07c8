//! Markers: which stripes are being written, and by whom. A run writes one before it writes
//! anything else of a stripe, and removes it when the stripe has its name. So whatever a run left
//! behind, a list of the markers finds it.

use std::fs;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

/// What a marker says, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Marker {
    /// The set.
    pub(crate) set: String,
    /// The stripe's number in it, from 0.
    pub(crate) stripe: u16,
    /// The name that the stripe gets in its place.
    pub(crate) name: String,
    /// The upload of the data, once it has begun.
    pub(crate) upload: Option<String>,
    /// Who writes it.
    pub(crate) writer: Writer,
}

/// A process, so that another one on the same machine can see whether it is still there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Writer {
    /// The machine's name, for people.
    pub(crate) host: String,
    /// This start of the machine's kernel.
    boot: String,
    /// The namespace that the number of the process is from: containers have their own.
    namespace: String,
    process: u32,
    /// When the process began, in clock ticks of the kernel. Numbers are used again.
    started: Option<u64>,
}

impl Writer {
    /// This process.
    pub(crate) fn own() -> Self {
        let process = std::process::id();
        let line = |path: &str| {
            let text = fs::read_to_string(path).ok();
            text.map_or(String::new(), |text| text.trim().to_owned())
        };
        Self {
            host: windlass_engine::hostname(),
            boot: line("/proc/sys/kernel/random/boot_id"),
            namespace: namespace(),
            process,
            started: started(process),
        }
    }

    /// Whether the process has ended for certain. None if that cannot be seen from here: it ran on
    /// another machine, in another container, or before this machine was started.
    pub(crate) fn is_gone(&self) -> Option<bool> {
        let here = Self::own();
        let is_seen = !self.boot.is_empty()
            && !self.namespace.is_empty()
            && (&self.boot, &self.namespace) == (&here.boot, &here.namespace);
        if !is_seen || self.started.is_none() || here.started.is_none() {
            return None;
        }
        match started(self.process) {
            // Where users do not see each other's processes, it may run all the same.
            None if is_unseen(self.process) => None,
            now => Some(now != self.started),
        }
    }
}

fn namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").ok();
    link.map_or(String::new(), |link| link.to_string_lossy().into_owned())
}

/// Whether a process is there of which this user sees nothing.
fn is_unseen(process: u32) -> bool {
    let number = i32::try_from(process).ok().and_then(Pid::from_raw);
    let asked = number.map(test_kill_process);
    asked == Some(Err(Errno::PERM)) && !Path::new(&format!("/proc/{process}")).exists()
}

/// When a process began. None if it is not there, or has ended and waits for its parent.
fn started(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program stands in parentheses, and may itself contain some.
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    match state {
        "Z" | "X" => None,
        _ => fields.nth(18)?.parse().ok(),
    }
}

impl Marker {
    /// As the bytes of an object.
    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::json!(self).to_string().into_bytes()
    }

    /// Reads the bytes of an object. None if they are no marker of a stripe of this set.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let marker: Self = serde_json::from_slice(bytes).ok()?;
        let is_id = marker.set.len() == 32 && marker.set.bytes().all(|it| it.is_ascii_hexdigit());
        let is_name = !marker.name.is_empty() && !marker.name.contains('/');
        (is_id && is_name).then_some(marker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_runs_is_not_gone_and_one_that_ended_is() {
        let own = Writer::own();
        assert_eq!(own.is_gone(), Some(false));
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let process = child.id();
        let other = Writer {
            process,
            started: started(process),
            ..own.clone()
        };
        assert_eq!(other.is_gone(), Some(false));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(other.is_gone(), Some(true));
        let reused = Writer {
            started: Some(1),
            ..own.clone()
        };
        assert_eq!(
            reused.is_gone(),
            Some(true),
            "another process has the number"
        );
        let elsewhere = Writer {
            boot: "another".to_owned(),
            ..own
        };
        assert_eq!(elsewhere.is_gone(), None);
    }

    #[test]
    fn a_marker_is_read_as_it_was_written() {
        let marker = Marker {
            set: "0123456789abcdef0123456789abcdef".to_owned(),
            stripe: 1,
            name: "shop.windlass".to_owned(),
            upload: Some("u".to_owned()),
            writer: Writer::own(),
        };
        assert_eq!(Marker::decode(&marker.encode()), Some(marker.clone()));
        for (set, name) in [("../x", "a"), (marker.set.as_str(), "../a")] {
            let bad = Marker {
                set: set.to_owned(),
                name: name.to_owned(),
                ..marker.clone()
            };
            assert_eq!(Marker::decode(&bad.encode()), None);
        }
    }
}
