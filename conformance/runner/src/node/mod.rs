//! Running Ethereum nodes as subjects: the runner puts logs on their chain, and asks for them.

mod chain;
mod code;
mod rpc;

use std::time::{Duration, Instant};

use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::answer::{Answer, Failure};
use crate::subject::{GaveUp, Introduction, Question, StartError, Subject};
use chain::{Chain, Setup};
use rpc::Rpc;

/// The area that is asked over JSON-RPC.
pub(crate) const AREA: &str = "logs.node";
/// The code of JSON-RPC for an unknown method.
const NO_METHOD: i64 = -32601;

/// A running Ethereum node for tests, which is asked over JSON-RPC.
///
/// The node must accept `eth_sendTransaction` from the first of `eth_accounts`, as anvil, hardhat
/// and ganache do. The runner deploys five contracts and makes them emit logs.
#[derive(Debug)]
pub struct RpcNode {
    rpc: Rpc,
    chain: Option<Chain>,
}

impl RpcNode {
    /// Returns the node at this URL; `timeout` limits each call.
    pub fn new(url: &str, timeout: Duration) -> Self {
        Self { rpc: Rpc::new(url, timeout), chain: None }
    }

    /// Prepares the chain of the case and asks; the outer error means that the chain cannot be
    /// prepared.
    fn answer(&mut self, input: &Value) -> Result<Answer, String> {
        let mut setup = input.clone();
        let query = setup.as_object_mut().and_then(|members| members.shift_remove("query"));
        let query = query.ok_or("the case has no query")?;
        let setup = Setup::deserialize(setup).map_err(|error| error.to_string())?;
        let chain = match self.chain.take() {
            Some(chain) if chain.setup == setup => chain,
            _ => Chain::new(&self.rpc, setup)?,
        };
        let chain = self.chain.insert(chain);
        let called =
            chain.query(&query).and_then(|query| self.rpc.call("eth_getLogs", &json!([query])));
        Ok(match called {
            Err(failure) => Answer::Failed(Failure::Node(failure)),
            Ok(Err(error)) if error.code == NO_METHOD => Answer::Skipped(error.to_string()),
            Ok(Err(error)) => Answer::Invalid(error.to_string()),
            Ok(Ok(Value::Array(logs))) => {
                let labels: Vec<_> = logs.iter().map(|log| chain.label(log)).collect();
                Answer::Value(json!({ "logs": labels }))
            }
            Ok(Ok(other)) => Answer::Value(json!({ "logs": other })),
        })
    }
}

impl Subject for RpcNode {
    fn start(&mut self) -> Result<Introduction, StartError> {
        let version = self.rpc.text("web3_clientVersion", &json!([])).map_err(Failure::Node)?;
        // `anvil/v1.7.1`, `Geth/v1.16.5-stable/linux-amd64/go1.25`
        let mut parts = version.split('/');
        let name = parts.next().unwrap_or_default().to_lowercase();
        let version = parts.next().unwrap_or_default().trim_start_matches('v').to_owned();
        let areas = vec![AREA.to_owned()];
        Ok(Introduction { name, version, areas, ..Introduction::default() })
    }

    fn ask(&mut self, _area: &str, input: &Value) -> Answer {
        self.answer(input).unwrap_or_else(|failure| Answer::Failed(Failure::Node(failure)))
    }

    fn ask_all(
        &mut self,
        _area: &str,
        questions: &mut dyn Iterator<Item = Question>,
        answered: &mut dyn FnMut(usize, Answer, Duration),
    ) -> Result<(), GaveUp> {
        for (number, input) in questions {
            let asked = Instant::now();
            // Each attempt to prepare the chain can take a minute, and the next one would fail too.
            let answer = self.answer(&input).map_err(|last| GaveUp { failures: 1, last })?;
            answered(number, answer, asked.elapsed());
        }
        Ok(())
    }
}
