//! `eth audit --rpc`: a provider's answer, fetched and held against its own chain's headers and
//! receipts, or against those of another provider.

mod answers;
mod chain;
mod compare;
mod receipts;

use anyhow::{Context as _, bail};
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::audit::{Audit, AuditReport, Question, Status};
use chainsieve::eth::bloom::Answer;
use chainsieve::eth::certificate::Certificate;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::header::ChainBlock;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::LogQuery;
use chainsieve::simd::Backend;
use serde_json::{Value, json};

use super::evidence::Feed;
use super::show::{Answered, Shown};
use super::{issue, write_wanted};
use crate::args::eth::AuditArgs;
use crate::eth::rpc::{Asked, Provider, end_of_headers, resolve};
use crate::eth::{profile, query};
use crate::output::{Exit, Page, Report, count, grouped, print_note};
use chain::{Beside, Source};
use compare::Compared;

const LETTERS: [&str; 2] = ["A", "B"];

pub(super) fn run(args: &AuditArgs) -> anyhow::Result<Report> {
    let paths = args.receipts.iter().chain(&args.transactions);
    let paths: Vec<String> = paths.map(|path| path.display().to_string()).collect();
    let reader = query::stdin_once(&args.query, &paths)?;
    let query = query::read(&args.query, &reader)?;
    let endpoints = args.rpc.endpoints(&args.asking.rpc2_header)?;
    let providers: Vec<Provider> =
        endpoints.into_iter().map(|endpoint| Provider::connect(&args.rpc, endpoint)).collect();
    let asking = Asking::new(args, query, &providers)?;
    judge(args, &providers, asking)
}

/// What is asked, and what was answered.
struct Asking {
    chain_id: u64,
    profile: ChainProfile,
    asked: Asked,
    source: Source,
    /// The user's, or the provider's own.
    anchors: Vec<B256>,
    anchor: Anchor,
    /// Of each provider.
    logs: Vec<Vec<LocatedLog>>,
    warnings: Vec<String>,
}

impl Asking {
    /// Asks for everything but receipts.
    fn new(args: &AuditArgs, query: LogQuery, providers: &[Provider]) -> anyhow::Result<Self> {
        let (chain_id, profile) = identity(providers, args)?;
        let mut asked = resolve(query, &args.query, args.asking.unfinalized, providers)?;
        let mut anchors = profile::anchors(&args.trust);
        let end = end_of_headers(providers, &anchors, &mut asked)?;
        let headers = (end - asked.first).saturating_add(1);
        if headers > args.asking.max_headers {
            bail!(
                "{} headers, from block {} to {end}{}: --max-headers allows {}",
                grouped(headers),
                asked.first,
                if end > asked.last { ", the anchor" } else { "" },
                grouped(args.asking.max_headers)
            );
        }
        let mut warnings = std::mem::take(&mut asked.warnings);
        let range = (asked.first, end);
        let mut source = chain::fetch(providers, &anchors, range, args.embed, &mut warnings)?;
        let compiled = asked.query.compile(Backend::best());
        let may_hold = |block: &ChainBlock<'_>| {
            let proves_absence = profile.at(block.number).bloom.proves_absence();
            !proves_absence || compiled.answer(block.bloom) != Answer::No
        };
        let mut logs = vec![Vec::new(); providers.len()];
        // The source first: while it is asked, its chain may still change.
        let others = (0..providers.len()).filter(|index| *index != source.provider);
        for index in [source.provider].into_iter().chain(others) {
            let provider = &providers[index];
            let is_source = index == source.provider;
            let found =
                answers::fetch(provider, &asked, &mut source.fetched, is_source, &may_hold)?;
            print_note(&format!("{}: {}", provider.name(), count(found.len(), "log")));
            logs[index] = found;
        }
        let anchor = Anchor::new(&anchors, &source, providers, end)?;
        if anchor.own {
            anchors = vec![anchor.hash];
        }
        if !anchor.own && !profile::is_of_user(&args.trust) {
            warnings.push(format!(
                "that the blocks are of chain {chain_id}, {}, is the word of the provider, and what \
                 their filters and receipts hold follows from it: say it with --chain",
                profile.name()
            ));
        }
        warnings.splice(0..0, anchor.warnings(providers));
        Ok(Self { chain_id, profile, asked, source, anchors, anchor, logs, warnings })
    }
}

/// Holds each answer against the chain, with receipts from whoever has them.
fn judge(args: &AuditArgs, providers: &[Provider], asking: Asking) -> anyhow::Result<Report> {
    let Asking { chain_id, profile, asked, source, anchors, anchor, logs, mut warnings } = asking;
    let chain = &source.fetched.chain;
    let question = |index| Question {
        chain,
        anchors: if anchor.binds(index) { &anchors } else { &[] },
        query: &asked.query,
        blocks: asked.blocks,
        semantics: args.query.semantics.rules(),
        profile: &profile,
    };
    let questions: Vec<Question<'_>> = (0..logs.len()).map(question).collect();
    let begun = questions.iter().zip(&logs).map(|(question, logs)| Audit::new(*question, logs));
    let mut audits = begun.collect::<Result<Vec<_>, _>>()?;
    let mut kept = Vec::new();
    let mut own_warnings = Vec::new();
    for (audit, logs) in audits.iter_mut().zip(&logs) {
        let mut feed = Feed::new(audit, chain, logs, args.embed);
        feed.receipts(&args.receipts)?;
        feed.transactions(&args.transactions)?;
        let (given, warnings) = feed.end();
        kept = given;
        own_warnings.push(warnings);
    }
    let most = args.asking.max_receipts;
    let fetched = receipts::fetch(&mut audits, chain, providers, most, args.embed)?;
    if let Some(words) = fetched.unreachable {
        bail!("{words}");
    }
    kept.extend(fetched.kept);
    warnings.extend(fetched.warnings);
    let missing: Vec<_> = audits.first().into_iter().flat_map(Audit::open).collect();
    if let Some(path) = &args.wanted {
        write_wanted(path, &missing)?;
    }
    let reports: Vec<AuditReport> = audits.into_iter().map(Audit::finish).collect();
    let certified = certified(&reports);
    let hosts: Vec<String> = providers.iter().map(Provider::name).collect();
    let mut shown = Vec::new();
    for (index, (report, logs)) in reports.iter().zip(&logs).enumerate() {
        let question = &questions[index];
        let mut warnings = std::mem::take(&mut own_warnings[index]);
        let mut certificate = None;
        if let Some(path) = args.certificate.as_ref().filter(|_| index == certified) {
            let issued = Certificate::from_report(question, report, logs);
            let rlp = source.fetched.rlp.as_deref().unwrap_or_default();
            certificate = issue(path, issued, report, (rlp, &kept), &mut warnings)?;
        }
        shown.push(Shown {
            report,
            question,
            logs,
            wanted: &missing,
            certificate,
            warnings,
            provider: Some(Answered {
                letter: LETTERS[index],
                host: &hosts[index],
                own_anchor: anchor.own,
            }),
        });
    }
    let compared = match logs.as_slice() {
        [first, second] => Some(compare::compare(first, second)),
        _ => None,
    };
    let (asked, from) = (&asked, fetched.from.as_slice());
    let chain_of_user = profile::is_of_user(&args.trust);
    let hosts = hosts.as_slice();
    let outcome =
        Outcome { anchor, chain_id, chain_of_user, asked, hosts, from, warnings, compared };
    Ok(outcome.report(shown))
}

/// The chain's id, the same at each provider, and what is known of the chain.
fn identity(providers: &[Provider], args: &AuditArgs) -> anyhow::Result<(u64, ChainProfile)> {
    let mut ids = Vec::new();
    for provider in providers {
        ids.push(provider.chain_id().with_context(|| format!("eth_chainId, {}", provider.name()))?);
    }
    let [first, others @ ..] = ids.as_slice() else { bail!("no provider") };
    if let Some(other) = others.iter().find(|id| *id != first) {
        bail!("the providers are of two chains, with ids {first} and {other}");
    }
    Ok((*first, profile::of_provider(&args.trust, *first)?))
}

/// The index of the answer that a certificate binds: the first that is complete, or the first.
fn certified(reports: &[AuditReport]) -> usize {
    reports.iter().position(|report| report.status() == Status::Complete).unwrap_or(0)
}

/// The block that everything hangs on.
struct Anchor {
    number: u64,
    hash: B256,
    /// It is the last block that the provider gave, and not one that the user named.
    own: bool,
    /// The user's is not on the chain: this is only its last block.
    missing: bool,
    /// The provider whose chain it is.
    source: usize,
    /// Another provider's block at that height, by its index.
    others: Vec<(usize, Beside)>,
}

impl Anchor {
    fn new(
        anchors: &[B256],
        source: &Source,
        providers: &[Provider],
        end: u64,
    ) -> anyhow::Result<Self> {
        let chain = &source.fetched.chain;
        let anchored = chain.anchored_to(anchors);
        let number = anchored.unwrap_or(end);
        let hash = chain.block(number).context("headers: none of the anchor's block")?.hash;
        let others = chain::beside(providers, source.provider, number, hash)?;
        let own = anchors.is_empty();
        let missing = !own && anchored.is_none();
        Ok(Self { number, hash, own, missing, source: source.provider, others })
    }

    /// Whether a provider's answer can be held against it: one provider's word is nothing against
    /// another that does not say the same.
    fn binds(&self, provider: usize) -> bool {
        let differs =
            |(index, beside): &(usize, Beside)| *index == provider && *beside != Beside::Same;
        !self.own || !self.others.iter().any(differs)
    }

    /// Whether all others have the same block.
    fn is_agreed(&self) -> bool {
        self.others.iter().all(|(_, beside)| *beside == Beside::Same)
    }

    fn warnings(&self, providers: &[Provider]) -> Vec<String> {
        let mut warnings = Vec::new();
        let at = grouped(self.number);
        if self.own {
            let whose = if self.others.is_empty() {
                "the provider's own word".to_owned()
            } else if self.is_agreed() {
                "the word of both providers, who agree on it".to_owned()
            } else {
                format!("the own word of {} alone", providers[self.source].name())
            };
            warnings.push(format!(
                "no --anchor: that block {at}, {}, is on the chain is {whose}: what is found holds if \
                 it is. A chain that the provider made up would pass",
                self.hash
            ));
        }
        for (index, beside) in &self.others {
            let name = providers[*index].name();
            let undecided =
                if self.own { ": without --anchor, nothing is proven of its answer" } else { "" };
            match beside {
                Beside::Same => {}
                Beside::Another(other) => warnings.push(format!(
                    "{name} has another block {at}, {other}: one of the two is wrong, or behind a \
                     reorganisation{undecided}"
                )),
                Beside::Nothing => {
                    warnings.push(format!("{name} does not have block {at}{undecided}"));
                }
            }
        }
        warnings
    }
}

/// All that is said at the end.
struct Outcome<'a> {
    anchor: Anchor,
    chain_id: u64,
    /// The user said which chain it is.
    chain_of_user: bool,
    asked: &'a Asked,
    hosts: &'a [String],
    /// Blocks whose receipts came from each provider.
    from: &'a [u64],
    warnings: Vec<String>,
    compared: Option<Compared<'a>>,
}

impl Outcome<'_> {
    fn report(&self, shown: Vec<Shown<'_>>) -> Report {
        let mut page = Page::default();
        page.warnings(&self.warnings);
        let reports: Vec<Report> = shown.into_iter().map(Shown::report).collect();
        let exits: Vec<Exit> = reports.iter().map(|report| report.exit).collect();
        let exit = [Exit::Wrong, Exit::Undecided].into_iter().find(|exit| exits.contains(exit));
        let mut audits = Vec::new();
        for report in reports {
            if !audits.is_empty() {
                page.line("");
            }
            page.append(report.page);
            audits.push(report.json);
        }
        if let Some(compared) = &self.compared {
            page.line("");
            page.line(compared.words());
            compared.show(&mut page);
        }
        let json = self.json(audits, exit.unwrap_or(Exit::Yes));
        Report { page, json, payload: None, exit: exit.unwrap_or(Exit::Yes) }
    }

    /// Of one provider, what an audit of files says, and more; of two, both under `audits`.
    fn json(&self, mut audits: Vec<Value>, exit: Exit) -> Value {
        let status = match exit {
            Exit::Wrong => "wrong",
            Exit::Undecided => "undecided",
            _ => "complete",
        };
        let mut json = match (&self.compared, audits.pop()) {
            (None, Some(only)) => only,
            (_, last) => {
                audits.extend(last);
                json!({
                    "status": status,
                    "first": self.asked.first,
                    "last": self.asked.last,
                    "anchored_to": audits.first().map(|audit| audit["anchored_to"].clone()),
                    "audits": audits,
                    "compared": self.compared.as_ref().map(Compared::json),
                    "warnings": [],
                })
            }
        };
        let own = json["warnings"].as_array().cloned().unwrap_or_default();
        json["warnings"] = self.warnings.iter().map(|warning| json!(warning)).chain(own).collect();
        json["chain_id"] = json!(self.chain_id);
        json["chain_from"] = json!(if self.chain_of_user { "user" } else { "provider" });
        let Anchor { number, hash, own, missing, ref others, .. } = self.anchor;
        json["anchor"] =
            if missing { Value::Null } else { json!({ "number": number, "hash": hash }) };
        json["anchor_from"] = json!(if own { "provider" } else { "user" });
        json["anchor_agreed"] =
            if others.is_empty() { Value::Null } else { json!(self.anchor.is_agreed()) };
        json["finalized"] = self
            .asked
            .finalized
            .map_or(Value::Null, |block| json!({ "number": block.number, "hash": block.hash }));
        let providers = LETTERS.iter().zip(self.hosts).zip(self.from);
        json["providers"] = providers
            .map(|((letter, host), from)| {
                json!({ "name": letter, "host": host, "receipts_of_blocks": from })
            })
            .collect();
        json
    }
}
