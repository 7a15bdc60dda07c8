//! A cluster, its sets, and the command.

use std::path::PathBuf;

use windlass_testkit::postgres::{ClusterOptions, PrivateCluster};

pub use crate::run::*;

/// A running cluster and a place for sets.
pub struct Place {
    pub server: PrivateCluster,
    dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        let server = PrivateCluster::start(&ClusterOptions::default());
        // Autovacuum would change statistics at any time, and they would differ.
        server.sql("postgres", "ALTER SYSTEM SET autovacuum = off");
        server.sql("postgres", "SELECT pg_reload_conf()");
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        Self { server, dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn arg(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub fn data(&self) -> String {
        self.server.data().to_str().unwrap().to_owned()
    }

    pub fn sql(&self, sql: &str) -> String {
        self.server.sql("postgres", sql)
    }

    /// Backs up into a new directory.
    pub fn back_up(&self, name: &str) -> String {
        std::fs::create_dir(self.path(name)).unwrap();
        let set = self.arg(name);
        let output = windlass(&["backup", &self.server.conninfo(), "--to", &set]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        set
    }
}
