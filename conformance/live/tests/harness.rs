//! Support of all live tests: a folder for each test, processes that end with the test, free ports,
//! and waits.

use std::any::Any;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use chainsieve::bitcoin::Network;
use chainsieve_conformance::serve::{bitcoin, json_rpc};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;
use testkit::eth::http_rpc::HttpRpc;

use crate::peers::{self, Need};

/// Timeout of every wait: far longer than anything takes, since no times are measured.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Interval between two polls of a condition.
const POLL: Duration = Duration::from_millis(20);
/// Number of bytes of each log that a failure shows. A failure shows at most the newest
/// `LOGS_SHOWN` logs.
const SHOWN: u64 = 2_000;
const LOGS_SHOWN: usize = 12;

/// Returns a live test. If software that it needs is missing, the test is ignored with the reason.
/// If `CI` is set, a test whose software is missing fails.
pub(crate) fn live(
    name: &'static str,
    needs: &[Need],
    run: impl Fn(&Scene) + Send + 'static,
) -> Trial {
    match peers::missing(name, needs) {
        None => Trial::test(name, move || perform(name, &run)),
        Some(why) => Trial::test(name, move || Err(format!("not run: {why}").into()))
            .with_ignored_flag(!peers::must_be_there()),
    }
}

/// Runs a test. A failure includes the last output of the test's processes.
fn perform(name: &str, run: &dyn Fn(&Scene)) -> Result<(), Failed> {
    let scene = Scene::new(name);
    match panic::catch_unwind(AssertUnwindSafe(|| run(&scene))) {
        Ok(()) => Ok(()),
        Err(panic) => Err(format!("{}{}", words(panic.as_ref()), scene.logs()).into()),
    }
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref().copied()).unwrap_or("a panic without a message").to_owned()
}

/// Folder of a test, which is removed when the test ends.
#[derive(Debug)]
pub(crate) struct Scene {
    folder: PathBuf,
    processes: AtomicU32,
}

impl Scene {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("chainsieve-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for the test");
        Self { folder, processes: AtomicU32::new(0) }
    }

    /// Returns a path in the test's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Starts a program whose output goes to files in the test's folder.
    pub(crate) fn start(&self, name: &str, command: &mut Command) -> Process {
        let number = self.processes.fetch_add(1, Ordering::Relaxed);
        let output = self.path(&format!("{number:03}-{name}.out"));
        let log = self.path(&format!("{number:03}-{name}.log"));
        let child = command
            .stdin(Stdio::null())
            .stdout(File::create(&output).expect("a file for its output"))
            .stderr(File::create(&log).expect("a file for its log"))
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        Process { child, output, log }
    }

    /// Returns the ends of the newest logs and outputs.
    fn logs(&self) -> String {
        let mut text = String::new();
        let Ok(files) = fs::read_dir(&self.folder) else { return text };
        let mut paths: Vec<_> = files.flatten().map(|file| file.path()).collect();
        paths.retain(|path| {
            let said = path.extension().is_some_and(|end| end == "log" || end == "out");
            said && fs::metadata(path).is_ok_and(|file| file.len() > 0)
        });
        paths.sort();
        for path in paths.iter().skip(paths.len().saturating_sub(LOGS_SHOWN)) {
            let tail = tail_of(path);
            if !tail.trim().is_empty() {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                for part in ["\n--- ", &*name, "\n", tail.trim_end()] {
                    text += part;
                }
            }
        }
        text
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.folder));
    }
}

fn tail_of(path: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(length.saturating_sub(SHOWN)))?;
        let mut bytes = Vec::new();
        file.take(SHOWN).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// A running program, which is killed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    output: PathBuf,
    log: PathBuf,
}

impl Process {
    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the path of the file with the process's standard output.
    pub(crate) fn output(&self) -> &Path {
        &self.output
    }

    /// Returns the process's standard error so far.
    pub(crate) fn log(&self) -> String {
        fs::read(&self.log).map(|log| String::from_utf8_lossy(&log).into()).unwrap_or_default()
    }

    /// Returns the process's exit status if the process has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child of this process")
    }

    /// Waits until the process ends by itself.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait_for("the end of a process", || self.ended())
    }

    /// Kills the process, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// Sends the process a signal by name, as `kill` does.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "kill -s {name}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Polls until `ask` returns a value.
pub(crate) fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        thread::sleep(POLL);
    }
}

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}

/// Returns a loopback port that nothing listens on, and that no other test here has received.
///
/// Another program may take the port before it is used, so starting a server must be retried.
pub(crate) fn free_port() -> u16 {
    static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let mut given = GIVEN.lock().expect("no panic holds it");
        if given.get_or_insert_default().insert(port) {
            return port;
        }
    }
}

/// Returns the address of a port on loopback.
pub(crate) fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Starts a server, and waits until the server answers. If the port was taken, the server is
/// started again on other ports.
///
/// `start` must take fresh ports from [`free_port`].
pub(crate) fn start_server<S>(
    what: &str,
    mut start: impl FnMut() -> S,
    mut process: impl FnMut(&mut S) -> &mut Process,
    mut answers: impl FnMut(&mut S) -> bool,
) -> S {
    const TRIES: usize = 5;
    for _ in 0..TRIES {
        let mut server = start();
        let up = wait_for(what, || {
            if process(&mut server).ended().is_some() {
                return Some(false);
            }
            answers(&mut server).then_some(true)
        });
        if up {
            return server;
        }
    }
    panic!("{what} ended {TRIES} times while it started");
}

/// Starts a proxy in front of a Bitcoin node of regtest.
pub(crate) fn bitcoin_proxy(
    node: SocketAddr,
    rule: impl FnMut(&bitcoin::Letter<'_>) -> bitcoin::Fate + Send + 'static,
) -> bitcoin::Proxy {
    let proxy = bitcoin::Proxy::start(loopback(0), Network::Regtest, node, rule);
    proxy.expect("a free port")
}

/// Starts a proxy in front of an Ethereum node.
pub(crate) fn rpc_proxy(
    node: &HttpRpc,
    rule: impl Fn(&str, &Value, &mut Value) -> json_rpc::Fate + Send + Sync + 'static,
) -> json_rpc::Proxy {
    let proxy = json_rpc::Proxy::start(loopback(0), json_rpc::Source::node(node.url()), rule);
    proxy.expect("a free port")
}
