//! Tests of the names of enum values.

use alloc::string::ToString as _;

use super::audit::{Grounds, Status, Undecidable, Verdict};
use super::bloom::BloomAnswer;
use super::chain_profile::{BloomSoundness, ReceiptsScope};
use super::columns::{self, Check, HeaderBasis};
use super::header::HeaderLayout;
use super::log_query::{BlockTag, ResolvedBlocks, Semantics};

macro_rules! check {
    ($($type:ty),+ $(,)?) => {$(
        for &value in <$type>::ALL {
            let name = value.name();
            assert_eq!(value.to_string(), name);
            assert_eq!(name.parse(), Ok(value));
            assert_eq!(name.replace('_', "-").parse(), Ok(value));
            assert_eq!(serde_json::to_value(value).unwrap(), name);
            assert_eq!(serde_json::from_value::<$type>(name.into()).unwrap(), value);
        }
        let error = "nothing".parse::<$type>().unwrap_err();
        assert_eq!((&*error.name, error.known), ("nothing", <$type>::NAMES));
    )+};
}

#[cfg(feature = "anchor")]
#[test]
fn names_of_anchors_are_those_of_serde() {
    use super::anchor::network::{Fork, Preset};
    use super::anchor::sync_committee::UpdateKind;
    check!(Fork, Preset, UpdateKind);
}

#[test]
fn names_are_read_as_written_and_are_those_of_serde() {
    check!(Check, HeaderBasis, columns::Grade);
    check!(BloomAnswer, BloomSoundness, Grounds, HeaderLayout, ReceiptsScope, Semantics, Status);
    #[cfg(feature = "anchor")]
    check!(super::anchor::Grade, super::anchor::header_proof::ProofKind);
    assert_eq!(
        "whole".parse::<Status>().unwrap_err().to_string(),
        "\"whole\" is not a status: complete, undecided or wrong"
    );
}

/// If `Display` writes a sentence, `name` returns the string that `serde` writes.
#[test]
fn names_beside_sentences_are_those_of_serde() {
    let reasons = [
        Undecidable::Unanchored,
        Undecidable::ReceiptsNotSupplied,
        Undecidable::PostStateMissing,
        Undecidable::ReceiptsNotEveryLog,
        Undecidable::ProfileContradicted,
    ];
    for why in reasons {
        assert_eq!(serde_json::to_value(why).unwrap(), why.name());
    }
    for verdict in
        [Verdict::AbsentByBloom, Verdict::CheckedByReceipts, Verdict::Undecidable(reasons[0])]
    {
        assert_eq!(serde_json::to_value(verdict).unwrap()["verdict"], verdict.name());
        assert!(verdict.to_string().starts_with(verdict.name()));
    }
}

#[test]
fn block_tags_are_read_as_written() {
    let tags = ["earliest", "latest", "safe", "finalized", "pending", "0x0", "0x10dde5f"];
    for text in tags.into_iter().chain(["0xffffffffffffffff"]) {
        let tag: BlockTag = text.parse().unwrap();
        assert_eq!(tag.to_string(), text);
        assert_eq!(serde_json::to_value(tag).unwrap(), text);
    }
    for text in ["", "newest", "17", "0x", "0x10000000000000000"] {
        assert!(text.parse::<BlockTag>().is_err(), "{text}");
    }
    let blocks = ResolvedBlocks::Range { first: 3, last: 9 };
    assert_eq!(blocks.to_string(), "blocks 3 to 9");
}
