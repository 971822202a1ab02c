//! The rules of the lane in virtual time, each as a story; and all of them under random trouble.

mod park_stream;
mod random;
mod random_window;
mod rig;
mod rules_batch;
mod rules_deadline;
mod rules_exhausted;
mod rules_failing;
mod rules_lease;
mod rules_membership;
mod rules_orders;
mod rules_park;
mod rules_pin;
mod rules_settling;
mod rules_window;
mod rules_witness;
mod server;
mod window_server;
