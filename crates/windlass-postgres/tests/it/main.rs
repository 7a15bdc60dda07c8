//! Real clusters, backed up while they run, restored, started and judged by PostgreSQL's own tools.

mod checksums;
mod live;
mod places;
mod refusals;
mod standby;
mod support;
