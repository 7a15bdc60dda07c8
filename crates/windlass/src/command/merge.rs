//! `windlass merge`: a chain becomes one full set.

use windlass_operations::merge;

use super::backup::show;
use crate::cli::{Global, Merge};
use crate::exit::{Code, Failure};
use crate::observer::Terminal;
use crate::{output, requests, signals};

pub fn run(global: &Global, arguments: &Merge) -> Result<Code, Failure> {
    let cancel = signals::cancel_on_signals()?;
    let terminal = Terminal::new(global, arguments.watching.details, arguments.stats);
    let caller = requests::caller(global, terminal);
    let sets = requests::sets(global, &arguments.set, &arguments.choice);
    let request = requests::merge(arguments)?;
    let (outcome, ending) = merge(&caller, (&sets, &request), &cancel)?;
    show(global, arguments.watching.details, &outcome);
    Ok(output::degraded(ending.into()))
}
