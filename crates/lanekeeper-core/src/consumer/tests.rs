//! Each field of a consumer that matters, changed on its own.

use super::*;

fn spec() -> ConsumerSpec {
    ConsumerSpec {
        name: "lk_shop_orders_1_7".into(),
        filter: "lanes.ORDERS.1.>".into(),
        start: Some(5),
        delivery: Delivery::Serial,
        ack_wait_milliseconds: 15_000,
        pinned: true,
        replicas: Some(1),
        metadata: BTreeMap::from([(metadata::SET.to_owned(), "shop/orders".to_owned())]),
    }
}

fn as_specified() -> ConsumerFound {
    ConsumerFound {
        name: "lk_shop_orders_1_7".into(),
        filters: vec!["lanes.ORDERS.1.>".into()],
        deliver_policy: "by_start_sequence".into(),
        start: Some(5),
        ack_policy: "explicit".into(),
        push: false,
        max_ack_pending: 1,
        max_deliver: -1,
        ack_wait_milliseconds: 15_000,
        backoff_milliseconds: Vec::new(),
        inactive_threshold_milliseconds: 0,
        headers_only: false,
        replay_policy: "instant".into(),
        set: pin(15_000),
        paused: false,
        replicas: 1,
        metadata: spec().metadata,
        floor: 0,
        delivered: 0,
        ack_pending: 0,
        pending: 0,
    }
}

#[test]
fn a_consumer_as_specified_has_no_drift_and_what_is_foreign_is_none() {
    let mut found = as_specified();
    found.metadata.insert("team".into(), "billing".into());
    found.metadata.insert("_nats.ver".into(), "2.15.1".into());
    assert_eq!(drift(&spec(), &found), []);
}

#[test]
fn every_field_that_matters_is_found_alone_and_said_in_words() {
    type Change = fn(&mut ConsumerFound);
    let rows: [(&str, bool, Change); 20] = [
        ("max_ack_pending", true, |found| found.max_ack_pending = 100),
        ("max_deliver", true, |found| found.max_deliver = 3),
        ("ack_policy", false, |found| found.ack_policy = "all".into()),
        ("deliver_subject", false, |found| found.push = true),
        ("filter_subject", true, |found| found.filters = vec!["lanes.ORDERS.>".into()]),
        ("filter_subject", true, |found| found.filters.push("lanes.ORDERS.0.>".into())),
        ("backoff", true, |found| found.backoff_milliseconds = vec![1000, 5000]),
        ("ack_wait", true, |found| found.ack_wait_milliseconds = 1),
        ("inactive_threshold", true, |found| found.inactive_threshold_milliseconds = 60_000),
        ("replay_policy", false, |found| found.replay_policy = "original".into()),
        ("deliver_policy", false, |found| found.deliver_policy = "new".into()),
        ("opt_start_seq", false, |found| found.start = Some(6)),
        ("max_expires", true, |found| drop(found.set.insert("max_expires", "1".into()))),
        ("priority_groups", true, |found| drop(found.set.insert("priority_groups", "[\"x\"]".into()))),
        ("priority_policy", true, |found| drop(found.set.remove("priority_policy"))),
        ("priority_timeout", true, |found| drop(found.set.insert("priority_timeout", "1".into()))),
        ("headers_only", true, |found| found.headers_only = true),
        ("pause_until", true, |found| found.paused = true),
        ("num_replicas", true, |found| found.replicas = 3),
        ("metadata", true, |found| found.metadata.clear()),
    ];
    for (field, repairable, change) in rows {
        let mut found = as_specified();
        change(&mut found);
        let drift = drift(&spec(), &found);
        assert_eq!(
            drift.iter().map(|one| (one.field, one.repairable)).collect::<Vec<_>>(),
            [(field, repairable)]
        );
        assert!(drift[0].to_string().starts_with(field), "{}", drift[0]);
    }
}

#[test]
fn a_consumer_of_leased_lanes_is_not_pinned() {
    let spec = ConsumerSpec { pinned: false, ..spec() };
    let fields: Vec<&str> = drift(&spec, &as_specified()).iter().map(|one| one.field).collect();
    assert_eq!(fields, PIN);
    assert_eq!(drift(&spec, &ConsumerFound { set: BTreeMap::new(), ..as_specified() }), []);
}

#[test]
fn several_messages_out_come_first() {
    let mut found = as_specified();
    found.metadata.clear();
    found.ack_wait_milliseconds = 1;
    found.max_ack_pending = 100;
    assert_eq!(drift(&spec(), &found)[0].field, "max_ack_pending");
}

#[test]
fn a_consumer_with_no_or_a_wide_filter_takes_lanes() {
    let mapping = Mapping::new("ORDERS", SubjectPattern::parse("orders.*").unwrap(), &[1], 4).unwrap();
    let with = |filters: &[&str]| ConsumerFound {
        filters: filters.iter().map(|one| (*one).to_owned()).collect(),
        ..as_specified()
    };
    for takes in [&[][..], &[">"], &["lanes.*.1.>"], &["other", "lanes.ORDERS.0.0.orders.x"]] {
        assert!(takes_lanes_of(&mapping, &with(takes)), "{takes:?}");
    }
    assert!(!takes_lanes_of(&mapping, &with(&["orders.*", "lanes.ORDERS2.>"])));
}
