//! What becomes of a worker's effects.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{MESSAGES, World};
use crate::{
    lane::{
        Effect, Event, Note,
        tests::{
            park_stream::ParkUp,
            rig::{WAIT, key_of},
            server::Up,
        },
    },
    order::{Order, Verb},
    record::ExhaustedPolicy,
};

impl World {
    pub(super) fn carry_out(&mut self, index: usize, effect: &Effect) {
        if let Effect::Note(Note::Dropped { sequence, .. } | Note::ParkedDropped { sequence, .. }) = effect {
            self.completed.insert(*sequence);
        }
        if let Effect::Note(Note::Skipped { sequence, .. }) = effect {
            let key = key_of(self.subject(*sequence));
            let covers = |order: &Order| order.verb == Verb::Skip && order.covers(*sequence, &key);
            assert!(self.ordered.iter().any(covers), "{sequence}: nobody ordered that");
            if matches!(self.policy, ExhaustedPolicy::DeadLetter { .. }) {
                assert!(self.server.dead.contains(sequence), "{sequence} is nowhere");
            }
            self.completed.insert(*sequence);
        }
        match effect {
            Effect::Claim { incarnation } => {
                let (incarnation, granted) = (*incarnation, self.claim.is_none_or(|holder| holder == index));
                if granted {
                    self.claim = Some(index);
                }
                return self.tell(index, Event::Claimed { incarnation, granted });
            }
            Effect::Unclaim { .. } => drop(self.claim.take_if(|holder| *holder == index)),
            Effect::ParkOrderDone { id, .. } => {
                self.claim.take_if(|holder| *holder == index);
                self.park_orders.retain(|order| order.id != *id);
            }
            _ => {}
        }
        let key_of: Option<BTreeSet<u64>> = match effect {
            Effect::ListParked { key, .. } => {
                Some((1..=MESSAGES).filter(|sequence| self.key(*sequence) == *key).collect())
            }
            _ => None,
        };
        let worker = &mut self.workers[index];
        let sequence = |message: u64| worker.sequences[&message];
        let up = match effect {
            Effect::Pull(request) => Up::Pull(request.clone()),
            Effect::Renew(renewal) => Up::Renew(renewal.clone()),
            Effect::Unpin => Up::Unpin,
            Effect::Ack { message, token, pull } => {
                Up::Ack { sequence: sequence(*message), token: *token, pull: pull.clone() }
            }
            Effect::Nak { message, token, delay } => {
                Up::Nak { sequence: sequence(*message), token: *token, delay: *delay }
            }
            Effect::Progress { message, token } => {
                Up::Progress { sequence: sequence(*message), token: *token }
            }
            Effect::DeadLetter { message, token, until, .. } => {
                assert!(self.now < *until);
                Up::Publish { sequence: sequence(*message), token: *token }
            }
            Effect::Park { message, token, until, .. } => {
                assert!(self.now < *until);
                Up::Park(ParkUp::Store { sequence: sequence(*message), token: *token, until: *until })
            }
            Effect::LoadParked { token } => Up::Park(ParkUp::Load { token: *token }),
            Effect::ListParked { token, .. } => {
                Up::Park(ParkUp::List { token: *token, of: key_of.unwrap_or_default() })
            }
            Effect::FetchParked { token, stored } => {
                Up::Park(ParkUp::Fetch { token: *token, stored: *stored })
            }
            Effect::DeleteParked { token, stored, until } => {
                assert!(self.now < *until);
                Up::Park(ParkUp::Delete { token: *token, stored: stored.clone() })
            }
            Effect::Inspect { token } if worker.connected => Up::Inspect { token: *token, asked: self.now },
            Effect::Inspect { token } => return self.tell(index, Event::InspectFailed { token: *token }),
            Effect::Join { incarnation } => {
                let incarnation = *incarnation;
                self.tell(index, Event::Orders { incarnation, orders: self.orders.clone() });
                self.tell(index, Event::Joined { incarnation, retiring: false, excused: None });
                return self.tell_park_orders(index);
            }
            Effect::Contend { time, .. } => {
                assert_eq!(*time, WAIT);
                if let Some(leases) = &mut self.leases {
                    leases.again(index);
                    worker.told = None;
                }
                return;
            }
            Effect::Leave { incarnation, .. } => {
                self.owner.take_if(|(owner, _)| *owner == index);
                if let Some(leases) = &mut self.leases {
                    leases.processes[index].lessee.leave();
                }
                self.claim.take_if(|holder| *holder == index);
                return self.tell(index, Event::Left { incarnation: *incarnation });
            }
            Effect::Handle { message, .. } => {
                let sequence = sequence(*message);
                worker.running = Some(sequence);
                worker.running_parked = false;
                worker.running_with = worker.pins.get(message).cloned();
                self.one_at_a_time();
                return self.check_start(sequence, false);
            }
            Effect::HandleParked { message, .. } => {
                let sequence = sequence(*message);
                worker.running = Some(sequence);
                worker.running_parked = true;
                worker.running_with = None;
                self.one_of_a_key();
                return self.check_start(sequence, true);
            }
            Effect::List { .. } | Effect::Acks { .. } | Effect::AckGone { .. } => {
                unreachable!("of a pipelined lane")
            }
            Effect::Cancel => {
                worker.running = None;
                worker.running_with = None;
                return;
            }
            Effect::Exit => {
                worker.exited = true;
                return;
            }
            Effect::Own { pin, .. } => {
                worker.noted = Some(Arc::clone(pin));
                self.owner = Some((index, Arc::clone(pin)));
                return;
            }
            Effect::Report(report) => {
                worker.stalled = report.stalled.is_some();
                let alarm = worker.stalled && self.never_stalled;
                assert!(!alarm, "worker {index}: {report:?}\n{}", self.history.join("\n"));
                return;
            }
            Effect::Breaker { .. }
            | Effect::Claim { .. }
            | Effect::Unclaim { .. }
            | Effect::ParkOrderDone { .. }
            | Effect::Excuse { .. }
            | Effect::Forget { .. }
            | Effect::Note(_) => return,
            Effect::OrderBegun { id, .. } => {
                if !self.forgetful {
                    let begun = self.orders.iter_mut().filter(|order| order.id == *id);
                    begun.for_each(|order| order.begun = true);
                }
                return;
            }
            Effect::OrderEnded { result, .. } => {
                if !self.forgetful {
                    self.orders.retain(|order| order.id != result.id);
                }
                return;
            }
        };
        if worker.connected {
            let at = (self.now + worker.delay).max(worker.up.back().map_or(Duration::ZERO, |last| last.0));
            worker.up.push_back((at, up));
        }
    }
}
