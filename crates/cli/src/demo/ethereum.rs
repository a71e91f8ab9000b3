//! The second half of `demo`: an answer of `eth_getLogs` that omits a log, and the proof of that;
//! then the way from a checkpoint to a finalised execution header.

use anyhow::{Context as _, ensure};
use chainsieve::alloy_primitives::{Address, B256, address, keccak256};
use chainsieve::eth::anchor::Grade;
use chainsieve::eth::anchor::network::{Fork, Network};
use chainsieve::eth::anchor::sync_committee::{self, Bootstrap, LightClient, Update, UpdateKind};
use chainsieve::eth::audit::{Audit, AuditQuestion, AuditReport, Status};
use chainsieve::eth::certificate::Certificate;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::header::{BlockRef, HeaderView, LinkedHeaders};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{LogQuery, ResolvedBlocks, Semantics};
use chainsieve::eth::receipts::BlockReceipts;
use chainsieve_report::{Page, with_separators};
use serde_json::{Value, json};

use crate::eth::anchor::client::anchor_json;

const BLOCKS: [&str; 2] =
    [include_str!("blocks/ethereum_17686111.json"), include_str!("blocks/ethereum_17686112.json")];
const WETH: Address = address!("0xC02aaA39b223FE8D0A0e5C4F27eAD9083C756Cc2");
const ROUTER: Address = address!("0x7a250d5630B4cF539739dF2C5dAcb4c659F2488D");
const EVENT: &str = "Deposit(address,uint256)";
/// The index of the log in the first block that the node omits.
const WITHHELD: u64 = 257;

struct Block {
    header: Vec<u8>,
    hash: B256,
    receipts: BlockReceipts,
}

impl Block {
    fn read(fixture: &str) -> anyhow::Result<Self> {
        let fixture: Value = serde_json::from_str(fixture)?;
        let bytes = |value: &Value| -> anyhow::Result<Vec<u8>> {
            let text = value.as_str().context("the fixture holds hex")?;
            Ok(hex::decode(text.trim_start_matches("0x"))?)
        };
        let encodings = fixture["receipts"].as_array().context("the fixture holds receipts")?;
        let encodings = encodings.iter().map(bytes).collect::<anyhow::Result<Vec<_>>>()?;
        let header = bytes(&fixture["header"])?;
        let hash = HeaderView::decode(&header)?.hash();
        Ok(Self { header, hash, receipts: BlockReceipts::from_encodings(&encodings)? })
    }

    /// Returns the logs of this block that an honest node returns for a query.
    fn logs(&self, query: &LogQuery) -> anyhow::Result<Vec<LocatedLog>> {
        let header = HeaderView::decode(&self.header)?;
        let verified = self.receipts.verify(header.receipts_root(), header.logs_bloom())?;
        let logs = verified.logs_matching(|log| query.matches(log, Semantics::Geth));
        let block = BlockRef { number: header.number(), hash: self.hash };
        Ok(logs.map(|found| found.located(block, header.timestamp())).collect())
    }
}

/// Audits an incomplete and a complete answer, and shows the results.
pub(super) fn audit_answers(page: &mut Page) -> anyhow::Result<Value> {
    let blocks = BLOCKS.into_iter().map(Block::read).collect::<anyhow::Result<Vec<_>>>()?;
    // The user has headers, and trusts the hash of the last one, for example as a finalised block.
    let mut chain = LinkedHeaders::new();
    for block in &blocks {
        chain.extend_from_rlp(&block.header)?;
    }
    let anchor = chain.last_hash().context("two headers")?;
    let (first, last) = chain.numbers().context("two headers")?.into_inner();
    let query =
        LogQuery::new().from_block(first).to_block(last).address(WETH).event(EVENT)?.topic1(ROUTER);

    let question = AuditQuestion {
        chain: &chain,
        anchors: &[anchor],
        query: &query,
        blocks: ResolvedBlocks::Range { first, last },
        semantics: Semantics::Geth,
        profile: &ChainProfile::ethereum(),
    };
    // The answer of an honest node, and the answer of a node that omits a log.
    let whole =
        blocks.iter().map(|block| block.logs(&query)).collect::<anyhow::Result<Vec<_>>>()?;
    let whole = whole.concat();
    let withheld = |log: &&LocatedLog| (log.block_number, log.log_index) != (first, WITHHELD);
    let answer: Vec<_> = whole.iter().filter(withheld).cloned().collect();

    let report = audit(question, &answer, &blocks)?;
    ensure!(report.status() == Status::Wrong, "the audit does not detect the omission");
    let omitted = report.omitted().next().context("an omission")?;
    // Anyone who has the header and the answer can verify the proof, without receipts.
    let header = HeaderView::decode(&blocks.first().context("two blocks")?.header)?;
    omitted.verify(&header, &query, Semantics::Geth, &answer)?;

    let complete = audit(question, &whole, &blocks)?;
    ensure!(
        complete.status() == Status::Complete,
        "the audit does not report that the full answer is complete"
    );
    let certificate = Certificate::from_report(&question, &complete, &whole)?;
    let receipts: usize = blocks.iter().map(|block| block.receipts.len()).sum();
    let hex = |block: &Block| format!("0x{}", hex::encode(&block.header));
    let json = json!({
        "headers": blocks.iter().map(hex).collect::<Vec<_>>(),
        "anchor": anchor,
        "query": query,
        "receipts": receipts,
        "answered": answer.len(),
        "omitted": omitted.log,
        "receipt_proof": omitted.proof,
        "complete": whole.len(),
        "certificate": certificate,
    });
    page.line("");
    page.line(format!(
        "Blocks {} and {} of Ethereum. The user trusts the hash of the second block.",
        with_separators(first),
        with_separators(last)
    ));
    page.line("");
    page.heading("5  A user asks a node for logs");
    page.line(format!("   {EVENT} of {WETH}, which is wrapped ether,"));
    page.line(format!("   to {ROUTER}, a router of Uniswap"));
    page.line(format!(
        "   The node answers with {} logs. The user does not trust the node.",
        answer.len()
    ));
    page.line("");
    page.heading("6  The user audits the answer");
    page.line(format!(
        "   The filters of both blocks answer \"maybe\". All {} receipts hash to the roots in the \
         headers,",
        with_separators(receipts)
    ));
    page.line("   so they contain every log of these blocks.");
    let findings = report.findings.iter().map(ToString::to_string);
    for line in findings.flat_map(|text| text.split("; ").map(str::to_owned).collect::<Vec<_>>()) {
        page.line(format!("   {line}"));
    }
    page.line("   With the header and the answer, anyone verifies that.");
    page.line("");
    page.heading("7  With that log, the answer is complete");
    page.line(format!(
        "   {} logs, proven to be complete; others can verify this with a certificate of {} bytes",
        whole.len(),
        certificate.to_json().len()
    ));
    Ok(json)
}

fn audit(
    question: AuditQuestion<'_>,
    answer: &[LocatedLog],
    blocks: &[Block],
) -> anyhow::Result<AuditReport> {
    let mut audit = Audit::new(question, answer)?;
    supply(&mut audit, blocks);
    Ok(audit.finish())
}

/// Gives an audit the receipts that it needs.
fn supply(audit: &mut Audit<'_>, blocks: &[Block]) {
    let open: Vec<_> = audit.open().collect();
    for BlockRef { hash, .. } in open {
        if let Some(block) = blocks.iter().find(|block| block.hash == hash) {
            let _ = audit.check_receipts(hash, &block.receipts);
        }
    }
}

const FIXTURE: &str = include_str!("blocks/ethereum_anchor.json");

/// Verifies what a beacon node answered in April 2026, and a header that any node may send.
pub(super) fn finality(page: &mut Page) -> anyhow::Result<Value> {
    let fixture: Value = serde_json::from_str(FIXTURE)?;
    let text = |value: &Value| value.as_str().map(str::to_owned).context("the fixture holds hex");
    let bytes = |value: &Value| -> anyhow::Result<Vec<u8>> { Ok(hex::decode(text(value)?)?) };
    let [bootstrap, update, finality] =
        ["bootstrap", "update", "finality_update"].map(|name| bytes(&fixture[name]));
    let (bootstrap, update, finality) = (bootstrap?, update?, finality?);
    let header = bytes(&fixture["execution"]["header"])?;
    let checkpoint: B256 = text(&fixture["checkpoint"])?.parse()?;
    let network = Network::mainnet();
    let preset = network.preset();

    let bootstrap_of = Bootstrap::from_ssz(&bootstrap, Fork::Fulu, preset)?;
    let updates = [
        Update::from_ssz(&update, UpdateKind::Full, Fork::Fulu, preset)?,
        Update::from_ssz(&finality, UpdateKind::Finality, Fork::Fulu, preset)?,
    ];
    let [first, last] = updates.each_ref().map(|update| update.aggregate.participation().signed);
    // The time at which the answers were given, so that all runs are equal.
    let slots = updates.iter().map(|update| update.signature_slot);
    let now = network.time_of_slot(slots.max().unwrap_or_default());
    let mut client = LightClient::new(network, checkpoint, &bootstrap_of, now)?;
    for update in &updates {
        let _ = client.handle(sync_committee::Event::Update(update), now)?;
    }
    let anchor = client.finalized();
    let hash = keccak256(&header);
    ensure!(anchor.grade() == Grade::Finalized, "the updates finalise nothing");
    ensure!(anchor.execution.bound_hash() == Some(hash), "another header is bound");

    let number = anchor.execution.header().context("a header of Fulu")?.block_number;
    page.line("");
    page.heading("8  A user learns which block is final");
    let slot = with_separators(client.trust().checkpoint.slot);
    page.line(format!("   checkpoint  {checkpoint}, slot {slot}"));
    let keys = preset.sync_committee_size();
    page.line(format!(
        "   bootstrap   the {keys} keys of the sync committee, under the checkpoint"
    ));
    page.line(format!(
        "   updates     signed by {first} and by {last} of them; the second update finalises slot {}",
        with_separators(anchor.beacon.slot)
    ));
    page.line(format!(
        "   proven      execution block {} is finalised, if the checkpoint is; any node may send",
        with_separators(number)
    ));
    page.line(format!(
        "               its header: {} bytes that hash to {:.18}…",
        header.len(),
        hash.to_string()
    ));
    page.line("   not proven  full consensus: the members are not slashed for a false signature");
    Ok(json!({
        "checkpoint": checkpoint,
        "finalized": anchor_json(anchor, true),
        "header": format!("0x{}", hex::encode(&header)),
    }))
}
