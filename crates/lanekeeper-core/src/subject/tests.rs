use super::*;
use proptest::prelude::*;

fn pattern(text: &str) -> SubjectPattern {
    SubjectPattern::parse(text).unwrap()
}

#[test]
fn what_is_no_pattern_is_refused() {
    for text in ["", ".", "a.", ".a", "a..b", "a.>.b", "a b", "a.b\n", "a.*x", "a.x>"] {
        assert!(SubjectPattern::parse(text).is_err(), "{text:?}");
    }
    assert!(SubjectPattern::parse(&"a".repeat(MAX_SUBJECT_BYTES + 1)).is_err());
}

#[test]
fn a_wildcard_stands_for_one_token_and_rest_for_at_least_one() {
    assert_eq!(pattern("a.*.c.*").captures("a.b.c.d"), Some(vec!["b", "d"]));
    assert_eq!(pattern("a.*.c.*").captures("a.b.x.d"), None);
    assert!(pattern("a.>").matches("a.b.c"));
    assert!(!pattern("a.>").matches("a"));
    assert!(!pattern("a.*").matches("a.b.c"));
    assert!(!pattern("a.*").matches("a."));
    assert!(!pattern("a.>").matches("a.b..c"));
}

#[test]
fn inclusion_follows_the_wildcards() {
    for (inner, outer) in [("a.*", "a.>"), ("a.b", "a.*"), ("a.*.c", "a.*.*"), ("a.>", ">"), ("a.*", "a.*")] {
        assert!(pattern(inner).is_subset_of(&pattern(outer)), "{inner} in {outer}");
    }
    for (inner, outer) in [("a.>", "a.*"), ("a.*", "a.b"), ("a", "a.>"), ("a.*", "a.*.c"), ("b.*", "a.*")] {
        assert!(!pattern(inner).is_subset_of(&pattern(outer)), "{inner} not in {outer}");
    }
}

#[test]
fn the_destination_numbers_every_wildcard() {
    assert_eq!(pattern("a.*.b.*.>").as_destination(), "a.{{wildcard(1)}}.b.{{wildcard(2)}}.>");
}

fn tokens() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[ab]", 1..5)
}

/// A pattern that has the subject among its own: some tokens made wildcards, perhaps the end cut to `>`.
fn generalised(subject: &[String], singles: u8, cut: usize) -> String {
    let mut tokens: Vec<String> = subject
        .iter()
        .enumerate()
        .map(|(index, token)| if singles >> index & 1 == 1 { "*".to_owned() } else { token.clone() })
        .collect();
    if cut < tokens.len() {
        tokens.truncate(cut);
        tokens.push(">".to_owned());
    }
    tokens.join(".")
}

proptest! {
    #[test]
    fn a_generalised_subject_matches_itself(subject in tokens(), singles: u8, cut in 0usize..8) {
        let general = pattern(&generalised(&subject, singles, cut));
        let subject = subject.join(".");
        prop_assert!(general.matches(&subject));
        prop_assert!(pattern(&subject).is_subset_of(&general));
        prop_assert!(pattern(&subject).overlaps(&general));
    }

    #[test]
    fn subset_and_overlap_agree_with_matching(
        left in tokens(), right in tokens(), l in any::<u8>(), r in any::<u8>(), lc in 0usize..8, rc in 0usize..8, probe in tokens()
    ) {
        let (a, b) = (pattern(&generalised(&left, l, lc)), pattern(&generalised(&right, r, rc)));
        let probe = probe.join(".");
        if a.is_subset_of(&b) && a.matches(&probe) {
            prop_assert!(b.matches(&probe));
        }
        if a.matches(&probe) && b.matches(&probe) {
            prop_assert!(a.overlaps(&b) && b.overlaps(&a));
        }
        prop_assert_eq!(a.overlaps(&b), b.overlaps(&a));
    }
}
