//! Finds the software that the live tests run against.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex};
use std::{env, fs};

use serde_json::Value;

/// Software that a test needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Need {
    /// bcoin, and the Node.js that runs it.
    Bcoin,
    /// anvil.
    Anvil,
    /// hardhat, and the Node.js that runs it.
    Hardhat,
    /// ganache, and the Node.js that runs it.
    Ganache,
    /// viem, and the Node.js that runs it.
    Viem,
    /// ethers, and the Node.js that runs it.
    Ethers,
    /// web3.py and the Python client of Prometheus, and the Python that runs them.
    Web3Py,
    /// Lodestar's light client, and the Node.js that runs it.
    Lodestar,
}

/// Reasons why tests are not run, each with the names of the tests. [`say_what_is_missing`] prints
/// them.
static MISSING: Mutex<BTreeMap<String, Vec<&str>>> = Mutex::new(BTreeMap::new());

/// Returns the folder that `peers/install` fills, or the one that `CHAINSIEVE_LIVE_PEERS` names.
fn folder() -> PathBuf {
    env::var_os("CHAINSIEVE_LIVE_PEERS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("peers"), PathBuf::from)
}

/// Returns the path of bcoin's program, which `node` runs.
pub(crate) fn bcoin() -> Result<PathBuf, String> {
    of_node_js("bcoin", "bin/node")
}

/// Returns the path of hardhat's program, which `node` runs.
pub(crate) fn hardhat() -> Result<PathBuf, String> {
    of_node_js("hardhat", "internal/cli/bootstrap.js")
}

/// Returns the path of ganache's program, which `node` runs.
pub(crate) fn ganache() -> Result<PathBuf, String> {
    of_node_js("ganache", "dist/node/cli.js")
}

/// Returns the folder in which scripts of Node.js find a package. Scripts are told of it by
/// `NODE_PATH`.
pub(crate) fn modules_with(package: &str) -> Result<PathBuf, String> {
    of_node_js(package, "package.json")?;
    Ok(folder().join("node_modules"))
}

/// Returns the Python that has the packages of `peers/requirements.txt`.
pub(crate) fn python() -> Result<PathBuf, String> {
    static FOUND: LazyLock<Result<PathBuf, String>> = LazyLock::new(|| {
        let pins = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/requirements.txt");
        let pins = fs::read(pins).map_err(|_| "peers/requirements.txt cannot be read")?;
        let how = "conformance/live/peers/install installs it, if there is a Python";
        let venv = folder().join("venv");
        match fs::read(venv.join("requirements.txt")) {
            Err(_) => Err(format!("web3.py is not installed: {how}")),
            Ok(found) if found != pins => {
                Err(format!("web3.py is installed at other versions: {how}"))
            }
            Ok(_) => {
                let program = venv.join("bin/python");
                let python = Command::new(&program).arg("--version").stdout(Stdio::null()).status();
                if python.is_ok_and(|status| status.success()) {
                    Ok(program)
                } else {
                    Err(format!("the Python of web3.py does not start: {how}"))
                }
            }
        }
    });
    FOUND.clone()
}

/// Returns the folder `node_modules` that has Lodestar's light client and what a script needs with it.
pub(crate) fn lodestar() -> Result<PathBuf, String> {
    for package in ["config", "light-client", "params", "types"] {
        of_node_js(&format!("@lodestar/{package}"), "lib/index.js")?;
    }
    Ok(folder().join("node_modules"))
}

/// Returns the path of a package's program that Node.js runs.
fn of_node_js(package: &str, program: &str) -> Result<PathBuf, String> {
    static FOUND: LazyLock<bool> = LazyLock::new(|| {
        let node = Command::new("node").arg("--version").stdout(Stdio::null()).status();
        node.is_ok_and(|status| status.success())
    });
    if !*FOUND {
        return Err("Node.js was not found on the PATH".into());
    }
    Ok(installed(package)?.join(program))
}

/// Returns the path of anvil's program.
pub(crate) fn anvil() -> Result<PathBuf, String> {
    static FOUND: LazyLock<Result<PathBuf, String>> = LazyLock::new(|| {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            return Err("anvil is installed on Linux on x86-64 only".into());
        }
        let program = installed("@foundry-rs/anvil-linux-amd64")?.join("bin/anvil");
        let started = Command::new(&program).arg("--version").stdout(Stdio::null()).status();
        match started {
            Ok(status) if status.success() => Ok(program),
            Ok(status) => Err(format!("anvil does not start: {status}")),
            Err(error) => Err(format!("anvil does not start: {error}")),
        }
    });
    FOUND.clone()
}

/// Returns the folder of a package that is installed at the pinned version.
fn installed(name: &str) -> Result<PathBuf, String> {
    let json =
        |path: PathBuf| -> Option<Value> { serde_json::from_slice(&fs::read(path).ok()?).ok() };
    let pins = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/package.json");
    let pins = json(pins).ok_or("peers/package.json cannot be read")?;
    let wanted = ["dependencies", "optionalDependencies"].iter().find_map(|of| pins[of].get(name));
    let wanted = wanted.ok_or_else(|| format!("peers/package.json pins no {name}"))?;
    let package = folder().join("node_modules").join(name);
    let how = "conformance/live/peers/install installs it";
    match json(package.join("package.json")) {
        None => Err(format!("{name} {} is not installed: {how}", wanted.as_str().unwrap_or("?"))),
        Some(found) if found["version"] != *wanted => {
            Err(format!("{name} is installed as {}, not as {wanted}: {how}", found["version"]))
        }
        Some(_) => Ok(package),
    }
}

/// Returns the reason why a test with these needs cannot run; `None` if the test can run.
pub(crate) fn missing(test: &'static str, needs: &[Need]) -> Option<String> {
    let why = needs.iter().find_map(|need| match need {
        Need::Bcoin => bcoin().err(),
        Need::Anvil => anvil().err(),
        Need::Hardhat => hardhat().err(),
        Need::Ganache => ganache().err(),
        Need::Viem => modules_with("viem").err(),
        Need::Ethers => modules_with("ethers").err(),
        Need::Web3Py => python().err(),
        Need::Lodestar => lodestar().err(),
    })?;
    let mut missing = MISSING.lock().expect("no panic holds it");
    missing.entry(why.clone()).or_default().push(test);
    Some(why)
}

/// Returns `true` if a test must fail when its software is missing.
pub(crate) fn must_be_there() -> bool {
    env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "0" && value != "false")
}

/// Prints to standard error which tests are not run, and why.
pub(crate) fn say_what_is_missing() {
    for (why, tests) in MISSING.lock().expect("no panic holds it").iter() {
        let fails = if must_be_there() { " (CI is set: that is a failure)" } else { "" };
        eprintln!("not run: {why}{fails}\n    {}", tests.join("\n    "));
    }
}
