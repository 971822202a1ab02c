//! The journal: one entry per handling, and the checker that finds what went wrong in it.
//!
//! Workers publish an [`Entry`] for each handling when a set asks for it. [`Checker`] is fed with entries of any
//! number of pods, in any order, and says whether every key was handled in order. It is what `kubectl lanes audit`
//! runs, and the oracle of the tests, so it must know nothing of how the product works: no lanes, no partitions, no
//! consumers. Of this crate it uses the [fence](crate::fence) and nothing else.
//!
//! A journal is a witness, not a ledger. An entry may be missing although its message was handled (a process was
//! killed between the handling and the publishing, nobody stored the subject); an entry that is there was written by
//! the process that ran the handler. So what the checker finds is certain as far as the entries are, and a message
//! without an entry is a gap in the journal first of all.

mod checker;
mod entry;
mod numbers;
mod order;
mod report;
#[cfg(test)]
mod tests;

pub use checker::{Checker, Options};
pub use entry::{Ending, Entry, EntryError, subject};
pub use report::{Findings, Report};
