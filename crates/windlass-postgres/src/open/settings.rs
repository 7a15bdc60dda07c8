//! The private configuration of an opened server. It turns off everything that reaches outside, and
//! keeps the rest small and quiet.
//!
//! The server does not use the source's own configuration. It gets a file of ours on its command
//! line, and Windlass removes postgresql.auto.conf from its directory. Windlass carries over only
//! the settings that decide how values are written and read ([`CARRIED`]), because a dump from this
//! server is loaded elsewhere.

use crate::configuration::Configuration;
use crate::control::Control;
use crate::restore::Recovery;

/// Room for replication origins. A set of a subscriber has one for each subscription, and the log
/// that the server replays names them. A set holds no slots, so otherwise the room stays empty.
const ORIGINS_MAX: u32 = 1024;
const CONNECTIONS_MIN: u32 = 20;
const WAL_BYTES_MIN: u64 = 1 << 30;

/// Settings that decide how values look and what statements mean.
pub(super) const CARRIED: [&str; 16] = [
    "array_nulls",
    "backslash_quote",
    "bytea_output",
    "datestyle",
    "default_text_search_config",
    "escape_string_warning",
    "extra_float_digits",
    "intervalstyle",
    "lc_monetary",
    "lc_numeric",
    "lc_time",
    "standard_conforming_strings",
    "timezone",
    "timezone_abbreviations",
    "transform_null_equals",
    "xmloption",
];

/// Settings that are always the same.
const FIXED: [(&str, &str); 41] = [
    // The server connects to nothing outside, and nothing outside connects to it.
    ("archive_mode", "off"),
    ("archive_command", ""),
    ("restore_command", ""),
    ("archive_cleanup_command", ""),
    ("recovery_end_command", ""),
    ("primary_conninfo", ""),
    ("primary_slot_name", ""),
    ("max_wal_senders", "0"),
    ("max_logical_replication_workers", "0"),
    ("session_preload_libraries", ""),
    ("local_preload_libraries", ""),
    ("bonjour", "off"),
    ("ssl", "off"),
    // Nobody needs maintenance of a copy.
    ("autovacuum", "off"),
    ("autovacuum_freeze_max_age", "2000000000"),
    ("autovacuum_multixact_freeze_max_age", "2000000000"),
    ("checkpoint_timeout", "1d"),
    ("checkpoint_warning", "0"),
    ("bgwriter_lru_maxpages", "0"),
    ("bgwriter_delay", "10s"),
    ("wal_writer_delay", "10s"),
    // The directory is thrown away, so nothing has to survive. If a process of the server dies, the
    // whole server ends, because there is nothing to recover.
    ("fsync", "off"),
    ("synchronous_commit", "off"),
    ("full_page_writes", "off"),
    ("restart_after_crash", "off"),
    ("wal_level", "minimal"),
    ("wal_init_zero", "off"),
    ("wal_recycle", "off"),
    // Use little memory, and only resources that every user of the machine gets.
    ("shared_buffers", "64MB"),
    ("max_worker_processes", "8"),
    ("huge_pages", "off"),
    ("shared_memory_type", "mmap"),
    ("dynamic_shared_memory_type", "posix"),
    // The server log is what the server writes to its standard error.
    ("logging_collector", "off"),
    ("log_destination", "stderr"),
    ("log_line_prefix", "%m [%p] "),
    ("log_checkpoints", "off"),
    ("log_statement", "none"),
    ("lc_messages", "C"),
    ("cluster_name", "windlass open"),
    ("unix_socket_permissions", "0700"),
];

/// What the configuration depends on.
pub(super) struct Wanted<'a> {
    pub(super) major: u32,
    pub(super) control: &'a Control,
    pub(super) socket_directory: &'a str,
    pub(super) port: u16,
    pub(super) listen: &'a str,
    pub(super) writable: bool,
    pub(super) preload: &'a str,
    pub(super) in_place_tablespaces: bool,
    pub(super) carried: &'a [(String, String)],
    pub(super) extra: &'a [(String, String)],
    pub(super) recovery: Option<&'a Recovery>,
}

/// The content of postgresql.conf. If a name appears twice, the last one wins, so the user's own
/// settings come after ours. Only the point up to which the server recovers comes after them.
pub(super) fn configuration(wanted: &Wanted<'_>) -> String {
    let mut text = String::from("# Written by Windlass for an opened set; removed when it ends.\n");
    let mut put = |name: &str, value: &str| text.push_str(&line(name, value));
    FIXED.iter().for_each(|(name, value)| put(name, value));
    let carried = wanted.carried.iter();
    carried.for_each(|(name, value)| put(name, value));
    for (name, value) in computed(wanted) {
        put(name, &value);
    }
    for (name, value) in wanted.extra {
        put(name, value);
    }
    if let Some(recovery) = wanted.recovery {
        // A hot standby needs settings at least as large as the source's.
        put("hot_standby", "off");
        text.push_str(&recovery.block());
    }
    text
}

fn line(name: &str, value: &str) -> String {
    // A backslash hides a quote from the server too.
    let value = value.replace('\\', r"\\").replace('\'', "''");
    format!("{name} = '{value}'\n")
}

fn computed(wanted: &Wanted<'_>) -> Vec<(&'static str, String)> {
    let Wanted { control, major, .. } = *wanted;
    let segment = u64::from(control.wal_segment_bytes);
    let megabytes = |bytes: u64| format!("{}MB", bytes >> 20);
    let on_off = |on: bool| if on { "on" } else { "off" }.to_owned();
    let mut settings = vec![
        (
            "unix_socket_directories",
            quoted_path(wanted.socket_directory),
        ),
        ("port", wanted.port.to_string()),
        ("listen_addresses", wanted.listen.to_owned()),
        ("default_transaction_read_only", on_off(!wanted.writable)),
        ("shared_preload_libraries", wanted.preload.to_owned()),
        // The set may hold prepared transactions, which need their slots. A dump of many tables
        // needs as many locks as the source allowed.
        (
            "max_prepared_transactions",
            control.prepared_transactions_max.to_string(),
        ),
        (
            "max_locks_per_transaction",
            control.locks_per_transaction_max.max(64).to_string(),
        ),
        (
            "max_connections",
            control.connections_max.max(CONNECTIONS_MIN).to_string(),
        ),
        ("track_commit_timestamp", on_off(control.commit_timestamps)),
        ("max_replication_slots", ORIGINS_MAX.to_string()),
        ("max_wal_size", megabytes(WAL_BYTES_MIN.max(segment * 4))),
        ("min_wal_size", megabytes(segment * 2)),
    ];
    if major >= 17 {
        // A login trigger may write or connect to the outside before the user has sent anything.
        settings.push(("event_triggers", "off".into()));
    }
    if major >= 18 {
        settings.push(("max_active_replication_origins", ORIGINS_MAX.to_string()));
    }
    if wanted.in_place_tablespaces {
        settings.push(("allow_in_place_tablespaces", "on".into()));
    }
    settings
}

/// Quotes one directory for a setting that takes a list of directories.
fn quoted_path(path: &str) -> String {
    format!("\"{}\"", path.replace('"', "\"\""))
}

/// The content of pg_hba.conf. Nobody else can enter the socket's directory, so the socket needs no
/// password. Over TCP the server asks for the cluster's own passwords.
pub(super) fn authentication() -> &'static str {
    "local all all trust\nhost all all all md5\n"
}

/// The source's settings that are carried over, in their order.
pub(super) fn carried(source: &Configuration) -> Vec<(String, String)> {
    let assignments = source.assignments.iter();
    let known = assignments.filter(|(name, _)| CARRIED.contains(&name.as_str()));
    known.cloned().collect()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "fixtures need no durability")]
mod tests {
    use super::*;
    use crate::configuration::Place;

    #[test]
    fn only_what_decides_how_values_look_is_carried_over() {
        let text = "# a comment\nDateStyle = 'iso, dmy'\nlc_monetary='de_DE.UTF-8' # money\n\
            archive_command = 'cp %p /mnt'\nTimeZone 'Europe/Berlin'\nshared_buffers = 8GB\n\
            bytea_output=escape#x\nxmloption = \n default_text_search_config 'it''s'\nport";
        let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let expected = [
            ("datestyle", "iso, dmy"),
            ("lc_monetary", "de_DE.UTF-8"),
            ("timezone", "Europe/Berlin"),
            ("bytea_output", "escape"),
            ("default_text_search_config", "it's"),
        ];
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("postgresql.conf");
        std::fs::write(&path, text).unwrap();
        let mut source = Configuration::default();
        let inside = Place {
            root: place.path(),
            was: place.path(),
            everywhere: false,
        };
        source.read(&path, inside).unwrap();
        assert_eq!(carried(&source), expected.map(pair));
    }

    #[test]
    fn no_value_of_the_sources_ends_its_line_early() {
        assert_eq!(line("datestyle", r"iso\"), "datestyle = 'iso\\\\'\n");
        assert_eq!(line("datestyle", r"\' b"), "datestyle = '\\\\'' b'\n");
    }
}
