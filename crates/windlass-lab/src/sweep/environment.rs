//! Where a sweep ran.

use serde::{Deserialize, Serialize};

/// What describes the machine, as far as it matters for comparing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Windlass's version.
    pub windlass: String,
    /// The kernel's release.
    pub kernel: String,
    /// The processor's name.
    pub processor: String,
    /// Cores.
    pub cores: usize,
    /// Memory, in bytes.
    pub memory_bytes: u64,
}

impl Environment {
    /// The environment of this machine. What the kernel does not say stays empty.
    pub fn of_machine(windlass: &str) -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo");
        let processor = cpu.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == "model name").then(|| value.trim().to_owned())
        });
        let memory = read("/proc/meminfo");
        let total = memory
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:"));
        let kibibytes = total.and_then(|total| total.trim().strip_suffix("kB"));
        let kibibytes = kibibytes.and_then(|text| text.trim().parse::<u64>().ok());
        Self {
            windlass: windlass.to_owned(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            processor: processor.unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kibibytes.unwrap_or(0) * 1024,
        }
    }

    /// As a line for people.
    pub fn words(&self) -> String {
        #[expect(clippy::cast_precision_loss, reason = "gibibytes for people")]
        let memory = self.memory_bytes as f64 / f64::from(1 << 30);
        let processor = match self.processor.as_str() {
            "" => "cores",
            name => name,
        };
        format!(
            "{} x {processor}, {memory:.0} GiB, Linux {}, windlass {}",
            self.cores, self.kernel, self.windlass
        )
    }
}
