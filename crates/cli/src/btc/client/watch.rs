//! `btc watch` and `btc rescan`.

use std::path::PathBuf;

use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::btc::bip37::wallet::{Config, FilterPolicy, Session};
use chainsieve::btc::bip158::block_scan::History;
use chainsieve::btc::headers::HeaderChain;
use serde_json::{Value, json};

use super::announcer::Announcer;
use super::bloom::Bloom;
use super::bloom_state::BloomState;
use super::compact::Compact;
use super::compact_state::CompactState;
use super::compact_wallet::CompactWallet;
use super::driver::{Core, Ending, drive};
use super::follower::Follower;
use super::ledger::Ledger;
use super::summary::{Graded, chain_warnings, grades_in_words, peers_json, tip_json, work_hex};
use super::wallet::Wallet;
use super::{Setup, filter_config, first_height, patience, until};
use crate::args::UsageError;
use crate::args::client::{Birthday, LookArgs, Protocol, RescanArgs, WatchLiveArgs};
use crate::output::{Exit, Page, Report, count, grouped};

/// What `watch` and `rescan` have in common.
#[derive(Debug, Clone, Copy)]
struct Job<'a> {
    look: &'a LookArgs,
    first: Birthday,
    last: Option<u32>,
    /// Ends by itself.
    once: bool,
    is_rescan: bool,
}

pub(crate) fn watch(args: &WatchLiveArgs, json: bool) -> anyhow::Result<Report> {
    let job = Job {
        look: &args.look,
        first: args.birthday,
        last: None,
        once: args.once,
        is_rescan: false,
    };
    job.run(json)
}

pub(crate) fn rescan(args: &RescanArgs, json: bool) -> anyhow::Result<Report> {
    if let (Birthday::Height(from), Some(to)) = (args.from, args.to)
        && from > to
    {
        return Err(UsageError("--from is greater than --to").into());
    }
    let job =
        Job { look: &args.look, first: args.from, last: args.to, once: true, is_rescan: true };
    job.run(json)
}

/// What the end of a run tells of its follower.
struct Told {
    first: u32,
    answered_to: Option<u32>,
    grades: Vec<Graded>,
    hits: [u64; 3],
}

impl Job<'_> {
    fn run(self, json: bool) -> anyhow::Result<Report> {
        if self.look.protocol == Protocol::Bip37 && !self.look.trust.checkpoint.is_empty() {
            return Err(UsageError("--checkpoint is for --protocol bip157").into());
        }
        let wallet = Wallet::read(&self.look.watch, self.look.gap, self.look.protocol)?;
        match self.look.protocol {
            Protocol::Bip37 => self.bloom(wallet, json),
            Protocol::Bip157 => self.compact(wallet, json),
        }
    }

    /// The folder in the data folder that the state of these items is in.
    fn state_folder(&self, setup: &Setup, wallet: &Wallet) -> anyhow::Result<PathBuf> {
        let kind = if self.is_rescan { "rescan" } else { "watch" };
        let first = match self.first {
            Birthday::Height(height) => height.to_string(),
            Birthday::Day(seconds) => format!("t{seconds}"),
        };
        let last = self.last.map(|last| format!("-{last}")).unwrap_or_default();
        let (protocol, digest) = (self.look.protocol.name(), wallet.digest());
        setup.folder.sub(&format!("{kind}-{protocol}-{first}{last}-{digest}"))
    }

    fn bloom(self, wallet: Wallet, json: bool) -> anyhow::Result<Report> {
        let network = self.look.watch.network.network();
        let services = ServiceFlags::NETWORK | ServiceFlags::BLOOM;
        let setup = Setup::new(&self.look.peers, network, services)?;
        let folder = self.state_folder(&setup, &wallet)?;
        let state = BloomState::open(folder.join("state"))?;
        let announcer = Announcer::new(Ledger::open(&folder.join("hits"))?, network, json);
        let policy = FilterPolicy {
            capacity: state.capacity,
            fpr: self.look.fpr,
            ..FilterPolicy::new(state.tweak)
        };
        let mut config = Config::new(network, policy);
        config.limits.patience = patience(&self.look.peers);
        let session = Session::new(config);
        let (first, last) = (self.first, self.last);
        let make = Box::new(move |chain: &HeaderChain| {
            let heights = (first_height(first, chain), last);
            Bloom::new(session, wallet, announcer, state, heights, chain)
        });
        self.drive(setup, services, make, |bloom, _| Told {
            first: bloom.first(),
            answered_to: bloom.answered_to(),
            grades: bloom.grades(),
            hits: [bloom.announcer.hits, bloom.announcer.again, bloom.announcer.withdrawn],
        })
    }

    fn compact(self, wallet: Wallet, json: bool) -> anyhow::Result<Report> {
        let network = self.look.watch.network.network();
        let services = ServiceFlags::NETWORK | ServiceFlags::COMPACT_FILTERS;
        let config = filter_config(network, 0, &self.look.trust, &self.look.peers)?;
        let setup = Setup::new(&self.look.peers, network, services)?;
        let folder = self.state_folder(&setup, &wallet)?;
        let state = CompactState::open(&folder.join("state"))?;
        let announcer = Announcer::new(Ledger::open(&folder.join("hits"))?, network, json);
        // A birthday says that nothing was used before; the start of a rescan does not.
        let from_genesis = self.first == Birthday::Height(0);
        let is_complete = !self.is_rescan || from_genesis;
        let history = if is_complete { History::Complete } else { History::Unknown };
        let wallet = CompactWallet::new(wallet, announcer, history);
        let (first, last) = (self.first, self.last);
        let make = Box::new(move |chain: &HeaderChain| {
            let mut config = config;
            config.first = first_height(first, chain);
            Compact::new(&config, state, Some(wallet), last, chain)
        });
        self.drive(setup, services, make, |compact, chain| {
            let announcer = compact.wallet.as_ref().map(|wallet| &wallet.announcer);
            Told {
                first: compact.first(),
                answered_to: compact.answered_to(),
                grades: compact.grades(chain),
                hits: announcer.map_or([0; 3], |it| [it.hits, it.again, it.withdrawn]),
            }
        })
    }

    fn drive<F: Follower>(
        self,
        setup: Setup,
        services: ServiceFlags,
        make: super::driver::Make<F>,
        tell: impl FnOnce(&F, &HeaderChain) -> Told,
    ) -> anyhow::Result<Report> {
        let Setup { folder: _folder, store, chain, mut pool, stop } = setup;
        let mut core = Core::new(chain, store, patience(&self.look.peers), services, make);
        let ending = drive(&mut core, &mut pool, &stop, until(&self.look.peers, self.once))?;
        let told = core.follower.as_ref().map(|follower| tell(follower, &core.chain));
        let mut warnings = chain_warnings(&core.chain);
        if let Ending::GaveUp(why) = &ending {
            warnings.push(format!("gave up: {why}"));
        }
        let json =
            self.end_json(&ending, &core.chain, told.as_ref(), &peers_json(&pool), &warnings);
        let tip = core.chain.tip();
        let mut page = Page::default();
        let answered = told.as_ref().and_then(|told| told.answered_to);
        let [hits, again, withdrawn] = told.as_ref().map_or([0; 3], |told| told.hits);
        let mut fields = vec![
            ("ended", ending.name().replace('_', " ")),
            ("tip", format!("{} at height {}", tip.hash, grouped(tip.height.into()))),
            (
                "answered to",
                answered.map_or("nothing".into(), |height| {
                    format!("height {}; called again, it goes on there", grouped(height.into()))
                }),
            ),
            (
                "hits",
                format!(
                    "{}; {} printed again, {} taken back",
                    count(usize::try_from(hits)?, "new hit"),
                    grouped(again),
                    grouped(withdrawn)
                ),
            ),
        ];
        let grades = told.iter().flat_map(|told| grades_in_words(&told.grades));
        fields.extend(grades.map(|words| ("a \"no\"", words)));
        page.fields(fields);
        page.warnings(&warnings);
        let exit = match ending {
            Ending::GaveUp(_) => Exit::UndecidedAfterLines,
            _ => Exit::YesAfterLines,
        };
        Ok(Report { page, json, payload: None, exit })
    }

    fn end_json(
        &self,
        ending: &Ending,
        chain: &HeaderChain,
        told: Option<&Told>,
        peers: &Value,
        warnings: &[String],
    ) -> Value {
        let [hits, again, withdrawn] = told.map_or([0; 3], |told| told.hits);
        let grades = told.iter().flat_map(|told| &told.grades).map(|graded| graded.json());
        json!({
            "event": "end",
            "ended": ending.name(),
            "network": self.look.watch.network.to_string(),
            "protocol": self.look.protocol.name(),
            "tip": tip_json(chain),
            "work": work_hex(chain),
            "birthday": told.map(|told| told.first),
            "answered_to": told.and_then(|told| told.answered_to),
            "grades": grades.collect::<Vec<_>>(),
            "hits": hits,
            "again": again,
            "withdrawn": withdrawn,
            "peers": peers,
            "warnings": warnings,
        })
    }
}
