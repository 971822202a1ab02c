//! Groups of lanes that hang together by their keys, and what is to be counted for each. Pure.

use std::{collections::BTreeMap, ops::Add};

use lanekeeper_core::{
    record::LaneRecord,
    share::{Share, covers},
    stream::Retention,
};
use serde::Serialize;

use super::Added;
use crate::lane::{Lane, Position};

/// A number of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Count {
    pub(crate) messages: u64,
    /// Whether it is that many; otherwise it is at most that many.
    pub(crate) exact: bool,
}

impl Count {
    pub(super) const NONE: Self = Self::exactly(0);

    pub(crate) const fn exactly(messages: u64) -> Self {
        Self { messages, exact: true }
    }

    pub(crate) const fn at_most(messages: u64) -> Self {
        // At most none is none.
        Self { messages, exact: messages == 0 }
    }

    /// Without those. Of a bound nothing is taken away that is itself a bound.
    fn without(self, part: Self) -> Self {
        if part.exact {
            return Self { messages: self.messages.saturating_sub(part.messages), ..self };
        }
        Self::at_most(self.messages)
    }
}

impl Add for Count {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { messages: self.messages + other.messages, exact: self.exact && other.exact }
    }
}

/// Stored messages of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Range {
    pub(crate) share: Share,
    /// With a sequence above this.
    pub(crate) after: u64,
    /// And not above this, when it is given.
    pub(crate) up_to: Option<u64>,
}

/// What becomes of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Kind {
    /// One lane becomes several.
    Split,
    /// Several become one.
    Merge,
    /// Several become several others: a change that is under way, or that leads back.
    Regroup,
    /// One becomes another with the same keys.
    Succeed,
    /// Keys that no lane has.
    Begin,
}

/// Lanes that hang together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Group {
    pub(crate) kind: Kind,
    pub(crate) before: Vec<Before>,
    pub(crate) after: Vec<After>,
}

/// A lane that ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Before {
    #[serde(flatten)]
    pub(crate) lane: Lane,
}

/// A lane that begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct After {
    pub(crate) partition: u32,
    #[serde(flatten)]
    pub(crate) share: Share,
    /// Messages that will wait in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waiting: Option<Count>,
    /// Of them, those that are in another partition now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) arriving: Option<Count>,
    /// Messages that it will acknowledge without the handler, because a predecessor settled them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) skipped: Option<Count>,
    #[serde(skip)]
    asks: Option<Asks>,
}

/// What the numbers of a lane are made from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Asks {
    /// All that it will be given; `None` when that is what its predecessors have not settled.
    given: Option<Range>,
    skipped: Vec<Range>,
    arriving: Vec<Arriving>,
    /// What its predecessors have not settled: no more than this waits.
    unsettled: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arriving {
    /// A whole lane.
    All(Option<u64>),
    /// A part of one.
    Part { range: Range, of: Option<u64> },
}

impl After {
    pub(super) fn questions(&self) -> Vec<Range> {
        let Some(asks) = &self.asks else { return Vec::new() };
        let parts = asks.arriving.iter().filter_map(|one| match one {
            Arriving::All(_) => None,
            Arriving::Part { range, .. } => Some(*range),
        });
        parts.chain(asks.given).chain(asks.skipped.iter().copied()).collect()
    }

    pub(super) fn answer(&mut self, counted: &BTreeMap<Range, Count>) {
        let Some(asks) = &self.asks else { return };
        let of =
            |range: &Range, bound: Option<u64>| counted.get(range).copied().or(bound.map(Count::at_most));
        let skipped = asks.skipped.iter().try_fold(Count::NONE, |sum, range| {
            // Sequences are no messages, but there are no more messages than sequences.
            Some(sum + of(range, Some(range.up_to?.saturating_sub(range.after)))?)
        });
        self.waiting = match asks.given.map(|given| counted.get(&given).copied()) {
            None => asks.unsettled.map(Count::exactly),
            Some(Some(given)) => skipped.map(|skipped| given.without(skipped)),
            Some(None) => asks.unsettled.map(Count::at_most),
        };
        self.arriving = asks.arriving.iter().try_fold(Count::NONE, |sum, one| match one {
            Arriving::All(all) => Some(sum + Count::exactly((*all)?)),
            Arriving::Part { range, of: all } => Some(sum + of(range, *all)?),
        });
        self.skipped = skipped;
    }
}

/// Groups, by their lowest partition.
pub(super) fn groups(mut before: Vec<Lane>, mut after: Vec<Added>, retention: Retention) -> Vec<Group> {
    let mut groups = Vec::new();
    while let Some(first) = before.first().map(|lane| lane.share).or(after.first().map(|one| one.share)) {
        let mut cover = vec![first];
        // Shares are nested, so that the widest of a group overlaps all of it; whoever joins may be wider.
        loop {
            let size = cover.len();
            let joins = |share: Share, cover: &[Share]| {
                !cover.contains(&share) && cover.iter().any(|one| one.overlaps(share))
            };
            for share in before.iter().map(|lane| lane.share).chain(after.iter().map(|one| one.share)) {
                if joins(share, &cover) {
                    cover.push(share);
                }
            }
            if cover.len() == size {
                break;
            }
        }
        let (in_before, rest) = before.into_iter().partition(|lane| cover.contains(&lane.share));
        before = rest;
        let (in_after, rest) = after.into_iter().partition(|one| cover.contains(&one.share));
        after = rest;
        groups.push(group(in_before, in_after, retention));
    }
    let lowest = |group: &Group| {
        let before = group.before.iter().map(|one| one.lane.partition);
        before.chain(group.after.iter().map(|one| one.partition)).min()
    };
    groups.sort_by_key(lowest);
    groups
}

fn group(before: Vec<Lane>, after: Vec<Added>, retention: Retention) -> Group {
    let kind = match (before.len(), after.len()) {
        (0, _) => Kind::Begin,
        (1, 1) if before[0].share == after[0].share => Kind::Succeed,
        (1, _) => Kind::Split,
        (_, 1) => Kind::Merge,
        _ => Kind::Regroup,
    };
    let after = after
        .into_iter()
        .map(|added| After {
            partition: added.share.partition(),
            share: added.share,
            waiting: None,
            arriving: None,
            skipped: None,
            asks: added.lane.as_ref().map(|lane| asks(lane, &before, retention)),
        })
        .collect();
    Group { kind, before: before.into_iter().map(|lane| Before { lane }).collect(), after }
}

fn asks(lane: &LaneRecord, before: &[Lane], retention: Retention) -> Asks {
    let from = lane.start.saturating_sub(1);
    let predecessors: Vec<&Lane> = before.iter().filter(|one| one.share.overlaps(lane.share)).collect();
    let unsettled = |lane: &Lane| lane.position.map(Position::unsettled);
    let arriving = predecessors.iter().filter(|one| one.partition != lane.share.partition()).map(|one| {
        if lane.share.includes(one.share) {
            return Arriving::All(unsettled(one));
        }
        let after =
            if retention == Retention::WorkQueue { 0 } else { one.position.map_or(from, |at| at.floor) };
        Arriving::Part { range: Range { share: lane.share, after, up_to: None }, of: unsettled(one) }
    });
    let inside: Vec<Share> = predecessors.iter().map(|one| one.share).collect();
    let whole = covers(&inside, lane.share) && inside.iter().all(|share| lane.share.includes(*share));
    Asks {
        given: (!whole).then_some(Range { share: lane.share, after: from, up_to: None }),
        skipped: skipped(lane),
        arriving: arriving.collect(),
        unsettled: predecessors.iter().try_fold(0, |sum, one| Some(sum + unsettled(one)?)),
    }
}

/// What the floors of a lane cover, each message in one range only: a floor counts from where that of a wider share
/// ends.
fn skipped(lane: &LaneRecord) -> Vec<Range> {
    let from = lane.start.saturating_sub(1);
    // A wider floor than the lane is one for the lane's own share.
    let narrowed = |share: Share| if share.includes(lane.share) { lane.share } else { share };
    let mut floors: Vec<(Share, u64)> =
        lane.floors.iter().map(|floor| (narrowed(floor.share), floor.sequence)).collect();
    floors.sort_by_key(|(share, sequence)| (share.modulus, *share, std::cmp::Reverse(*sequence)));
    floors.dedup_by_key(|(share, _)| *share);
    let begins = |share: Share| {
        let wider = floors.iter().filter(|(other, _)| *other != share && other.includes(share));
        wider.map(|(_, sequence)| *sequence).fold(from, u64::max)
    };
    let ranges = floors.iter().map(|(share, sequence)| (*share, begins(*share), *sequence));
    ranges
        .filter(|(_, after, up_to)| after < up_to)
        .map(|(share, after, up_to)| Range { share, after, up_to: Some(up_to) })
        .collect()
}

#[cfg(test)]
mod tests {
    use lanekeeper_core::record::{Floor, LaneState, Mode, Ownership};

    use super::*;

    fn share(modulus: u32, residue: u32) -> Share {
        Share::new(modulus, residue).unwrap()
    }

    #[test]
    fn what_several_floors_cover_is_counted_once() {
        let floor = |modulus, residue, sequence| Floor { share: share(modulus, residue), sequence };
        let lane = LaneRecord {
            incarnation: 9,
            share: share(2, 0),
            state: LaneState::Created,
            ownership: Ownership::Pin,
            mode: Mode::Serial,
            start: 11,
            // The whole up to 20, one quarter up to 40, the other up to 15, and an eighth of the first up to 50.
            floors: vec![floor(1, 0, 20), floor(4, 0, 40), floor(4, 2, 15), floor(8, 4, 50)],
            opened: false,
            fenced: false,
            fence_milliseconds: 0,
            checkpoint: 10,
        };
        let range = |modulus, residue, after, up_to| Range {
            share: share(modulus, residue),
            after,
            up_to: Some(up_to),
        };
        assert_eq!(skipped(&lane), [range(2, 0, 10, 20), range(4, 0, 20, 40), range(8, 4, 40, 50)]);
    }
}
