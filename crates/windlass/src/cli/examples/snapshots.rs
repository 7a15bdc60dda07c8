//! The examples of `snapshot` and its subcommands.

/// `windlass snapshot --help`
pub const SNAPSHOT: &str = "\
Examples:
  windlass snapshot create shop.db before-upgrade
      Keep the database as it is now. Other programs can go on writing to it.
  windlass snapshot create 'host=/var/run/postgresql' nightly --to /disk2/snapshots
      Keep a PostgreSQL cluster as it is now, on another disk.
  windlass snapshot list shop.db
      Show the snapshots of a database.
  windlass snapshot revert shop.db@before-upgrade
      Make the database what it was. Other programs can have it open.
  windlass snapshot undo shop.db
      Bring back what the revert overwrote.
  windlass snapshot rotate shop.db hourly --keep 12
      Make a snapshot, and keep the newest twelve of its kind.
  windlass snapshot drop shop.db before-upgrade
      Remove a snapshot.
  windlass snapshot enable 'host=/var/run/postgresql'
      Prepare a PostgreSQL server for snapshots that cost only what changes after them.

A snapshot lies in a directory beside the database, unless --to names another one.";

/// `windlass snapshot enable --help`
pub const SNAPSHOT_ENABLE: &str = "\
Examples:
  windlass snapshot enable 'host=/var/run/postgresql'
      Name the library of Windlass in shared_preload_libraries. Then restart the server.
  windlass snapshot enable 'host=/var/run/postgresql'
      After the restart: check that every process of the server writes through the library.

Other names in shared_preload_libraries stay. Before Windlass names the library, the server loads it
once in a session: a server that cannot load such a library would not start.";

/// `windlass snapshot disable --help`
pub const SNAPSHOT_DISABLE: &str = "\
Examples:
  windlass snapshot disable 'host=/var/run/postgresql'
      Take the library out of shared_preload_libraries. The next start loads it no more.

Windlass refuses while there are snapshots by the hook: they would be lost. Drop them first.";

/// `windlass snapshot create --help`
pub const SNAPSHOT_CREATE: &str = "\
Examples:
  windlass snapshot create shop.db before-upgrade
      Keep the database as it is now. Other programs can go on writing to it.
  windlass snapshot create 'host=/var/run/postgresql' nightly --to /disk2/snapshots
      Keep a PostgreSQL cluster as it is now, on another disk.
  windlass snapshot create 'host=/var/run/postgresql' now --method hook --checkpoint none
      Keep the cluster at once, without a checkpoint. Opening it takes longer.
  windlass snapshot create 'host=/var/run/postgresql' noon --max-size 20GiB --max-age 7d
      End the snapshot when more than 20 GiB were kept for it, or after a week.
  windlass snapshot create 'host=/var/run/postgresql' release --method hook --durable
      Keep the cluster so that the snapshot outlives a power cut, too.
  windlass snapshot create shop.db before-upgrade --method copy
      Read and write everything once, so that the snapshot shares no block with the database.

Windlass prints how long each step took, and how long nobody could commit.";

/// `windlass snapshot list --help`
pub const SNAPSHOT_LIST: &str = "\
Examples:
  windlass snapshot list shop.db
      Show the snapshots of a database: as of when they are, what they take, whether they are kept.
  windlass snapshot list /var/lib/postgresql/15/main --json
      The same for a program, and for a cluster whose server need not run.

The exit code is 3 if a snapshot is lost or on a disk that is not there, and 4 if one is damaged.";

/// `windlass snapshot drop --help`
pub const SNAPSHOT_DROP: &str = "\
Examples:
  windlass snapshot drop shop.db before-upgrade
      Remove a snapshot. The others stay as they are.
  windlass snapshot drop shop.db undo:1
      Remove what a revert overwrote. The list shows it, and what it takes.

A snapshot that is opened, mounted or read by a command that runs cannot be removed, unless it is a
copy. What `open --keep` left open of it is closed first. The exit code is 3 if the disk of the
snapshot is not there: its directory stays, and only the name is gone.";

/// `windlass snapshot rotate --help`
pub const SNAPSHOT_ROTATE: &str = "\
Examples:
  windlass snapshot rotate shop.db hourly --keep 12
      Make a snapshot hourly-TIME, and remove the oldest of that prefix until 12 are left.
  windlass snapshot rotate shop.db --keep 3 --method copy
      The same with the prefix rolling. The options are those of create.
  windlass open shop.db@hourly -- sqlite3 {} 'select count(*) from orders'
      Ask the newest snapshot of the prefix hourly.

Snapshots that you named yourself are not removed, unless the name looks like prefix-TIME. One that
is lost does not count. The exit code is 3 if something changed since the last snapshot of the
prefix. Nothing is removed if the database was emptied or made anew, until --accept names that.";

/// `windlass snapshot revert --help`
pub const SNAPSHOT_REVERT: &str = "\
Examples:
  windlass snapshot revert shop.db@before-upgrade
      Make the database what it was. Windlass asks first.
  windlass snapshot revert shop.db@before-upgrade --yes
      The same in a script.
  windlass snapshot revert 'host=/var/run/postgresql@before-upgrade'
      Make a PostgreSQL cluster what it was. Its server is stopped and started again.

What is overwritten is kept, and `windlass snapshot undo shop.db` brings it back.";

/// `windlass snapshot undo --help`
pub const SNAPSHOT_UNDO: &str = "\
Examples:
  windlass snapshot undo shop.db
      Bring back what the last revert overwrote. Windlass asks first. Again: one more revert.
  windlass snapshot undo shop.db undo:2
      Bring back the state undo:2, which the list shows.

What was written after the revert is kept, too. Windlass keeps the newest three such states.";
