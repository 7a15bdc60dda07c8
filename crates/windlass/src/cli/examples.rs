//! What `--help` shows below the options: commands to copy, and what they are good for.

/// `windlass --help`
pub const WINDLASS: &str = "\
Examples:
  windlass backup shop.db --to /backup/shop
      Back up a live SQLite database; writers go on meanwhile.
  windlass backup 'host=/var/run/postgresql' --to /disk1/pg --to /disk2/pg
      Back up a whole PostgreSQL cluster, striped over two disks.
  windlass backup 'host=/var/run/postgresql' --to nul --compress none
      Write nothing: measure how fast the database can be read.
  windlass restore /disk1/pg /disk2/pg --into /var/lib/postgresql/15/restored
      Restore it. The new data directory starts as it is.
  windlass open /disk1/pg -- psql
      Open it as a server of its own, without restoring it.
  windlass verify /backup/shop
      Read and check every byte of a set.

A DATABASE is a path to a SQLite file, a libpq connection string or URI, or a name from
/etc/windlass/windlass.toml. A DEVICE is a file, a directory (a stripe is named in it) or `nul`.
A SET is any one of its stripes, or the directory that holds them.

Every option may also be given as WINDLASS_OPTION in the environment, or in the configuration
under [command]; the command line wins.

Exit codes: 0 done, 1 failed, 2 usage, 3 done with warnings, 4 damage found, 130 interrupted.";

/// `windlass backup --help`
pub const BACKUP: &str = "\
Examples:
  windlass backup shop.db --to /disk1 --to /disk2
      Two stripes, written at the same time; in each directory a file is named for its stripe.
  windlass backup 'host=/var/run/postgresql' --to /backup/pg --compress auto
      Compress harder where the device is slow, and less where the cores are.
  windlass backup 'host=/var/run/postgresql' --to /backup/pg --max-rate 100MiB
      Leave the rest of the disk to the database.
  windlass backup shop.db --to nul --compress none
      Keep nothing: how fast can it be read?

The set exists when the run has ended with `sealed`; an interrupted one leaves nothing. The verdict
names what bound the run, and what would move that limit.";

/// `windlass restore --help`
pub const RESTORE: &str = "\
Examples:
  windlass restore /backup/shop --into /srv/shop/shop.db
      A SQLite database, from the one set in a directory. --force replaces the one that is there.
  windlass restore /disk1/pg /disk2/pg --into /var/lib/postgresql/15/restored
      A PostgreSQL cluster into a new or empty directory, from stripes that lie apart.
  windlass restore /backup/pg --into /srv/new/data --tablespace-map /fast=/srv/new/fast
      The same, with the tablespace that was in /fast elsewhere.

Every byte is checked before it is written. A cluster's directory does not start before all of it is
durable; what to do next is printed at the end.";

/// `windlass verify --help`
pub const VERIFY: &str = "\
Examples:
  windlass verify /backup/shop
      Read all of it, check all of it; every damaged place is listed with what it costs.
  windlass verify --quick /backup/shop
      Seals, footers and indexes only: a missing or truncated stripe, in seconds.
  windlass verify --open /backup/pg
      Then open it as a server, and have PostgreSQL check every table and index.

The exit code is 4 when something is damaged.";

/// `windlass info --help`
pub const INFO: &str = "\
Examples:
  windlass info /backup
      Every set in a directory: what it is of, when it was made, where its stripes are.
  windlass info --files /backup/shop-20261121T101500Z-5e849c97.1of2.windlass
      The set of this stripe, with a list of its files.

Of a set that is not whole it says what is missing, and how much is sound; the exit code is 4.";
