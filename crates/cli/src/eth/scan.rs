//! The command `eth scan`.

use std::sync::OnceLock;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::bloom::BloomView;
use chainsieve::eth::bloom::FillHistogram;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::forecast::expected_false;
use chainsieve::eth::header::LinkedHeaders;
use chainsieve::eth::log_query::{BlockSelection, CompiledQuery, LogQuery};
use chainsieve::eth::scan::Scanner;
use chainsieve_provider::Stop;
use chainsieve_report::{Exit, Lines, Page, Report, float, grouped, json_line, share, span};
use serde_json::json;

use super::anchor::Trusted;
use super::headers::{Bounds, for_each_linked};
use super::{builder, in_words_of_the_command, query, words_of_all};
use crate::args::eth::ScanArgs;

pub(crate) fn run(args: &ScanArgs, json: bool) -> anyhow::Result<Report> {
    let query = query::of_args(&args.query, args.linked.headers.iter().map(AsRef::as_ref))?;
    if args.rpc.is_given() {
        return of_provider(args, &query, json);
    }
    let given = args.trust.given_profile()?;
    let mut scan = Scan::new(args, query, given.unwrap_or_else(ChainProfile::ethereum));
    let compiled = scan.query.compile();
    let (from, to) = query::bounds(&scan.query);
    // An anchor may be after the range, so if an anchor is given, headers after the range are read
    // too.
    let kept = Bounds { from, to: to.filter(|_| args.trust.anchor.is_empty()) };
    // The first batch of headers determines the order of the scanner's tests. All batches share the
    // scanner.
    let scanner = OnceLock::new();
    let find = |chain: &LinkedHeaders| {
        let by = || Scanner::ordered_by(&compiled, chain.blooms());
        scanner.get_or_init(by).candidates(chain.blooms())
    };
    let mut lines = Lines::default();
    for_each_linked(&args.linked, kept, find, |chain, found| {
        let text = scan.take(chain, &found, json);
        if !args.count {
            lines.print(&text)?;
        }
        Ok(())
    })?;
    scan.check_coverage(from, to)?;
    Ok(scan.report(args, &compiled))
}

/// Scans headers from a provider.
fn of_provider(args: &ScanArgs, query: &LogQuery, json: bool) -> anyhow::Result<Report> {
    query::require_from(&args.query)?;
    let (builder, _) = builder(&args.rpc, vec![args.rpc.endpoint()?], Stop::new());
    // A light client decides what is final, not the provider.
    let is_decided = args.unfinalized || args.beacon.is_given();
    let builder = if is_decided { builder } else { builder.final_only() };
    let provider = builder.build()?;
    let chain_id = provider.chain_id().map_err(in_words_of_the_command)?;
    let profile = args.trust.profile_of(chain_id)?;
    let mut trusted =
        Trusted::given(&args.trust.anchor).bring(&args.beacon, &args.rpc, &provider)?;
    let query = trusted.bound(&provider, query.clone(), args.unfinalized);
    let provider = provider.with_anchor(trusted.anchors.clone());
    let mut found: Option<Scan> = None;
    let mut lines = Lines::default();
    let mut printed = Ok(());
    let asked = provider.scan_parts(&query, |asked, part| {
        let scan =
            found.get_or_insert_with(|| Scan::new(args, asked.query.clone(), profile.clone()));
        scan.anchors.clone_from(&trusted.anchors);
        let text = scan.take(part.chain, part.candidates, json);
        if !args.count {
            printed = lines.print(&text);
        }
        printed.is_ok() && !lines.is_closed()
    });
    let (asked, warnings) = asked.map_err(in_words_of_the_command)?;
    printed?;
    let compiled = asked.query.compile();
    let mut scan = found.unwrap_or_else(|| Scan::new(args, asked.query, profile));
    scan.provider = provider.nodes().first().map(|node| node.endpoint().to_string());
    scan.noted = words_of_all(&args.query, &warnings).chain(trusted.warnings()).collect();
    scan.anchors.clone_from(&trusted.anchors);
    scan.trusted = trusted;
    scan.check_coverage(None, None)?;
    Ok(scan.report(args, &compiled))
}

/// The results so far.
struct Scan {
    query: LogQuery,
    profile: ChainProfile,
    from: u64,
    to: u64,
    at_hash: Option<B256>,
    anchors: Vec<B256>,
    fills: FillHistogram,
    first: Option<u64>,
    last: Option<(u64, B256)>,
    anchored_to: Option<u64>,
    candidates: u64,
    no_information: u64,
    /// The provider of the headers, if they are not from files.
    provider: Option<String>,
    /// Warnings of the provider, and about what is trusted.
    noted: Vec<String>,
    /// The trusted hashes and their source, if there is a provider.
    trusted: Trusted,
}

impl Scan {
    fn new(args: &ScanArgs, query: LogQuery, profile: ChainProfile) -> Self {
        let (from, to) = query::bounds(&query);
        let at_hash = match query.blocks() {
            BlockSelection::AtHash(hash) => Some(*hash),
            BlockSelection::Range { .. } => None,
        };
        Self {
            from: from.unwrap_or(0),
            to: to.unwrap_or(u64::MAX),
            at_hash,
            anchors: args.trust.anchor.clone(),
            fills: FillHistogram::default(),
            first: None,
            last: None,
            anchored_to: None,
            candidates: 0,
            no_information: 0,
            provider: None,
            noted: Vec::new(),
            trusted: Trusted::given(&args.trust.anchor),
            query,
            profile,
        }
    }

    /// Adds a range of headers; returns the lines of its candidates.
    fn take(&mut self, chain: &LinkedHeaders, found: &[usize], json: bool) -> String {
        let anchored = chain.anchored_to(&self.anchors);
        self.anchored_to = anchored.or(self.anchored_to);
        let (range, at_hash) = (self.from..=self.to, self.at_hash);
        let asked = |number: u64, hash: B256| {
            range.contains(&number) && at_hash.is_none_or(|wanted| wanted == hash)
        };
        for (block, bloom) in chain.blocks().zip(chain.blooms()) {
            if asked(block.number, block.hash) {
                self.first.get_or_insert(block.number);
                self.last = Some((block.number, block.hash));
                self.fills.add([bloom]);
            }
        }
        let mut text = String::new();
        let mut found = found.iter().copied().peekable();
        for (index, block) in chain.blocks().enumerate() {
            let is_found = found.next_if_eq(&index).is_some();
            let proves_absence = self.profile.at(block.number).bloom.proves_absence();
            if !asked(block.number, block.hash) || (proves_absence && !is_found) {
                continue;
            }
            let bloom = BloomView::from(block);
            let informative = proves_absence && bloom.informative().is_some();
            self.no_information += u64::from(!informative);
            if self.candidates == 0 && !json {
                text += "block        hash                                                                fill     answer\n";
            }
            self.candidates += 1;
            let (number, hash) = (block.number, block.hash);
            let line = if json {
                let answer = if informative { "maybe" } else { "no_information" };
                let members = json!({ "number": number, "hash": hash, "answer": answer });
                json_line("candidate", members)
            } else {
                let answer = if informative { "maybe" } else { "no information" };
                let fill = format!("{:.1} %", f64::from(bloom.count_ones().unwrap_or(0)) / 20.48);
                format!("{:<11}  {hash}  {fill:>7}  {answer}\n", grouped(number))
            };
            text += &line;
        }
        text
    }

    /// Checks that the headers cover the queried blocks.
    fn check_coverage(&self, from: Option<u64>, to: Option<u64>) -> anyhow::Result<()> {
        let Some((last, _)) = self.last else {
            if let Some(hash) = self.at_hash {
                anyhow::bail!("none of the headers has the block hash of the query, {hash}");
            }
            anyhow::bail!("none of the headers is in the block range of the query");
        };
        query::check_coverage((self.first.unwrap_or(last), last), (from, to))
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.noted.clone();
        let (last, hash) = self.last.unwrap_or_default();
        match self.anchored_to {
            None if self.anchors.is_empty() => warnings.push(format!(
                "no --anchor: nothing is authenticated, and the result is only as reliable as {}. \
                 The last block is {last}, {hash}: if you trust this hash or that of a later block, \
                 give it as --anchor",
                match &self.provider {
                    Some(provider) => format!("the provider {provider}"),
                    None => "the source of the headers".into(),
                }
            )),
            None => warnings.push(String::from(
                "no header has the hash of an anchor: nothing is authenticated",
            )),
            Some(anchored) if anchored < last => warnings.push(format!(
                "the headers after block {anchored}, the highest anchor, are not authenticated"
            )),
            Some(_) => {}
        }
        if self.query.compile().matches_everything() {
            warnings.push(String::from("the query matches every log: every block is a candidate"));
        }
        warnings
    }

    fn report(&self, args: &ScanArgs, compiled: &CompiledQuery) -> Report {
        let blocks = self.fills.filters();
        let passed = float(self.candidates) / float(blocks.max(1));
        let rate = expected_false(compiled, &self.fills) / float(blocks.max(1));
        let (last, last_hash) = self.last.unwrap_or_default();
        let first = self.first.unwrap_or_default();
        let warnings = self.warnings();
        let chain_from = match &self.provider {
            _ if args.trust.names_chain() => "user",
            Some(_) => "provider",
            None => "assumed",
        };
        let mut json = json!({
            "blocks": blocks,
            "first": first,
            "last": last,
            "last_hash": last_hash,
            "candidates": self.candidates,
            "no_information": self.no_information,
            "share": passed,
            "rate": rate,
            "fill": self.fills.mean_fill(),
            "anchored_to": self.anchored_to,
            "query": self.query,
            "semantics": args.query.semantics,
            "chain": self.profile.name(),
            "chain_from": chain_from,
        });
        if let Some(provider) = &self.provider {
            json["provider"] = json!({ "host": provider });
            json["anchor_from"] = json!(self.trusted.source(None));
            json["light_client"] = self.trusted.json();
        }
        let mut page = Page::default();
        if self.candidates > 0 && !args.count {
            page.line("");
        }
        self.trusted.lines().into_iter().for_each(|line| page.line(line));
        let none = match self.no_information {
            0 => String::new(),
            count => format!(", {} of them because their filter excludes nothing", grouped(count)),
        };
        page.fields(vec![
            ("blocks", span(first, last, blocks)),
            ("candidates", format!("{}, {}{none}", grouped(self.candidates), share(passed))),
            ("by chance", format!("{} of the blocks without a match pass the filter", share(rate))),
            ("fill", format!("{} on average", share(self.fills.mean_fill()))),
            (
                "chain",
                format!(
                    "{}{}",
                    self.profile.name(),
                    if chain_from == "assumed" { ", assumed" } else { "" }
                ),
            ),
            (
                "authentic",
                match self.anchored_to {
                    Some(anchored) if anchored >= last => "all blocks".into(),
                    Some(anchored) => format!("blocks up to {}", grouped(anchored)),
                    None => "unknown".into(),
                },
            ),
        ]);
        // The user gave an anchor to prove the result, but it does not authenticate all blocks.
        let is_unproven = !self.anchors.is_empty() && self.anchored_to.is_none_or(|at| at < last);
        let exit = if is_unproven { Exit::Undecided } else { Exit::from(self.candidates > 0) };
        Report::new(page, json, exit).with_warnings(warnings).after_lines()
    }
}
