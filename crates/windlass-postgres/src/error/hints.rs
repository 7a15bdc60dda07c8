//! Hints: what a user can do about an error, in full sentences.

use super::{OverFault, PostgresError, ServerError, connect, ended};

impl PostgresError {
    /// What the user can do about it, in full sentences: first the server's advice, then ours.
    pub fn hint(&self) -> Option<String> {
        match self.own_hint() {
            Some(ours) => Some(self.with_server_hint(&ours)),
            None => self.server_hint().map(str::to_owned),
        }
    }

    /// The server's advice, if it gave any, and then `ours`.
    pub fn with_server_hint(&self, ours: &str) -> String {
        match self.server_hint() {
            Some(servers) => format!("{servers} {ours}"),
            None => ours.to_owned(),
        }
    }

    fn server_hint(&self) -> Option<&str> {
        self.server_error().and_then(ServerError::hint)
    }

    /// The hint for a session that could not be opened.
    fn connect_hint(&self) -> Option<String> {
        let Self::Connect {
            at,
            role,
            database,
            encrypted,
            password_hint,
            source,
        } = self
        else {
            return None;
        };
        if let Some(hint) = source.damage_hint() {
            return Some(hint.to_owned());
        }
        let tried = connect::Tried {
            at,
            role,
            database,
            encrypted: *encrypted,
            password_hint,
        };
        Some(tried.hint(source))
    }

    fn own_hint(&self) -> Option<String> {
        let text = match self {
            Self::Engine(error) => return error.hint(),
            Self::Chain(fault) => return fault.hint().map(str::to_owned),
            Self::Connect { .. } => return self.connect_hint(),
            Self::Right {
                database, grant, ..
            } => {
                return Some(format!(
                    "As a superuser, type in database {database}: {grant}"
                ));
            }
            Self::Sql { source, .. } if source.is_end() => {
                "The server was stopped or restarted, it crashed, or somebody ended this session. \
                 See the server log. When the server runs, start again."
            }
            Self::Sql { source, .. } => return source.damage_hint().map(str::to_owned),
            Self::TlsFile { keyword, .. } => connect::tls_file_hint(keyword),
            Self::Conninfo { .. } => {
                "Write it as for psql: keyword=value pairs with blanks between, or a URI."
            }
            Self::Programs { .. } => {
                "Install that version's server package, or name its directory."
            }
            Self::ClusterDamaged { .. } => ended::DAMAGED,
            Self::OpenedConnect { source, .. } | Self::Amcheck { source, .. }
                if source.is_damage() =>
            {
                ended::DAMAGED
            }
            Self::NotStartable { .. } => {
                "Mend its configuration, or start the server once from where it belongs, so that \
                 its words are known. Nothing was changed."
            }
            Self::ServerEnded { .. } => return Some(self.server_end()?.hint().to_owned()),
            Self::OpenedConnect { .. } => "Name a role of the cluster.",
            Self::Amcheck { .. } => {
                "Install PostgreSQL's contrib package of that version, or name a directory of \
                 programs that has it."
            }
            Self::SocketPath { .. } => "Name a shorter directory.",
            Self::WalMissing {
                slot_limit: Some(limit),
                ..
            } => {
                return Some(format!(
                    "max_slot_wal_keep_size is {limit} on this server: replication slots keep no \
                     more log than that. Raise it above the log that is written during a backup, \
                     or set it to -1."
                ));
            }
            Self::WalMissing { .. } => {
                "Raise wal_keep_size, or let a replication slot be made (max_replication_slots)."
            }
            _ => return self.hint_of_files().map(str::to_owned),
        };
        Some(text.to_owned())
    }

    /// The hint when files, the log or a target are the cause, and not a session.
    fn hint_of_files(&self) -> Option<&'static str> {
        let text = match self {
            Self::Owner { .. } => "Run as the data directory's owner, or as root.",
            Self::OtherCluster { .. } => {
                "Run on the server's own machine, with its data directory at the same path."
            }
            Self::Version { found, newest, .. } if found > newest => {
                "Use a newer windlass: a new major version changes pg_control and the log, and a \
                 backup that misreads them would be worth nothing."
            }
            Self::Unlisted { .. } => {
                "The file system does not name all files, so the backup cannot find all. Check the \
                 file system and, if it is a network file system, its server."
            }
            Self::WalLevelMinimal => "Set wal_level to replica and restart the server.",
            Self::WindowsEnded { .. } => {
                "Back up while no database or tablespace is created or moved. From PostgreSQL 15 \
                 on, CREATE DATABASE ... STRATEGY wal_log copies no files."
            }
            Self::ReplaysOutside { .. } => {
                "A tablespace was created while this copy was made. Make a new backup: this \
                 version of Windlass needs no such replay. A restore can also go on on a machine \
                 where that path does not exist."
            }
            Self::StandbyBehind { .. } => {
                "Run CHECKPOINT on the primary, then start the backup again."
            }
            Self::WalRecord { .. } => {
                "Look at the log there with pg_waldump. If that reads on, report this as a fault \
                 of Windlass."
            }
            Self::Promoted => "Start the backup again, of the new primary.",
            Self::Set { .. } => {
                "No backup of this version writes such a set. If a newer version \
                 wrote it, use that version."
            }
            Self::Link { .. } => "Replace the link by what it points to, or point it elsewhere.",
            _ => return self.hint_of_target(),
        };
        Some(text)
    }

    /// The hint when the target of a restore is the cause.
    fn hint_of_target(&self) -> Option<&'static str> {
        let text = match self {
            Self::TargetNotEmpty { .. } => {
                "Name an empty directory or a new one, also for each tablespace. To restore in \
                 place of an old cluster, stop its server and move the old directory away. If a \
                 restore that was cut off left these files, and no server uses them, remove them."
            }
            Self::TargetKept(_, why) => match why {
                OverFault::NotACluster => {
                    "Name the data directory of the cluster, an empty directory or a new one."
                }
                OverFault::Another { .. } => {
                    "Is it the right directory? If the cluster there is to be replaced, force it."
                }
                OverFault::Snapshots => "Drop them first.",
                OverFault::Part => "Name an empty directory or a new one.",
            },
            Self::TargetNotDirectory { .. } => {
                "A cluster is restored into a directory: name an empty one or a new one."
            }
            Self::Target { .. } => {
                "Each tablespace of the set goes into a directory of its own. Map it to one, with \
                 two absolute paths."
            }
            Self::TablespaceUnlisted { .. } => {
                "Map that directory to an empty one, with two absolute paths."
            }
            Self::NotInSet { .. } => {
                "If it was renamed since the backup, the set has its earlier name. The oid stays \
                 the same: compare it with those in pg_database or pg_tablespace."
            }
            Self::TargetRunning { .. } => {
                "Stop that server and move the directory away, or restore somewhere else."
            }
            _ => return self.hint_of_missing(),
        };
        Some(text)
    }

    /// The hint when something of the cluster was missing that should have been there.
    fn hint_of_missing(&self) -> Option<&'static str> {
        Some(match self {
            Self::Vanished { .. } => {
                "Start the backup again. If it fails again, see whether the database of this \
                 directory can still be used."
            }
            Self::Incomplete { .. } => {
                "A running server never removes this file. See whether it is in the data \
                 directory, and what the server log says. Then start the backup again."
            }
            Self::DataDirectoryGone { .. } => {
                "Somebody moved or removed it, or its file system was unmounted. Put it back, see \
                 whether the server still works, and start the backup again."
            }
            _ => return None,
        })
    }
}
