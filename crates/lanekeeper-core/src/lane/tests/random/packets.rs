//! What comes from the server to a worker.

use super::*;

impl World {
    pub(super) fn receive(&mut self, index: usize, down: &Down) {
        match down.clone() {
            Down::Message { pull, sequence, deliveries, pin } => {
                self.messages += 1;
                let (message, subject) = (self.messages, self.subject(sequence).to_owned());
                self.workers[index].pins.insert(message, Arc::clone(&pin));
                self.workers[index].sequences.insert(message, sequence);
                let pin = Some(&*pin).filter(|pin| !pin.is_empty());
                let delivered = Delivered {
                    message,
                    pull,
                    sequence,
                    consumer_sequence: message,
                    deliveries,
                    subject: &subject,
                    pin,
                };
                self.tell(index, Event::Delivered(delivered));
            }
            Down::Expired { pull } => {
                self.tell(index, Event::PullEnded { pull, status: PullStatus::Expired });
            }

            Down::Heartbeat { pull } => self.tell(index, Event::Heartbeat { pull }),
            Down::Stored { token } => self.tell(index, Event::Stored { token }),
            Down::NotStored { token } => {
                self.tell(index, Event::NotStored { token, reason: "full".into() });
            }
            Down::Park(down) => self.receive_of_park(index, down),
            Down::Answer { token } => self.tell(index, Event::Answered { token }),
            Down::Facts { token, asked, waiting, delivered, out, pin } => {
                let facts = ConsumerFacts {
                    shortest_wait: WAIT,
                    max_ack_pending: 1,
                    ack_pending: out,
                    pin: pin.clone(),
                    floor: delivered - out,
                    ..ConsumerFacts::default()
                };
                self.tell(index, Event::Consumer { token, facts });
                let backlog = Backlog {
                    incarnation: 1,
                    asked,
                    asked_seconds: asked.as_secs(),
                    waiting,
                    out,
                    delivered,
                    floor: delivered - out,
                    paused: false,
                    pin,
                    siblings: self.siblings(index),
                    noted: self.owner.as_ref().map(|(_, pin)| Arc::clone(pin)),
                    noted_by_sibling: self.owner.as_ref().is_some_and(|(owner, _)| *owner != index),
                };
                self.tell(index, Event::Backlog(Box::new(backlog)));
            }
            Down::WrongPin { pull } => {
                self.tell(index, Event::PullEnded { pull, status: PullStatus::WrongPin });
            }
        }
    }

    fn receive_of_park(&mut self, index: usize, down: ParkDown) {
        match down {
            ParkDown::Stored { token } => self.tell(index, Event::Stored { token }),
            ParkDown::NotStored { token } => {
                self.tell(index, Event::NotStored { token, reason: "full".into() });
            }
            ParkDown::Keys { token, parked } => {
                let keys = parked.iter().map(|sequence| self.key(*sequence)).collect();
                self.tell(index, Event::ParkedKeys { token, keys });
            }
            ParkDown::List { token, parked } => {
                let message = |(stored, sequence): &(u64, u64)| ParkedMessage {
                    fence: Fence { stream_incarnation: 1, sequence: *sequence },
                    stored: vec![*stored],
                };
                self.tell(
                    index,
                    Event::ParkedListed { token, messages: parked.iter().map(message).collect() },
                );
            }
            ParkDown::Fetched { token, sequence } => {
                let message = sequence.map(|sequence| {
                    self.messages += 1;
                    self.workers[index].sequences.insert(self.messages, sequence);
                    self.messages
                });
                self.tell(index, Event::ParkedFetched { token, message });
            }
            ParkDown::Deleted { token } => self.tell(index, Event::ParkedDeleted { token }),
        }
    }
}
