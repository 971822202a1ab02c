//! The handover with the production lane at work in each pod: [`lanekeeper_core::plan`] and [`lanekeeper_core::lane`]
//! together, in the same world as the abstract workers beside this, which reach larger runs.
//!
//! - [`pod`]: a lane with its handler and its requests; [`server`], [`pins`]: what consumers and bucket do with these;
//!   [`state`]: one moment of all of it, numbered anew so that equal moments are one; [`time`]: how time passes;
//!   [`actions`]: everything that can happen next; [`run`]: what a run has.
//! - `model`: every state of small runs; `walks`: random walks; `mutants`: each rule of the lane broken on purpose.

mod actions;
mod calm;
mod drive;
mod happen;
mod model;
mod mutants;
mod pins;
mod pod;
mod run;
mod server;
mod state;
mod time;
mod walks;
