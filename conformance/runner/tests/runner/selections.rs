//! Selections by area, id and profile.

use chainsieve_conformance::{SelectError, Selection};
use serde_json::{Value, json};

use crate::{case, load, pack_with};

fn leveled(number: u32, level: &str, flags: &[&str], expect: &Value) -> Value {
    let mut case = case(number, &json!({}), expect);
    case["level"] = level.into();
    case["flags"] = json!(flags);
    case
}

#[test]
fn a_profile_leaves_out_what_does_not_belong_to_it() {
    let value = json!({"value": {}});
    let by = |names: &[&str]| json!({"any_of": [{"value": {}, "by": names}]});
    let cases = [
        leveled(1, "consensus", &[], &value),
        leveled(2, "reference", &["core-quirk"], &value),
        leveled(3, "consensus", &["core-quirk"], &value),
        leveled(4, "reference", &[], &json!({"invalid": "x"})),
        leveled(5, "open", &[], &by(&["core"])),
        leveled(6, "open", &[], &by(&["bip-text"])),
        leveled(7, "open", &[], &by(&["geth"])),
    ];
    let pack = load(&pack_with("test.add", &json!({}), &cases));
    let chosen = |ids: &[&str], profile: Option<&str>| -> Vec<u32> {
        let selection = Selection::all(&pack).with_ids(ids).expect("known");
        let selection = match profile {
            Some(profile) => selection.with_profile(profile).expect("known"),
            None => selection,
        };
        let cases = selection.cases(&pack.areas()[0]);
        cases.map(|case| case.id[9..].parse().expect("a number")).collect()
    };
    assert_eq!(chosen(&[], None), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(chosen(&[], Some("core-exact")), [1, 2, 3, 4, 5]);
    assert_eq!(chosen(&[], Some("bip-text")), [1, 3, 4, 6]);
    assert_eq!(chosen(&[], Some("geth")), [0; 0], "the profile has other areas");
    assert_eq!(chosen(&["test.add/0003", "*6"], None), [3, 6]);
    assert_eq!(chosen(&["*3", "*6"], Some("core-exact")), [3]);
}

#[test]
fn an_unknown_name_is_an_error() {
    let pack = load(&pack_with("test.add", &json!({}), &[]));
    let all = || Selection::all(&pack);
    let no_area = |pattern| all().with_areas(&[pattern]).expect_err("unknown").to_string();
    assert_eq!(no_area("test"), "no area matches \"test\"; \"test.*\" does");
    assert_eq!(no_area("add"), "no area matches \"add\"; \"*add*\" does");
    assert_eq!(no_area("test.sub"), "no area matches \"test.sub\"");
    let no_case = all().with_ids(&["x"]).expect_err("unknown");
    assert_eq!(no_case, SelectError::NoCase { pattern: "x".into(), matching: None });
    let known = "bip-text, core-exact, geth".to_owned();
    let name = "core".to_owned();
    let no_profile = all().with_profile("core").expect_err("unknown");
    assert_eq!(no_profile, SelectError::NoProfile { name, known });
}
