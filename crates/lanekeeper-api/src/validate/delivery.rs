//! How lanes get their messages.

use lanekeeper_core::record;

use crate::{
    invalid::{Findings, Invalid},
    spec::{self, DeliveryMode, Ownership},
};

const WINDOW: &str = "spec.delivery.window";
const MAX_BATCH: &str = "spec.delivery.maxBatch";
const MAX_WAIT: &str = "spec.delivery.maxWaitMilliseconds";

/// The delivery.
pub(super) fn check(
    given: &spec::Delivery,
    ownership: Ownership,
    findings: &mut Findings,
) -> record::Delivery {
    if given.window.is_some() && given.mode == DeliveryMode::Serial {
        findings.add(Invalid::forbidden(WINDOW, "must be absent if spec.delivery.mode is Serial"));
    }
    let of_batches =
        [(MAX_BATCH, given.max_batch.is_some()), (MAX_WAIT, given.max_wait_milliseconds.is_some())];
    for (field, _) in of_batches.iter().filter(|(_, is_given)| *is_given && given.mode != DeliveryMode::Batch)
    {
        findings.add(Invalid::forbidden(*field, "must be absent unless spec.delivery.mode is Batch"));
    }
    if given.mode == DeliveryMode::Serial {
        return record::Delivery::Serial;
    }
    if ownership == Ownership::Lease {
        let allowed = "must be Serial where spec.consumer.ownership is Lease: the other modes need a pin";
        findings.add(Invalid::value("spec.delivery.mode", format!("{:?}", given.mode), allowed));
    }
    let size = i64::from(given.window.unwrap_or(spec::DEFAULT_WINDOW));
    let window = findings.bound(WINDOW, size, 2, 1024);
    if given.mode == DeliveryMode::Pipelined {
        return record::Delivery::Pipelined { window };
    }
    let most = given.max_batch.map_or(size, i64::from);
    record::Delivery::Batch {
        window,
        most: findings.bound(MAX_BATCH, most, 1, window),
        wait_milliseconds: findings.bound(MAX_WAIT, given.max_wait_milliseconds.unwrap_or(0), 0, 60_000),
    }
}
