//! EVM code that emits logs.
//!
//! A runner is a contract that executes its call data: it deploys the data as a contract (`CREATE`)
//! and runs that contract's code in its own context (`DELEGATECALL`). So the logs have the runner's
//! address.

use chainsieve::alloy_primitives::{B256, Bytes};

/// A log to emit.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    /// At most four topics.
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

/// Returns code that emits the logs, and continues after them.
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

/// Returns init code that deploys this code.
fn creation_of(code: &[u8]) -> Vec<u8> {
    let mut init = Vec::new();
    push2(&mut init, code.len());
    init.extend([DUP1, PUSH1, 12, PUSH1, 0, CODECOPY, PUSH1, 0, RETURN]);
    assert_eq!(init.len(), 12);
    init.extend(code);
    init
}

/// Returns init code that emits logs with the address of the new contract.
pub(crate) fn creation_with(logs: &[Log]) -> Bytes {
    let mut init = log_code(logs);
    init.extend([PUSH1, 0, PUSH1, 0, RETURN]);
    init.into()
}

/// Returns call data that makes a runner emit logs, and revert afterwards if `reverts`.
pub(crate) fn script(logs: &[Log], reverts: bool) -> Bytes {
    let mut code = log_code(logs);
    if reverts {
        code.extend([PUSH1, 0, PUSH1, 0, REVERT]);
    } else {
        code.push(STOP);
    }
    creation_of(&code).into()
}

/// Returns the init code of a runner. A `strict` runner fails if its code reverts. A runner that is
/// not `strict` continues, so that its transaction succeeds without the logs.
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
