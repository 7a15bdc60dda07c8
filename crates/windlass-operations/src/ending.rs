//! How an operation ended, in one table. The numbers never change: programs decide by them.

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Done.
    Done,
    /// It failed, and changed nothing that existed before.
    Failed,
    /// What was asked for cannot be understood.
    Usage,
    /// Done, with warnings.
    Warnings,
    /// Damage was found in a backup set.
    Damage,
    /// Interrupted.
    Interrupted,
}

impl Ending {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::Warnings,
        Self::Damage,
        Self::Interrupted,
    ];

    /// The number with which a process ends that did this operation.
    pub fn number(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Warnings => 3,
            Self::Damage => 4,
            Self::Interrupted => 130,
        }
    }

    /// The ending for a number with which a process ended.
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.number() == number)
    }

    /// The same ending, if something beside the operation's purpose went wrong.
    pub fn degraded(self) -> Self {
        match self {
            Self::Done => Self::Warnings,
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_never_change() {
        let numbers = Ending::ALL.map(Ending::number);
        assert_eq!(numbers, [0, 1, 2, 3, 4, 130]);
        assert_eq!(numbers.map(Ending::of_number), Ending::ALL.map(Some));
        assert_eq!(Ending::of_number(5), None);
    }
}
