use super::*;
use crate::subject::SubjectPattern;

fn assignment() -> Assignment {
    Assignment {
        v: VERSION,
        consumer: "lk_a_orders_5_9".into(),
        incarnation: 9,
        share: Share { modulus: 8, residue: 5 },
        filter: "lanes.S.1.1.5.>".into(),
        mapping: Mapping::new("S", SubjectPattern::parse("orders.*").unwrap(), &[1], 8).unwrap(),
        stream_incarnation: 1,
        floors: vec![Floor { share: Share { modulus: 4, residue: 1 }, sequence: 17 }],
        retiring: false,
        settings: LaneSettings {
            ack_wait_milliseconds: 15_000,
            ownership: Ownership::Pin,
            handler_timeout_milliseconds: 300_000,
            retry: Retry {
                initial_backoff_milliseconds: 100,
                max_backoff_milliseconds: 30_000,
                max_attempts: 5,
            },
            on_exhausted: ExhaustedPolicy::Block,
            park: None,
            delivery: Delivery::Serial,
            paused: false,
            journal: None,
        },
    }
}

#[test]
fn one_holder_releases_parked_messages_until_it_is_no_holder_any_more() {
    let holder = |pod: &str| Holder { pod: pod.into(), instance: "1".into() };
    let (a, b) = (holder("a"), holder("b"));
    let mut key = LaneKey { holders: vec![a.clone(), b.clone()], ..LaneKey::new() };
    assert!(key.may_release(&a) && key.may_release(&b) && !key.may_release(&holder("c")));
    key.releasing = Some(a.clone());
    assert!(key.may_release(&a) && !key.may_release(&b));
    key.holders.retain(|one| *one != a);
    assert!(!key.may_release(&a) && key.may_release(&b));
    key.retiring = true;
    assert!(!key.may_release(&b));
}

#[test]
fn values_read_back_and_ignore_what_a_newer_version_added() {
    let mut json = serde_json::to_value(assignment()).unwrap();
    json["somethingNew"] = serde_json::json!({"a": 1});
    json["settings"]["alsoNew"] = true.into();
    assert_eq!(serde_json::from_value::<Assignment>(json).unwrap(), assignment());
}

#[test]
fn the_wire_form_is_the_contract() {
    let json = serde_json::to_value(assignment()).unwrap();
    for (pointer, value) in
        [("/v", 1), ("/modulus", 8), ("/residue", 5), ("/floors/0/sequence", 17), ("/floors/0/modulus", 4)]
    {
        assert_eq!(json.pointer(pointer), Some(&serde_json::json!(value)), "{pointer}");
    }
    let key = LaneKey { holders: vec![Holder { pod: "p".into(), instance: "i".into() }], ..LaneKey::new() };
    assert_eq!(
        serde_json::to_value(key).unwrap(),
        serde_json::json!({"v": 1, "retiring": false, "holders": [{"pod": "p", "instance": "i"}]})
    );
}
