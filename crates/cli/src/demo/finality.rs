//! The last part of `demo`: from a checkpoint to a finalised execution header.

use anyhow::{Context as _, ensure};
use chainsieve::alloy_primitives::{B256, keccak256};
use chainsieve::eth::anchor::grade::Grade;
use chainsieve::eth::anchor::network::{Fork, Network};
use chainsieve::eth::anchor::sync_committee::{Bootstrap, Event, LightClient, Update, UpdateKind};
use chainsieve_report::{Page, with_separators};
use serde_json::{Value, json};

use crate::eth::anchor::show;

const FIXTURE: &str = include_str!("blocks/ethereum_anchor.json");

/// Verifies what a beacon node answered in April 2026, and a header that any node may send.
pub(super) fn run(page: &mut Page) -> anyhow::Result<Value> {
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
    let [first, last] = updates.each_ref().map(|update| update.aggregate.participants());
    // The time at which the answers were given, so that all runs are equal.
    let slots = updates.iter().map(|update| update.signature_slot);
    let now = network.time_of_slot(slots.max().unwrap_or_default());
    let mut client = LightClient::new(network, checkpoint, &bootstrap_of, now)?;
    for update in &updates {
        let _ = client.handle(Event::Update(update), now)?;
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
        "   updates     signed by {first} and by {last} of them; the second one finalises slot {}",
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
        "finalized": show::json(anchor, true),
        "header": format!("0x{}", hex::encode(&header)),
    }))
}
