use super::*;
use crate::share::{partition_of, shares};
use proptest::prelude::*;

fn mapping(source: &str, key_tokens: &[i64], max: i64) -> Result<Mapping, MappingError> {
    Mapping::new("S", SubjectPattern::parse(source).unwrap(), key_tokens, max)
}

#[test]
fn the_destination_holds_every_power_of_two_and_the_whole_subject() {
    assert_eq!(
        mapping("orders.*.x.*", &[2, 1], 4).unwrap().destination(),
        "lanes.S.{{partition(2,2,1)}}.{{partition(4,2,1)}}.orders.{{wildcard(1)}}.x.{{wildcard(2)}}"
    );
}

#[test]
fn a_filter_is_the_literal_path_to_its_share() {
    let mapping = mapping("orders.*", &[1], 256).unwrap();
    assert_eq!(mapping.filter(Share { modulus: 1, residue: 0 }), "lanes.S.>");
    assert_eq!(mapping.filter(Share { modulus: 8, residue: 5 }), "lanes.S.1.1.5.>");
}

#[test]
fn what_is_stored_elsewhere_has_the_same_path_and_one_filter_for_a_key() {
    let mapping = mapping("orders.*.x.*.>", &[2, 1], 4).unwrap();
    let original = "orders.a.x.b.c.d";
    let parked = mapping.subject_under("p.q", original).unwrap();
    let stored = mapping.stored_subject(original).unwrap();
    assert_eq!(parked.strip_prefix("p.q"), stored.strip_prefix("lanes.S"));
    assert_eq!(mapping.original_under("p.q", &parked), Some(original));
    assert_eq!(mapping.original_under("p.r", &parked), None);
    let key = mapping.key_text(original).unwrap();
    assert_eq!(key, "b.a");
    let filter = SubjectPattern::parse(&mapping.key_filter_under("p.q", &key).unwrap()).unwrap();
    assert!(filter.as_str().ends_with(".orders.a.x.b.>") && filter.matches(&parked));
    assert!(!filter.matches(&mapping.subject_under("p.q", "orders.b.x.a.c").unwrap()));
    for wrong in ["b", "b.a.c", "b.*", "b.", ""] {
        assert_eq!(mapping.key_filter_under("p.q", wrong), None, "{wrong}");
    }
}

#[test]
fn what_cannot_be_a_mapping_names_the_field_the_value_and_what_is_allowed() {
    for (source, key_tokens, max, words) in [
        ("orders.>", &[1][..], 256, "for example 'orders.*'"),
        ("orders", &[1], 256, "mapping.subject is 'orders'"),
        ("orders.*", &[2], 256, "mapping.keyTokens has 2: it must be from 1 to 1"),
        ("orders.*", &[0], 256, "mapping.keyTokens has 0"),
        ("orders.*", &[-1], 256, "mapping.keyTokens has -1"),
        ("orders.*", &[], 256, "mapping.keyTokens is empty"),
        ("orders.*", &[1, 1], 256, "mapping.keyTokens has 1 twice"),
        ("orders.*", &[1], 3, "mapping.maxPartitions is 3"),
        ("orders.*", &[1], 2048, "mapping.maxPartitions is 2048"),
        ("orders.*", &[1], 0, "mapping.maxPartitions is 0"),
    ] {
        let error = mapping(source, key_tokens, max).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let source = SubjectPattern::parse("orders.*").unwrap();
    assert!(Mapping::new("a.b", source.clone(), &[1], 256).is_err());
    assert!(Mapping::new("", source, &[1], 256).is_err());
}

#[test]
fn a_subject_of_something_else_has_no_original() {
    let mapping = mapping("orders.*", &[1], 4).unwrap();
    for stored in ["lanes.S.1.1.invoices.7", "lanes.T.1.1.orders.7", "orders.7", "lanes.S.1.orders.7"] {
        assert_eq!(mapping.original_subject(stored), None, "{stored}");
    }
}

#[test]
fn the_filter_of_a_key_has_its_messages_and_no_others() {
    let mapping = mapping("o.*.x.*.*.>", &[3, 1], 4).unwrap();
    let filter = mapping.key_filter(&["c", "a"]).unwrap();
    assert!(filter.ends_with(".o.a.x.*.c.>"), "{filter}");
    let filter = SubjectPattern::parse(&filter).unwrap();
    for (subject, has) in [("o.a.x.b.c.d", true), ("o.a.x.z.c.d.e", true), ("o.c.x.b.a.d", false)] {
        let stored = mapping.stored_subject(subject).unwrap();
        assert_eq!(filter.matches(&stored), has, "{stored}");
    }
    assert_eq!(mapping.key_filter(&["a"]), None);
}

#[test]
fn a_key_may_have_any_number_of_tokens_and_stand_behind_any_number_of_others() {
    let subject = "o.a.b.c.d.e.f";
    for (tokens, key) in [
        (&[1][..], "a"),
        (&[6], "f"),
        (&[4, 3, 2, 1], "d.c.b.a"),
        (&[6, 5, 4, 3, 2], "f.e.d.c.b"),
        (&[1, 2, 3, 4, 5, 6], "a.b.c.d.e.f"),
    ] {
        let mapping = mapping("o.*.*.*.*.*.*", tokens, 2).unwrap();
        let parts: Vec<&str> = key.split('.').collect();
        assert_eq!(mapping.key_of(subject), Some(parts.clone()));
        assert_eq!(mapping.key_text(subject).as_deref(), Some(key));
        assert_eq!(mapping.key_hash(subject), Some(fnv1a32(parts.iter().map(|part| part.as_bytes()))));
        assert_eq!(mapping.key_hash("o.a.b.c.d.e"), None);
    }
}

proptest! {
    #[test]
    fn the_original_subject_comes_back_and_the_filter_of_its_partition_has_it(
        first in "[^\\s.*>\\p{C}]{1,20}", second in "[^\\s.*>\\p{C}]{1,20}", partitions in 1u32..=64, level in 6u32..=10
    ) {
        let mapping = mapping("o.*.*", &[2, 1], 1 << level).unwrap();
        let original = format!("o.{first}.{second}");
        let stored = mapping.stored_subject(&original).unwrap();
        prop_assert_eq!(mapping.original_subject(&stored), Some(original.as_str()));
        let partition = partition_of(mapping.key_hash(&original).unwrap(), partitions);
        for share in shares(partitions) {
            let filter = SubjectPattern::parse(&mapping.filter(share)).unwrap();
            prop_assert_eq!(filter.matches(&stored), share.partition() == partition);
        }
    }
}
