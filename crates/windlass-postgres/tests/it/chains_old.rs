//! Chains by the positions of pages, of versions that say nothing themselves of what changed.

use windlass_engine::media::BackupType::Incr;
use windlass_testkit::installed::{hooked_versions, of_version};
use windlass_testkit::postgres::PrivateCluster;

use crate::chains::{Fixture, bin_of, chain_under_load};

/// Without checksums: hint bits are logged for their own sake.
#[test]
fn every_link_of_a_chain_of_the_oldest_version_is_the_source() {
    let hints = ["wal_log_hints = on"];
    let bin = bin_of(windlass_postgres::MAJOR_OLDEST);
    chain_under_load(&Fixture::new(&bin, &[], &hints));
}

/// A table is cut off, and a copy makes it longer by many pages at once: 16 is the first version
/// that does so. Those that are not filled are zeros without a position, and no log has them. What
/// the base had there must not come back.
#[test]
fn pages_without_a_position_take_the_place_of_those_of_the_base() {
    let bin = of_version(hooked_versions(), 16);
    let fixture = Fixture::new(&bin, &[], &["wal_log_hints = on"]);
    let source = &fixture.source;
    source.sql(
        "postgres",
        "CREATE TABLE t (i int); INSERT INTO t SELECT generate_series(1, 90000)",
    );
    source.sql("postgres", "VACUUM (FREEZE) t");
    fixture.back_up("full", None);
    source.sql("postgres", "DELETE FROM t WHERE i > 60000");
    source.sql("postgres", "VACUUM t");
    source.sql("postgres", "COPY t FROM PROGRAM 'seq 60001 63000'");
    let zeros = source.sql(
        "postgres",
        "SELECT pg_relation_size('t') / 8192 > (SELECT max((ctid::text::point)[0]) + 1 FROM t)",
    );
    assert_eq!(zeros, "t", "there are pages that nobody has filled");
    let one = fixture.back_up("one", Some((Incr, "full")));
    assert_eq!(one.backup_type, Incr);
    assert_eq!(one.facts.changes_from.as_deref(), Some("pages"));
    fixture.mark("end");
    let held = |server: &PrivateCluster| server.sql("postgres", "SELECT count(*), max(i) FROM t");
    assert_eq!(held(source), "63000|63000");
    assert_eq!(held(&fixture.restored_at("one", "end")), "63000|63000");
}
