//! Scripts that ask with clients of other languages. Each prints its answers in one form, so that all
//! are compared with the same truth.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::truth::Truth;
use super::{Endpoint, questions};
use crate::harness::Scene;
use crate::peers;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Client {
    Viem,
    Ethers,
    Web3Py,
}

impl Client {
    fn transports(self) -> &'static [&'static str] {
        match self {
            Self::Viem => &["http", "batches", "ws"],
            Self::Ethers | Self::Web3Py => &["http", "ws"],
        }
    }

    /// Returns the command that runs the client's script.
    pub(super) fn script(self, arguments: &[&str]) -> Command {
        let at = |name: &str| -> PathBuf {
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/endpoint").join(name)
        };
        let mut command = match self {
            Self::Viem => node("viem", &at("viem.cjs")),
            Self::Ethers => node("ethers", &at("ethers.cjs")),
            Self::Web3Py => python(&at("web3_client.py")),
        };
        command.args(arguments);
        command
    }

    /// Asks questions by every transport of the client, and compares the answers with the truth.
    /// Returns the number of compared answers.
    pub(super) fn compare(
        self,
        scene: &Scene,
        endpoint: &Endpoint,
        truth: &Truth,
        questions: &[Value],
    ) -> usize {
        let file = scene.path("questions.json");
        std::fs::write(&file, json!(questions).to_string()).expect("written");
        let file = file.to_str().expect("text");
        let lines = run(scene, self.script(&["ask", endpoint.http(), &endpoint.ws(), file]));
        let mut answers: BTreeMap<(&str, u64), &Value> = BTreeMap::new();
        for line in &lines {
            let place = (line["via"].as_str().expect("text"), line["index"].as_u64().expect("one"));
            assert!(answers.insert(place, &line["answer"]).is_none(), "{line}");
        }
        for via in self.transports() {
            for (question, index) in questions.iter().zip(0..) {
                let answer = answers.remove(&(*via, index)).expect("an answer to each question");
                assert_eq!(*answer, truth.answer(question), "{via}: {question}");
            }
        }
        assert!(answers.is_empty(), "{answers:?}");
        lines.len()
    }
}

/// Returns the command that runs a script of Python with web3.py.
pub(super) fn python(script: &Path) -> Command {
    let python = peers::python().expect("the test declares that it needs it");
    let mut command = Command::new(python);
    command.arg("-B").arg(script);
    without_proxy(&mut command);
    command
}

/// Returns the command that runs a script of Node.js with a package.
pub(super) fn node(package: &str, script: &Path) -> Command {
    let mut command = Command::new("node");
    let modules = peers::modules_with(package).expect("the test declares that it needs it");
    command.env("NODE_PATH", modules).arg(script);
    without_proxy(&mut command);
    command
}

/// The clients read these variables, and the endpoint is on loopback.
fn without_proxy(command: &mut Command) {
    for proxy in
        ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"]
    {
        command.env_remove(proxy);
    }
}

/// Runs a script to its end, and returns its lines.
pub(super) fn run(scene: &Scene, mut script: Command) -> Vec<Value> {
    let mut process = scene.start("client", &mut script);
    let status = process.wait();
    let output = std::fs::read_to_string(process.output()).expect("text");
    assert!(status.success(), "{status}: {}", process.log());
    output.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Every question, by every transport.
pub(super) fn ask(scene: &Scene, client: Client) {
    let (node, chain) = questions::chain(scene, 41);
    let endpoint = Endpoint::of(scene, &node);
    let truth = Truth::of(&node);
    let mut questions = questions::all(&truth, &chain);
    if client == Client::Web3Py {
        questions.extend(questions::receipts(&truth));
    }
    let compared = client.compare(scene, &endpoint, &truth, &questions);
    assert!(compared > 300, "{compared} answers");
    endpoint.end();
}
