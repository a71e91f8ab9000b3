//! Logs as `eth_getLogs` returns them survive a round trip, and their digest does not depend on
//! their order.
#![no_main]

use chainsieve::eth::log::{self, LocatedLog};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(log) = LocatedLog::from_json(text) {
        assert_eq!(LocatedLog::from_json(&log.to_json()), Ok(log));
    }
    let Ok(mut logs) = LocatedLog::list_from_json(text) else { return };
    let written: Vec<_> = logs.iter().map(LocatedLog::to_json).collect();
    let list = format!("[{}]", written.join(","));
    assert_eq!(LocatedLog::list_from_json(&list).as_ref(), Ok(&logs));
    let digest = log::digest(&logs);
    logs.reverse();
    assert_eq!(log::digest(&logs), digest);
});
