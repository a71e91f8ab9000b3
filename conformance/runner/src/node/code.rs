//! Contracts that log what their call data says.

const CALLDATALOAD: u8 = 0x35;
const CODECOPY: u8 = 0x39;
const MSTORE: u8 = 0x52;
const PUSH1: u8 = 0x60;
const DUP1: u8 = 0x80;
const LOG0: u8 = 0xa0;
const RETURN: u8 = 0xf3;
const STOP: u8 = 0x00;

/// Returns the init code of a contract that emits a log with this number of topics, at most 4. The
/// words of the call data are the topics, and the word after them is the data.
pub(super) fn creation(topics: u8) -> Vec<u8> {
    let mut code = vec![PUSH1, 32 * topics, CALLDATALOAD, PUSH1, 0, MSTORE];
    for topic in (0..topics).rev() {
        code.extend([PUSH1, 32 * topic, CALLDATALOAD]);
    }
    code.extend([PUSH1, 32, PUSH1, 0, LOG0 + topics, STOP]);
    let length = u8::try_from(code.len()).expect("24 bytes at most");
    let mut init = vec![PUSH1, length, DUP1, PUSH1, 11, PUSH1, 0, CODECOPY, PUSH1, 0, RETURN];
    debug_assert_eq!(init.len(), 11, "the code begins after the init code");
    init.extend(code);
    init
}
