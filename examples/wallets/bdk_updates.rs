//! Applies what the client finds to a wallet of `bdk_wallet`.

use std::error::Error;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bdk_wallet::chain::{BlockId, CheckPoint, ConfirmationBlockTime, TxUpdate};
use bdk_wallet::{Update, Wallet};
use chainsieve_client::chainsieve::btc::headers::BlockAt;
use chainsieve_client::{Client, News};

/// Applies an update of the client.
///
/// A program that stores its wallet must persist it before it acknowledges the update: an acknowledged update
/// does not come again.
pub(crate) fn apply(client: &Client, bdk: &mut Wallet, news: &News) -> Result<(), Box<dyn Error>> {
    let mut tx_update = TxUpdate::default();
    let mut tip = bdk.latest_checkpoint();
    match news {
        News::Hit(hit) => {
            tx_update.txs.push(Arc::new(hit.transaction.clone()));
            if let (Some(place), Some(header)) = (hit.place, hit.header) {
                let (block_id, confirmation_time) = (id(place.block), header.time.into());
                let anchor = ConfirmationBlockTime { block_id, confirmation_time };
                tx_update.anchors.insert((anchor, hit.txid));
                tip = tip.insert(block_id);
            }
        }
        // The transaction becomes unconfirmed when its block leaves the wallet's checkpoints. Without a block,
        // it is gone.
        News::Withdrawn(hit) if hit.place.is_none() => {
            bdk.apply_evicted_txs([(hit.txid, now()?)]);
        }
        News::Reorganized { .. } => tip = on_best_chain(client, tip)?,
        // A reorganisation may have been acknowledged just before a crash.
        News::CaughtUp(progress) => {
            tip = on_best_chain(client, tip)?.insert(id(progress.tip));
        }
        // For example, a peer has no filters.
        News::Finding(finding) => eprintln!("{finding}"),
        _ => {}
    }
    Ok(bdk.apply_update(Update { tx_update, chain: Some(tip), ..Update::default() })?)
}

/// Replaces the wallet's checkpoints that have left the best chain.
///
/// BDK drops a checkpoint, and all above it, only for another block at the very same height. The
/// block above the fork is not enough: the wallet may have no checkpoint there.
fn on_best_chain(client: &Client, tip: CheckPoint) -> Result<CheckPoint, Box<dyn Error>> {
    let mut lowest = None;
    for checkpoint in tip.iter() {
        match client.block_at(checkpoint.height())? {
            Some(at) if at.hash == checkpoint.hash() => break,
            // `None` is above the tip. The chain will grow to this height, and then replace it.
            block => lowest = block.or(lowest),
        }
    }
    Ok(match lowest {
        Some(at) => tip.insert(id(at)),
        None => tip,
    })
}

fn id(at: BlockAt) -> BlockId {
    BlockId { height: at.height, hash: at.hash }
}

pub(crate) fn now() -> Result<u64, Box<dyn Error>> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
}
