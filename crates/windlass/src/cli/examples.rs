//! What `--help` shows below the options: commands to copy, and what they do.
//!
//! The man pages are made from these texts, too (`command/manual/examples.rs`): a block begins with
//! `Examples:`, commands are indented by two, and what they do by six.

mod snapshots;

pub use snapshots::*;

/// `windlass --help`
pub const WINDLASS: &str = "\
Examples:
  windlass backup shop.db --to /backup/shop
      Back up a live SQLite database. Other programs can go on writing to it.
  windlass backup 'host=/var/run/postgresql' --to /disk1/pg --to /disk2/pg
      Back up a PostgreSQL cluster to two disks at the same time.
  windlass restore /disk1/pg /disk2/pg --into /var/lib/postgresql/15/restored
      Restore it into a new data directory.
  windlass open /disk1/pg -- psql
      Run the backup as a server, without restoring it.
  windlass verify /backup/shop
      Read and check every byte of a backup.
  windlass backup 'host=/var/run/postgresql' --to nul --compress none
      Write nothing: measure how fast the database can be read.

A DATABASE is the path of a SQLite file, a libpq connection string or URI, or a name from
/etc/windlass/windlass.toml. A DEVICE is a file, a directory (Windlass names the file in it), or
`nul`, which keeps nothing. A SET is one of its stripes, or a directory of sets: Windlass takes the
newest one, and --set chooses another.

Most options can also be set as WINDLASS_OPTION in the environment, or in the configuration under
[command]. The command line wins over the environment, and the environment over the configuration.

Exit codes: 0 done, 1 failed, 2 usage, 3 done with warnings, 4 damage found, 130 interrupted.";

/// `windlass backup --help`
pub const BACKUP: &str = "\
Examples:
  windlass backup shop.db --to /disk1 --to /disk2
      Write two stripes at the same time. Windlass names the files in the directories.
  windlass backup 'host=/var/run/postgresql' --to /backup/pg --compress auto
      Compress more if the device is slow, and less if the cores are.
  windlass backup 'host=/var/run/postgresql' --to /backup/pg --max-rate 100MiB
      Read at most 100 MiB per second, to leave the rest of the disk to the database.
  windlass backup 'host=/var/run/postgresql' --to /backup/pg --type log
      Copy what that place lacks of the server's log, up to now.
  windlass backup 'host=/var/run/postgresql' --to /backup/pg --type incr
      Store only what changed since the newest backup there.
  windlass backup shop.db --to nul --compress none
      Keep nothing: measure how fast the database can be read.

The set is complete when the backup prints `sealed`. An interrupted backup leaves no set. The
verdict says what limited the speed, and which option would help.";

/// `windlass check --help`
pub const CHECK: &str = "\
Examples:
  windlass check shop
      Can tonight's backup of the configured database shop run?
  windlass check 'host=/var/run/postgresql' --to /backup/pg
      Which right, slot, directory or room would be missing?

Each line says ok, warning or failed, and what to do. Nothing is written. The exit code is 0 when
all is right, 3 with warnings, and 1 when a backup would fail.";

/// `windlass restore --help`
pub const RESTORE: &str = "\
Examples:
  windlass restore /backup/shop --into /srv/shop/shop.db
      Restore the newest set of a SQLite database. Add --force to replace the one that exists.
  windlass restore /backup/shop --set '2026-11-21 12:00' --into /srv/shop/old.db
      Restore the newest set that was begun by then. `windlass info /backup/shop` lists all.
  windlass restore /disk1/pg /disk2/pg --into /var/lib/postgresql/15/restored
      Restore a PostgreSQL cluster from stripes in two directories into a new data directory.
  windlass restore /backup/pg --into /srv/new/data --tablespace-map /fast=/srv/new/fast
      The same, and put the tablespace that was in /fast into /srv/new/fast.
  windlass restore /backup/pg --into /srv/new/data --target-time 2026-11-21T12:00:00+01:00
      Go back to that moment with the archived log (see windlass-archive-push).

Windlass checks every byte before it writes it. No server starts in the new directory before the
restore is complete. At the end Windlass prints what to do next.";

/// `windlass repair --help`
pub const REPAIR: &str = "\
Examples:
  windlass repair /srv/pg/data --from /backup/pg --dry-run
      Which pages have a wrong checksum? The server must be stopped.
  windlass repair /srv/pg/data --from /backup/pg --keep /srv/damaged
      Replace them, and keep the damaged ones.
  windlass repair /srv/pg/data --from /backup/pg --keep /srv/damaged --page base/5/16384:17
      Only this page.

The exit code is 4 if damage is left.";

/// `windlass merge --help`
pub const MERGE: &str = "\
Examples:
  windlass merge /backup/main --to /backup/main
      Make one full set of the newest set and all sets that it builds on.
  windlass merge /backup/main --set 5d0d5f3c --to /a --to /b --compress zstd:9
      Do so for an older set, on two devices, and with another codec.

The new set restores to the same bytes. Later backups can build on it. The sets of the chain stay.";

/// `windlass repair-set --help`
pub const REPAIR_SET: &str = "\
Examples:
  windlass repair-set /d1 /d2 /d3
      Write what is missing or damaged of the newest set anew: /d2 is a new, empty disk.
  windlass repair-set /d1/shop-20261121T081500Z-1f0c9a2e.1of4.windlass
      Do so for the set of this stripe. Windlass finds its other devices.

The set must have been made with `backup --parity`. Devices without damage are only read.";

/// `windlass verify --help`
pub const VERIFY: &str = "\
Examples:
  windlass verify /backup/shop
      Read and check everything. List each damaged place, and what is lost by it.
  windlass verify --quick /backup/shop
      Check only seals, footers and indexes. This finds a missing or truncated stripe in seconds.
  windlass verify --open /backup/pg
      Then open the set as a server, and let PostgreSQL check every table and index.

The exit code is 4 if something is damaged.";

/// `windlass info --help`
pub const INFO: &str = "\
Examples:
  windlass info /backup
      Show every set in a directory: its database, when it was made, where its stripes are.
  windlass info --files /backup/shop-20261121T101500Z-5e849c97.1of2.windlass
      Show the set of this stripe and list its files.

If a set is not complete, info says what is missing and how much is sound. The exit code is 4.";

/// `windlass diff --help`
pub const DIFF: &str = "\
Examples:
  windlass diff /backup/monday /backup/tuesday
      Show which relations and pages differ between two sets.
  windlass diff /backup/shop /srv/shop/shop.db
      Show what has changed in a live database since its backup.
  windlass diff --every-byte /backup/monday /backup/tuesday
      The same, but read everything and rely on no checksums.

The exit code is 0 if nothing differs, and 3 if something does.";

/// `windlass extract --help`
pub const EXTRACT: &str = "\
Examples:
  windlass extract /backup/pg postgresql.conf pg_hba.conf --into /tmp/found
      Write two files of a set into a directory.
  windlass extract /backup/pg --relation shop.public.orders --into /tmp/found
      Write the files of a table with its indexes and long values.

The files of a table are not consistent by themselves. To get a table back, use `windlass open`.";

/// `windlass mount --help`
pub const MOUNT: &str = "\
Examples:
  windlass mount /backup/pg /mnt/pg
      Show the files of a set below /mnt/pg.
  fusermount3 -u /mnt/pg
      Unmount it.
  windlass mount /backup/pg /mnt/pg --overlay /srv/changes
      Accept changes to the files, and keep them in /srv/changes. The set is never changed.";

/// `windlass status --help`
pub const STATUS: &str = "\
Examples:
  windlass status
      Show each backup, restore, verification and mount that is running.
  windlass status --json
      The same for a program.";

/// `windlass drill --help`
pub const DRILL: &str = "\
Examples:
  windlass drill shop
      Open the newest backup of the configured database shop, and let the database's own tools
      check it.
  windlass drill /backup/pg --dbname shop --query 'select count(*) > 0 from orders' --expect t
      Ask it, too, and fail if the answer is another one.
  windlass drill /backup/pg --random
      Draw one of the sets, so that old ones are proven, too.

The result is kept in the history: `windlass history` says when a backup was last proven.";

/// `windlass history --help`
pub const HISTORY: &str = "\
Examples:
  windlass history
      Show the newest runs of all databases, and what changed.
  windlass history shop --since 30d
      Show what was run on one database, how fast, where a backup is missing, and the newest proof.
  windlass history --failed --limit 0
      Show every run that failed, was interrupted or was killed.
  windlass history shop --html shop.html
      Write a page with charts of rate, ratio and size.
  windlass history --from /backup/shop
      The history was lost: read it from the sets of a directory.";

/// `windlass close --help`
pub const CLOSE: &str = "\
Examples:
  windlass close yesterday
      Close what `windlass open shop@yesterday --keep yesterday` left open.";

/// `windlass events --help`
pub const EVENTS: &str = "\
Examples:
  windlass backup shop --to /backup --events shop.jsonl
      Record a backup.
  windlass events shop.jsonl
      Show where its time went.
  windlass events shop.jsonl --html shop.html
      Write a page with charts over time.";

/// `windlass completions --help`
pub const COMPLETIONS: &str = "\
Examples:
  windlass completions bash > /etc/bash_completion.d/windlass
      Install the completions for bash.";

/// `windlass archive-push --help`
pub const ARCHIVE_PUSH: &str = "\
Examples:
  archive_command = 'windlass archive-push %p --to /backup/pg'
      In postgresql.conf, with archive_mode = on: keep the log beside the sets.
  archive_command = 'windlass archive-push %p --to /backup/pg --spool /var/lib/postgresql/windlass'
      The same; when the server is behind, store what it will hand over next meanwhile.

The exit code is 0 when the file is durable in the place, or was there before with the same content.
Otherwise the server keeps the file and tries again.";

/// `windlass receive --help`
pub const RECEIVE: &str = "\
Examples:
  windlass receive 'host=/var/run/postgresql' --to /backup/pg --slot windlass --create-slot
      Keep the log beside the sets, as it is written. Ctrl-C ends it.
  windlass receive /srv/shop/shop.db --to /backup/shop
      Keep every transaction of a SQLite database in WAL mode.

The server hears that log is kept only when it is durable in the place. If the session breaks,
Windlass opens another one and goes on where the durable log ends.";

/// `windlass archive-get --help`
pub const ARCHIVE_GET: &str = "\
Examples:
  restore_command = 'windlass archive-get %f %p --from /backup/pg'
      In postgresql.conf of a server that recovers: fetch the log from this place.

Exit codes: 0 the file is there, 1 the place does not have it, 255 the place could not be read, or
its log has a gap there. A server ends its recovery at 1, and stops with an error at 255.";

/// `windlass expire --help`
pub const EXPIRE: &str = "\
Examples:
  windlass expire /backup/pg --keep-full 2 --dry-run
      What would go if the newest two full sets and all that was made since stayed?
  windlass expire shop --keep-within 30d
      Keep each moment of the last 30 days restorable, and remove what is older.
  windlass expire /backup/pg --keep-within 14d --keep-weekly 8 --keep-monthly 12
      Keep each moment of two weeks, and older states by week and by month.

  windlass expire s3://backups/shop --keep-full 2 --grace 2d
      In a bucket: hide what has expired, and remove what was hidden two days ago or earlier.

A set stays if one rule keeps it, or if a set that stays builds on it. The newest full set always
stays, and so does what somebody reads right now. In a bucket nobody sees all readers: sets are
hidden for a day (--grace) before they are removed.";

/// `windlass hold --help`
pub const HOLD: &str = "\
Examples:
  windlass hold /backup/pg --set 1f0c9a2e --reason 'before the upgrade'
      Keep this set, and the sets that it builds on, until somebody releases it.
  windlass hold /backup/pg --set 1f0c9a2e --release
      Let the rules count for it again.";

/// `windlass schedule --help`
pub const SCHEDULE: &str = "\
Examples:
  windlass schedule install --dry-run
      Print the timers and services that the configuration asks for.
  windlass schedule install
      Write them, and start the timers.
  windlass schedule list
      What is due when, and is it installed?";

/// `windlass schedule install --help`
pub const SCHEDULE_INSTALL: &str = "\
Examples:
  windlass schedule install
      As root: write the units, remove those of jobs that are gone, start the timers.
  windlass schedule install --user
      The same for units of your own, without root.

The times stand in the tables [schedule] and [database.NAME.schedule], as in full = \"Sun 02:00\".";

/// `windlass schedule list --help`
pub const SCHEDULE_LIST: &str = "\
Examples:
  windlass schedule list
      Each job with its times, when it is due next, and whether its units are there.";

/// `windlass schedule remove --help`
pub const SCHEDULE_REMOVE: &str = "\
Examples:
  windlass schedule remove
      Stop the timers and remove the units. Backups, history and configuration stay.";

/// `windlass man --help`
pub const MAN: &str = "\
Examples:
  windlass man /usr/local/share/man/man1
      Install the man pages. If there is no such directory, make it first with `mkdir -p`.
      `man windlass-backup` then shows one.";

/// `windlass lab --help`
pub const LAB: &str = "\
Examples:
  windlass lab probe /backup
      What can this disk do?
  windlass lab sweep disk shop.db --to /backup
      How do the number of devices, the transfer size and the buffers change a backup to it?
  windlass lab snapshots load 'host=/var/run/postgresql'
      How long does it take to make a snapshot under load? On a cluster of its own.
  windlass lab rehearse
      How well do plans match real runs?";

/// `windlass lab probe --help`
pub const PROBE: &str = "\
Examples:
  windlass lab probe /backup
      Measure the disk under /backup for a minute, and keep the result as its profile.
  windlass lab probe s3://backups/shop --scratch-bytes 256MiB
      Measure uploads to a bucket and reads from it. It says first what that may cost.
  windlass lab probe --database shop.db
      Measure how fast this machine compresses a sample of the database.";

/// `windlass lab pages --help`
pub const PAGES: &str = "\
Examples:
  windlass lab pages 'host=/var/run/postgresql'
      What does taking pages apart bring for backups of this cluster?
  windlass lab pages shop.db
      The same for a SQLite database.";

/// `windlass lab rehearse --help`
pub const REHEARSE: &str = "\
Examples:
  windlass lab rehearse
      Make backups and restores on 14 kinds of emulated storage, and compare them with plans.
  windlass lab rehearse --only 'slow device' --at-most 0.10,0.25
      Only some of them. Fail if the median error is above 10 % or the worst one above 25 %.";

/// `windlass key --help`
pub const KEY: &str = "\
Examples:
  windlass backup shop --to /backup/shop --encrypt age:age1...
      Only the owner of this recipient can read the set. This host cannot.
  windlass key list /backup/shop
      Who can read each set of this directory?
  windlass key check /backup/shop --key identity-file:/media/safe/restore.key
      Does the key in the safe open all sets? No data is read.
  windlass key rotate /backup/shop --key identity-file:old.key --encrypt age:age1...
      From now on this recipient can read them, too. The sets stay as they are.

`age-keygen -o FILE` makes an identity and prints its recipient. Keep it away from the backups, and
keep a copy: without it nobody can read the sets.";

/// `windlass key list --help`
pub const KEY_LIST: &str = "\
Examples:
  windlass key list /backup/shop --set latest
      Show who can read the newest set, without a key.";

/// `windlass key check --help`
pub const KEY_CHECK: &str = "\
Examples:
  windlass key check /backup/shop --key identity-file:/root/escrow.txt
      Prove that the key from the safe opens the set, without reading its data.";

/// `windlass key rotate --help`
pub const KEY_ROTATE: &str = "\
Examples:
  windlass key rotate /backup/shop --key identity-file:old.txt --encrypt identity-file:new.txt
      Let the new key read the set from now on. The set itself stays as it is.";
