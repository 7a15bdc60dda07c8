//! `windlass extract`: single files of a set, read by their frames alone.

use crate::cli::{Extract, Global};
use crate::exit::{Code, Failure};

pub fn run(_global: &Global, arguments: &Extract) -> Result<Code, Failure> {
    let _set = super::open(std::slice::from_ref(&arguments.set))?;
    Err(Failure::new(
        Code::Failed,
        "extract waits for the image crate",
        "Use restore.",
    ))
}
