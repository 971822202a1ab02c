//! The messages that the lane has not forgotten: put down with rising numbers, and mostly taken away in that order.

use std::{collections::VecDeque, sync::Arc};

use lanekeeper_core::record::Assignment;
use lanekeeper_nats::lane::Delivery;

use crate::message::Message;

/// A message that the lane has not forgotten yet.
pub(super) struct Known {
    pub(super) delivery: Delivery,
    pub(super) assignment: Arc<Assignment>,
}

impl Known {
    /// As the handler sees it.
    pub(super) fn message(&self, attempt: u64) -> Message {
        Message::new(self.delivery.clone(), Arc::clone(&self.assignment), attempt)
    }
}

/// Messages by number, from 1.
#[derive(Default)]
pub(super) struct Shelf {
    /// The number of the first place.
    first: u64,
    places: VecDeque<Option<Known>>,
}

impl Shelf {
    /// Puts a message down; its number.
    pub(super) fn put(&mut self, known: Known) -> u64 {
        self.place(Some(known))
    }

    /// A number that no message on the shelf has or gets.
    pub(super) fn number(&mut self) -> u64 {
        self.place(None)
    }

    fn place(&mut self, known: Option<Known>) -> u64 {
        if self.first == 0 {
            self.first = 1;
        }
        self.places.push_back(known);
        self.first + self.places.len() as u64 - 1
    }

    pub(super) fn get(&self, message: u64) -> Option<&Known> {
        self.places.get(self.index(message)?)?.as_ref()
    }

    fn index(&self, message: u64) -> Option<usize> {
        usize::try_from(message.checked_sub(self.first)?).ok()
    }

    /// The message with this stream sequence that was put down last.
    pub(super) fn latest(&self, sequence: u64) -> Option<&Known> {
        self.places.iter().rev().flatten().find(|known| known.delivery.sequence == sequence)
    }

    pub(super) fn forget(&mut self, message: u64) {
        if let Some(place) = self.index(message).and_then(|index| self.places.get_mut(index)) {
            *place = None;
        }
        while self.places.front().is_some_and(Option::is_none) {
            self.places.pop_front();
            self.first += 1;
        }
    }
}
