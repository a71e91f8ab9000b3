//! What is followed, and from where: arguments, the provider's word and what an earlier process
//! left, put together.

use anyhow::{Context as _, anyhow, bail, ensure};
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope, Stretch};
use chainsieve::eth::log_query::{BlockSelection, BlockTag, LogQuery};
use chainsieve::simd::Backend;
use serde_json::{Value, json};

use super::blocks::Point;
use super::indexed::Indexed;
use super::machine::Machine;
use super::messages::Rules;
use super::state::{self, Left, StateFile, Subject};
use crate::args::UsageError;
use crate::args::eth::FollowArgs;
use crate::eth::rpc::Provider;
use crate::eth::{profile, query};
use crate::output::grouped;

/// All that a driver needs.
pub(super) struct Start {
    pub(super) machine: Machine,
    pub(super) state: Option<StateFile>,
    pub(super) subject: Subject,
    pub(super) index: Option<Indexed>,
    pub(super) warnings: Vec<String>,
    /// The first line of the JSON.
    pub(super) line: Value,
}

pub(super) fn start(args: &FollowArgs, provider: &Provider) -> anyhow::Result<Start> {
    let reader = query::stdin_once(&args.query, [])?;
    let query = query::read(&args.query, &reader)?;
    let BlockSelection::Range { from: from_tag, to: to_tag } = *query.blocks() else {
        return Err(UsageError("a query for one blockHash is not followed: give --from").into());
    };
    let state = args.state.as_deref().map(StateFile::open).transpose()?;
    let (left_of, left) = match &state {
        Some(state) => state.read()?.unzip(),
        None => (None, None),
    };
    let named = || provider.name();
    let chain_id = provider.chain_id().with_context(named)?;
    let mut warnings = Vec::new();
    let profile = chain_profile(args, chain_id, &mut warnings)?;
    let to = last_block(to_tag)?;
    let from = first_block(left_of.as_ref(), from_tag, |tag| provider.head(tag).map(Into::into));
    let from = from.with_context(named)?;
    if let Some(to) = to.filter(|&to| to < from) {
        bail!("the range begins at block {from} and ends before it, at {to}");
    }
    let anchors = anchors(args, provider)?;
    let mut index = args.index.as_deref().map(|path| Indexed::open(path, &query)).transpose()?;
    let index_to = match &mut index {
        Some(index) => indexed_to(index, provider, &profile, from, args.keep)?,
        None => None,
    };
    let (indexed_anchors, anchors) = anchors
        .into_iter()
        .partition::<Vec<_>, _>(|anchor| index_to.is_some_and(|to| anchor.number <= to));
    let lowest = anchors.iter().map(|anchor| anchor.number).fold(from, u64::min);
    let subject = Subject {
        chain_id,
        query: without_range(&query)?,
        semantics: args.query.semantics.name().into(),
        start: left_of.as_ref().map_or(lowest, |subject| subject.start),
        from,
    };
    if let Some(before) = &left_of {
        let number = match from_tag {
            Some(BlockTag::Number(number)) => Some(number),
            Some(BlockTag::Earliest) => Some(0),
            _ => None,
        };
        same_subject(before, &subject, number)?;
    }
    let rules = Rules {
        semantics: args.query.semantics.rules(),
        profile,
        start: subject.start,
        from,
        to,
        confirmations: args.confirmations,
        keep: usize::try_from(args.keep).unwrap_or(usize::MAX),
        index_to,
        anchors,
        query,
    };
    let left = left.unwrap_or_default();
    kept_anchors(&rules, &left, &mut warnings)?;
    warn(&rules, args.trust.anchor.len(), provider, &mut warnings);
    let anchored_by_index = match &mut index {
        Some(index) => compare_anchors(index, &indexed_anchors, &mut warnings)?,
        None => None,
    };
    let is_first = left_of.is_none();
    let resumed = left.blocks.last_printed().map(|last| last.number);
    let line = first_line(&rules, &subject, &indexed_anchors, provider, resumed, &warnings)?;
    let mut machine = Machine::resume(rules, left.blocks, left.reorg, left.anchored);
    if let Some(anchor) = anchored_by_index {
        machine.anchor(anchor);
    }
    // Where it starts is known after any kill before a reader learns of it: a later start would
    // find another head, and leave out the blocks between.
    if let Some(state) = state.as_ref().filter(|_| is_first) {
        state.write(&state::text(&machine, &subject, None)?)?;
    }
    Ok(Start {
        machine,
        state,
        subject,
        index: index.filter(|_| index_to.is_some()),
        warnings,
        line,
    })
}

/// The first block of interest: that of an earlier process, or else what the query says. A tag
/// means what it names at the first start.
pub(super) fn first_block<E>(
    left: Option<&Subject>,
    from: Option<BlockTag>,
    head: impl FnOnce(BlockTag) -> Result<Point, E>,
) -> Result<u64, E> {
    if let Some(left) = left {
        return Ok(left.from);
    }
    match from.unwrap_or(BlockTag::Latest) {
        BlockTag::Number(number) => Ok(number),
        BlockTag::Earliest => Ok(0),
        tag @ (BlockTag::Safe | BlockTag::Finalized) => Ok(head(tag)?.number),
        BlockTag::Latest | BlockTag::Pending => Ok(head(BlockTag::Latest)?.number),
    }
}

/// The last block of interest; none where it goes on with live blocks.
fn last_block(to: Option<BlockTag>) -> Result<Option<u64>, UsageError> {
    match to {
        Some(BlockTag::Number(number)) => Ok(Some(number)),
        Some(BlockTag::Earliest) => Ok(Some(0)),
        None | Some(BlockTag::Latest | BlockTag::Pending) => Ok(None),
        Some(BlockTag::Safe | BlockTag::Finalized) => {
            Err(UsageError("it ends at a block's number, or follows the latest one"))
        }
    }
}

/// The first line of the JSON.
fn first_line(
    rules: &Rules,
    subject: &Subject,
    indexed_anchors: &[Point],
    provider: &Provider,
    resumed: Option<u64>,
    warnings: &[String],
) -> anyhow::Result<Value> {
    let anchors = indexed_anchors.iter().chain(&rules.anchors);
    let anchors: Vec<_> =
        anchors.map(|anchor| json!({ "number": anchor.number, "hash": anchor.hash })).collect();
    Ok(json!({ "follow": {
        "chain_id": subject.chain_id,
        "chain": rules.profile.name(),
        "provider": provider.name(),
        "from": rules.from,
        "to": rules.to,
        "resumed": resumed,
        "bloom": soundness(rules.profile.at(rules.from).bloom),
        "anchors": anchors,
        "confirmations": rules.confirmations,
        "keep": rules.keep,
        "index_to": rules.index_to,
        "query": serde_json::from_str::<Value>(&subject.query)?,
        "semantics": subject.semantics,
        "warnings": warnings,
    }}))
}

/// What people are told at the start.
pub(super) fn notes(machine: &Machine, subject: &Subject, provider: &Provider) -> Vec<String> {
    let rules = machine.rules();
    let from = match machine.blocks().last_printed() {
        Some(last) => format!("on from block {}, {}", grouped(last.number), last.hash),
        None => format!("from block {}", grouped(rules.from)),
    };
    let filters = soundness(rules.profile.at(rules.from).bloom);
    vec![format!("{}: chain {}, filters {filters}, {from}", provider.name(), subject.chain_id)]
}

fn soundness(bloom: BloomSoundness) -> &'static str {
    match bloom {
        BloomSoundness::Exact => "exact",
        BloomSoundness::Superset => "superset",
        BloomSoundness::Absent => "absent",
        BloomSoundness::Unsound => "unsound",
    }
}

fn chain_profile(
    args: &FollowArgs,
    chain_id: u64,
    warnings: &mut Vec<String>,
) -> anyhow::Result<ChainProfile> {
    if profile::is_of_user(&args.trust) {
        return profile::of_provider(&args.trust, chain_id);
    }
    Ok(ChainProfile::of_chain_id(chain_id).unwrap_or_else(|| {
        warnings.push(format!(
            "chain {chain_id} is not known here: its filters are not looked at, and receipts of \
             every block are fetched, unless --assume-bloom says what they are"
        ));
        let name = format!("chain {chain_id}");
        let (bloom, scope) = (BloomSoundness::Unsound, ReceiptsScope::NotEveryLog);
        ChainProfile::assumed(name, bloom, scope)
    }))
}

/// Number and hash of each anchor. The number is bound by the hash.
fn anchors(args: &FollowArgs, provider: &Provider) -> anyhow::Result<Vec<Point>> {
    let anchors = args.trust.anchor.iter().map(|anchor| {
        let header = provider.header_by_hash(anchor.0).with_context(|| provider.name())?;
        let header = header.ok_or_else(|| {
            anyhow!("{}: it does not have the anchor, block {}", provider.name(), anchor.0)
        })?;
        Ok(Point { number: header.view().number(), hash: header.hash() })
    });
    anchors.collect()
}

/// Up to which block the index says which ones are candidates: all but the newest of it, which may
/// leave the chain.
fn indexed_to(
    index: &mut Indexed,
    provider: &Provider,
    profile: &ChainProfile,
    from: u64,
    keep: u64,
) -> anyhow::Result<Option<u64>> {
    let (first, last) = index.numbers().into_inner();
    ensure!(first <= from, "{} begins at block {first}, --from is {from}", index.name());
    let Some(to) = last.checked_sub(keep).filter(|&to| to >= from) else { return Ok(None) };
    let proves_absence = |stretch: &Stretch| stretch.first > to || stretch.bloom.proves_absence();
    let is_sound = profile.at(from).bloom.proves_absence()
        && profile.stretches().iter().filter(|stretch| stretch.first > from).all(proves_absence);
    ensure!(
        is_sound,
        "filters of {} prove nothing up to block {to}, and so does an index of them: without \
         --index receipts of every block are fetched; --assume-bloom says what filters are",
        profile.name()
    );
    let ours = index.block(to)?;
    let theirs = provider.header(to).with_context(|| provider.name())?;
    let theirs = theirs.map(|header| header.hash());
    if theirs != Some(ours.hash) {
        let theirs = theirs.map_or_else(|| "not there".into(), |hash| format!("{hash}"));
        bail!(
            "block {to} is {} in {}, and {theirs} at {}",
            ours.hash,
            index.name(),
            provider.name()
        );
    }
    Ok(Some(to))
}

/// Compares anchors with the index; the highest that it has.
fn compare_anchors(
    index: &mut Indexed,
    anchors: &[Point],
    warnings: &mut Vec<String>,
) -> anyhow::Result<Option<Point>> {
    let mut highest: Option<Point> = None;
    for &anchor in anchors {
        if !index.numbers().contains(&anchor.number) {
            warnings.push(format!(
                "anchor {} is below the blocks of the index: it is not compared",
                anchor.hash
            ));
            continue;
        }
        let block = index.block(anchor.number)?;
        ensure!(
            block == anchor,
            "block {} of {} is {}, and the anchor is {}: it is of another chain",
            anchor.number,
            index.name(),
            block.hash,
            anchor.hash
        );
        if highest.is_none_or(|highest| highest.number < anchor.number) {
            highest = Some(anchor);
        }
    }
    Ok(highest)
}

/// The query as `eth_getLogs` takes it, without blocks.
fn without_range(query: &LogQuery) -> anyhow::Result<String> {
    let mut json: Value = serde_json::from_str(&query.to_json())?;
    if let Some(fields) = json.as_object_mut() {
        fields.remove("fromBlock");
        fields.remove("toBlock");
    }
    Ok(json.to_string())
}

/// Whether an earlier process followed the same.
fn same_subject(before: &Subject, now: &Subject, from: Option<u64>) -> anyhow::Result<()> {
    let other = "for another one give another file";
    ensure!(
        before.chain_id == now.chain_id,
        "--state is of chain {}, the provider's chain id is {}: {other}",
        before.chain_id,
        now.chain_id
    );
    ensure!(
        (&before.query, &before.semantics) == (&now.query, &now.semantics),
        "--state is of the query {} with the rules of {}: {other}",
        before.query,
        before.semantics
    );
    if let Some(from) = from.filter(|&from| from != before.from) {
        bail!("--state begins at block {}, --from is {from}: {other}", before.from);
    }
    Ok(())
}

/// Compares the anchors below the last block of an earlier process with what it left.
fn kept_anchors(rules: &Rules, left: &Left, warnings: &mut Vec<String>) -> anyhow::Result<()> {
    let Some(last) = left.blocks.last() else { return Ok(()) };
    for &anchor in rules.anchors.iter().filter(|anchor| anchor.number <= last.number) {
        match left.blocks.get(anchor.number) {
            Some(block) if block.at != anchor => bail!(
                "block {} of --state is {}, and the anchor is {}: it is of another chain",
                anchor.number,
                block.at.hash,
                anchor.hash
            ),
            Some(_) => {}
            None if left.anchored == Some(anchor) => {}
            None => warnings.push(format!(
                "anchor {} is below the blocks that --state keeps: it is not compared",
                anchor.hash
            )),
        }
    }
    Ok(())
}

fn warn(rules: &Rules, args_anchors: usize, provider: &Provider, warnings: &mut Vec<String>) {
    if args_anchors == 0 {
        warnings.push(format!(
            "nothing is authenticated: which blocks are the chain is the word of {}. With the hash \
             of a block that you trust, --anchor compares it",
            provider.name()
        ));
    }
    if rules.query.compile(Backend::best()).matches_everything() {
        warnings
            .push(String::from("the query wants every log: receipts of every block are fetched"));
    }
    let stretch = rules.profile.at(rules.from);
    if stretch.receipts == ReceiptsScope::NotEveryLog {
        warnings.push(format!(
            "nodes of {} may return logs that are in no receipt: those are not found",
            rules.profile.name()
        ));
    }
}
