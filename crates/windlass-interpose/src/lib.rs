//! The write hook: a module that PostgreSQL 14 to 18 loads, and that sees each call by which the
//! server, or a module of it, changes a file.
//!
//!   postmaster --_PG_init--> shared memory mapped, calls of the executable replaced --fork--> all
//!   dlopen ----------------> calls of the new module replaced
//!   pwrite, ftruncate, ... --enter--> preserve the pages that a snapshot needs --> the call itself
//!
//! windlass-layout (`hook`) has the protocol, which the controller outside of the server shares.
//! This crate connects it with the system.
//!
//! Invariants
//! - Nothing here allocates or panics, and nothing waits for longer than three seconds. With a
//!   durable snapshot a page waits while another process syncs its extent, for thirty at most.
//! - The caller sees the result and the error number of its own call, and nothing else.
//! - Only the executable that loads the module at its start is changed, and the server's other
//!   modules: no program that it starts, no other library, no thread of a module.
//! - Without the shared memory nothing is changed at all.
//! - Nothing depends on the helper that copies ahead: without it a durable snapshot costs more.
//!
//! The standard library is linked because the linker needs its panic handler, and to ask which
//! instructions the processor has. Nothing else of it is used.

#![no_std]

extern crate std;

mod ahead;
mod buffers;
mod calls;
mod checksum;
mod elf;
mod graves;
mod guard;
mod module;
mod module_calls;
mod pages;
mod recover;
mod saved;
mod shared;
mod system;
mod untouched;
mod worker;
