//! The server's partition hash, reproduced.
//!
//! `{{partition(N,i,j,…)}}` of a NATS subject mapping is FNV-1a (32 bit) over the named tokens,
//! concatenated without a separator in the order named, modulo N. Measured on nats-server 2.10 to 2.15;
//! the tests hold this function against real servers. This module must not know subjects or partitions.

const OFFSET_BASIS: u32 = 0x811c_9dc5;
const PRIME: u32 = 0x0100_0193;

/// FNV-1a, 32 bit, over the concatenation of `parts`.
///
/// Algorithm and constants: <http://www.isthe.com/chongo/tech/comp/fnv/>. Because the server puts nothing
/// between the tokens, `["ab", "c"]` and `["a", "bc"]` have the same hash.
pub fn fnv1a32<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    parts.into_iter().flatten().fold(OFFSET_BASIS, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_test_vectors_agree() {
        // From the FNV reference test suite.
        assert_eq!(fnv1a32([b"".as_slice()]), 0x811c_9dc5);
        assert_eq!(fnv1a32([b"a".as_slice()]), 0xe40c_292c);
        assert_eq!(fnv1a32([b"foobar".as_slice()]), 0xbf9c_f968);
    }

    #[test]
    fn tokens_are_concatenated_without_separator_and_in_order() {
        assert_eq!(fnv1a32([b"ab".as_slice(), b"c"]), fnv1a32([b"a".as_slice(), b"bc"]));
        assert_ne!(fnv1a32([b"ab".as_slice(), b"c"]), fnv1a32([b"c".as_slice(), b"ab"]));
    }
}
