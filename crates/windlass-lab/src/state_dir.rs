//! The state directory: where profiles and predictions are kept between runs.
//!
//! It is /var/lib/windlass for root, and $XDG_STATE_HOME/windlass or ~/.local/state/windlass for
//! others. If WINDLASS_STATE_DIR is set, that directory is used.

use std::path::{Path, PathBuf};

/// What decides where the state directory is.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// WINDLASS_STATE_DIR.
    pub named: Option<PathBuf>,
    /// Whether root started the process.
    pub is_root: bool,
    /// XDG_STATE_HOME.
    pub state_home: Option<PathBuf>,
    /// HOME.
    pub home: Option<PathBuf>,
}

impl Surroundings {
    /// The values of this process.
    pub fn of_process() -> Self {
        let path = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            named: path("WINDLASS_STATE_DIR").map(PathBuf::from),
            is_root: rustix::process::geteuid().is_root(),
            state_home: path("XDG_STATE_HOME").map(PathBuf::from),
            home: path("HOME").map(PathBuf::from),
        }
    }

    /// The state directory; `None` for a user without a home.
    pub fn directory(&self) -> Option<PathBuf> {
        if let Some(named) = &self.named {
            return Some(named.clone());
        }
        if self.is_root {
            return Some(Path::new("/var/lib/windlass").to_owned());
        }
        // The XDG specification says that a relative path there is to be ignored.
        let state = self.state_home.clone().filter(|path| path.is_absolute());
        let state = state.or_else(|| Some(self.home.as_ref()?.join(".local/state")));
        state.map(|state| state.join("windlass"))
    }
}

/// The state directory of this process.
pub fn state_directory() -> Option<PathBuf> {
    Surroundings::of_process().directory()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_a_place_of_its_own_and_users_have_theirs() {
        let mut around = Surroundings {
            named: None,
            is_root: true,
            state_home: Some("/x/state".into()),
            home: Some("/home/ann".into()),
        };
        let at = |around: &Surroundings| around.directory().unwrap();
        assert_eq!(at(&around), Path::new("/var/lib/windlass"));
        around.is_root = false;
        assert_eq!(at(&around), Path::new("/x/state/windlass"));
        around.state_home = Some("relative".into());
        assert_eq!(at(&around), Path::new("/home/ann/.local/state/windlass"));
        around.home = None;
        assert_eq!(around.directory(), None);
        around.named = Some("/elsewhere".into());
        assert_eq!(at(&around), Path::new("/elsewhere"));
    }
}
