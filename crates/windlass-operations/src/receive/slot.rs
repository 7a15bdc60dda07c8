//! The replication slot of a session. It keeps log on the server until that is durable here.
//!
//! Invariant: only a physical slot that keeps nothing any more is made anew, and only if the caller
//! lets us make it.

use windlass_postgres::{Lsn, PostgresError, ReplicationSession, SlotKeeps, Timeline};

use crate::notice::Notice;

/// A slot of this name is there already.
const DUPLICATE_OBJECT: &str = "42710";
/// The slot cannot be used: it is of another kind, or it was lost.
const NOT_IN_STATE: &str = "55000";

/// The slot of a session.
pub(super) struct Slot {
    name: Option<String>,
    /// Whether it has a name that the caller chose, and may be made.
    is_made: bool,
}

impl Slot {
    /// Takes the slot that the caller names, or a temporary one. That one is a help, and not asked
    /// for: without it the server may remove log before it was sent.
    pub(super) fn take(
        session: &mut ReplicationSession,
        (name, is_made): (Option<&str>, bool),
        tell: &dyn Fn(&Notice<'_>),
    ) -> Result<Self, PostgresError> {
        let Some(name) = name else {
            let name = format!("windlass_receive_{}", std::process::id());
            let name = session.create_slot(&name, true).is_ok().then_some(name);
            return Ok(Self {
                name,
                is_made: false,
            });
        };
        let slot = Self {
            name: Some(name.to_owned()),
            is_made,
        };
        if is_made {
            match session.create_slot(name, false) {
                Err(error) if is_of(&error, DUPLICATE_OBJECT) => {
                    // The server lost it: it had to remove log, or nobody has used it.
                    if session.slot(name)? == SlotKeeps::Nothing {
                        renew(session, name, tell)?;
                    }
                }
                made => made?,
            }
        }
        Ok(slot)
    }

    /// Its name, if there is one.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Begins to stream with it.
    pub(super) fn start(
        &self,
        session: &mut ReplicationSession,
        (timeline, from): (Timeline, Lsn),
        tell: &dyn Fn(&Notice<'_>),
    ) -> Result<(), PostgresError> {
        let Err(error) = session.start(self.name(), from, timeline) else {
            return Ok(());
        };
        let made = self.name().filter(|_| self.is_made && is_lost(&error));
        let Some(name) = made else {
            return Err(error);
        };
        // A logical slot is somebody else's.
        if session.slot(name)? == SlotKeeps::Unknown {
            return Err(error);
        }
        renew(session, name, tell)?;
        session.start(Some(name), from, timeline)
    }
}

/// Whether the server refuses the slot, and would refuse it again.
pub(super) fn is_lost(error: &PostgresError) -> bool {
    is_of(error, NOT_IN_STATE)
}

fn is_of(error: &PostgresError, expected: &str) -> bool {
    matches!(error, PostgresError::Refused { code, .. } if code == expected)
}

fn renew(
    session: &mut ReplicationSession,
    name: &str,
    tell: &dyn Fn(&Notice<'_>),
) -> Result<(), PostgresError> {
    session.drop_slot(name)?;
    session.create_slot(name, false)?;
    tell(&Notice::SlotRenewed(name));
    Ok(())
}
