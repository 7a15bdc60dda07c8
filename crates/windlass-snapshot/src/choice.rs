//! The choice among the methods.

use std::path::Path;

use crate::error::SnapshotError;
use crate::maker::Maker;
use crate::method::Method;
use crate::obstacle::Obstacle;

/// A method that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOver {
    /// The method.
    pub method: Method,
    /// Why.
    pub obstacle: Obstacle,
}

/// The method that is taken, and those before it that cannot be.
pub struct Chosen {
    /// It makes the snapshot.
    pub maker: Box<dyn Maker>,
    /// The cheaper methods.
    pub passed_over: Vec<PassedOver>,
}

/// Chooses the first of these makers that can make a snapshot in this directory, or the one that is
/// asked for.
pub fn choose(
    makers: Vec<Box<dyn Maker>>,
    asked: Option<Method>,
    into: &Path,
) -> Result<Chosen, SnapshotError> {
    let mut passed_over: Vec<PassedOver> = Vec::new();
    for maker in makers {
        let method = maker.method();
        if asked.is_some_and(|asked| asked != method) {
            continue;
        }
        match maker.obstacle(into)? {
            None => return Ok(Chosen { maker, passed_over }),
            Some(obstacle) => passed_over.push(PassedOver { method, obstacle }),
        }
    }
    let (method, obstacle) = match passed_over.pop() {
        Some(last) => (last.method, last.obstacle),
        None => (asked.unwrap_or(Method::Copy), Obstacle::OtherDatabase),
    };
    Err(SnapshotError::Method { method, obstacle })
}
