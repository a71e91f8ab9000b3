//! Machine code that emits logs.
//!
//! A runner is a contract that runs what it is called with: it puts the call's data there as a
//! contract (`CREATE`) and runs that as itself (`DELEGATECALL`), so that the logs are the runner's.

use chainsieve::alloy_primitives::{B256, Bytes};

/// A log to emit.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    /// At most four.
    pub(crate) topics: Vec<B256>,
    pub(crate) data: Vec<u8>,
}

const CODECOPY: u8 = 0x39;
const CALLDATASIZE: u8 = 0x36;
const CALLDATACOPY: u8 = 0x37;
const ISZERO: u8 = 0x15;
const MSTORE: u8 = 0x52;
const JUMPI: u8 = 0x57;
const GAS: u8 = 0x5a;
const JUMPDEST: u8 = 0x5b;
const PUSH1: u8 = 0x60;
const PUSH2: u8 = 0x61;
const PUSH32: u8 = 0x7f;
const DUP1: u8 = 0x80;
const DUP5: u8 = 0x84;
const LOG0: u8 = 0xa0;
const CREATE: u8 = 0xf0;
const RETURN: u8 = 0xf3;
const DELEGATECALL: u8 = 0xf4;
const REVERT: u8 = 0xfd;
const STOP: u8 = 0x00;

fn push2(code: &mut Vec<u8>, number: usize) {
    code.push(PUSH2);
    code.extend(u16::try_from(number).expect("code and data are short").to_be_bytes());
}

/// Code that emits logs and runs on behind them.
fn log_code(logs: &[Log]) -> Vec<u8> {
    let mut code = Vec::new();
    for log in logs {
        for (index, chunk) in log.data.chunks(32).enumerate() {
            let mut word = [0; 32];
            word[..chunk.len()].copy_from_slice(chunk);
            code.push(PUSH32);
            code.extend(word);
            push2(&mut code, 32 * index);
            code.push(MSTORE);
        }
        for topic in log.topics.iter().rev() {
            code.push(PUSH32);
            code.extend(topic);
        }
        push2(&mut code, log.data.len());
        code.extend([PUSH1, 0]);
        code.push(LOG0 + u8::try_from(log.topics.len()).expect("at most four"));
    }
    code
}

/// Code that puts a contract there which has this code.
fn creation_of(code: &[u8]) -> Vec<u8> {
    let mut init = Vec::new();
    push2(&mut init, code.len());
    init.extend([DUP1, PUSH1, 12, PUSH1, 0, CODECOPY, PUSH1, 0, RETURN]);
    assert_eq!(init.len(), 12);
    init.extend(code);
    init
}

/// A creation that emits logs, as the contract that comes to be.
pub(crate) fn creation_with(logs: &[Log]) -> Bytes {
    let mut init = log_code(logs);
    init.extend([PUSH1, 0, PUSH1, 0, RETURN]);
    init.into()
}

/// What a runner is called with to emit logs; to undo them again where `reverts`.
pub(crate) fn script(logs: &[Log], reverts: bool) -> Bytes {
    let mut code = log_code(logs);
    if reverts {
        code.extend([PUSH1, 0, PUSH1, 0, REVERT]);
    } else {
        code.push(STOP);
    }
    creation_of(&code).into()
}

/// The creation of a runner. One that is `strict` fails with what it runs; another goes on, so
/// that its transaction is good and the logs are gone.
pub(crate) fn runner(strict: bool) -> Bytes {
    let mut code = vec![CALLDATASIZE, PUSH1, 0, PUSH1, 0, CALLDATACOPY];
    code.extend([CALLDATASIZE, PUSH1, 0, PUSH1, 0, CREATE]);
    code.extend([PUSH1, 0, PUSH1, 0, PUSH1, 0, PUSH1, 0, DUP5, GAS, DELEGATECALL]);
    if strict {
        let behind = u8::try_from(code.len() + 5).expect("short");
        code.extend([ISZERO, PUSH1, behind, JUMPI, STOP]);
        code.extend([JUMPDEST, PUSH1, 0, PUSH1, 0, REVERT]);
    } else {
        code.push(STOP);
    }
    creation_of(&code).into()
}
