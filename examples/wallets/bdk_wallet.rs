//! Keeps a wallet of `bdk_wallet` up to date: its history, a broadcast payment, a reorganisation.
//!
//! A program that stores its wallet must persist it before it acknowledges an update: an acknowledged
//! update does not come again.
use std::error::Error;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bdk_wallet::chain::{BlockId, CheckPoint, ConfirmationBlockTime, TxUpdate};
use bdk_wallet::{KeychainKind, SignOptions, Update as BdkUpdate, Wallet as BdkWallet};
use chainsieve_client::chainsieve::bitcoin::{Amount, ScriptBuf, bip32::Xpriv};
use chainsieve_client::chainsieve::btc::headers::BlockAt;
use chainsieve_client::testnode::Node;
use chainsieve_client::{Birthday, BroadcastNews, Builder, Client, Item, Network, News, Wallet};

const KEY: &str = "tprv8ZgxMBicQKsPd3EupYiPRhaMooHKUHJxNsTfYuScep13go8QFfHdtkG9nRkFGb7busX4isf6X9dURGCoKgitaApQ6MupRhZMcELAxTBRJgS";

fn main() -> Result<(), Box<dyn Error>> {
    let [external, internal] = [0, 1].map(|chain| format!("wpkh({KEY}/84'/1'/0'/{chain}/*)"));
    let bdk = BdkWallet::create(external, internal).network(Network::Regtest);
    let mut bdk = bdk.create_wallet_no_persist()?;
    let (node, foreign) = (Node::regtest()?, ScriptBuf::from_hex("51")?);
    node.mine(&bdk.reveal_next_address(KeychainKind::External).script_pubkey());
    node.mine_many(&foreign, 100);
    let items = [KeychainKind::External, KeychainKind::Internal]
        .map(|it| Item::Descriptor(bdk.public_descriptor(it).to_string(), 0..=19));
    let builder = Builder::new(Network::Regtest).peer(node.address().to_string());
    let client = builder.wallet("bdk", Wallet::new(Birthday::Height(0), items.into())).start()?;
    follow(&client, &mut bdk, |news| matches!(news, News::CaughtUp(_)))?;
    println!("past: {}", bdk.balance().total());
    let mut payment = bdk.build_tx();
    payment.add_recipient(foreign.clone(), Amount::from_sat(1_000_000));
    let mut psbt = payment.finish()?;
    psbt.sign(&KEY.parse::<Xpriv>()?, bdk.secp_ctx()).map_err(|(_, e)| format!("{e:?}"))?;
    bdk.finalize_psbt(&mut psbt, SignOptions::default())?;
    let payment = psbt.extract_tx()?;
    // Without this, the wallet could spend the same coins again.
    bdk.apply_unconfirmed_txs([(payment.clone(), now()?)]);
    client.broadcast(payment)?;
    while node.chain().mempool().is_empty() {
        std::thread::yield_now();
    }
    node.mine(&foreign);
    follow(&client, &mut bdk, |it| {
        matches!(it, News::Broadcast { news: BroadcastNews::Mined(_), .. })
    })?;
    println!("after a payment: {}", bdk.balance().total());
    node.reorganize(50, &foreign);
    follow(&client, &mut bdk, |news| matches!(news, News::Withdrawn(_)))?;
    println!("after a reorganisation: {} confirmed", bdk.balance().confirmed);
    Ok(client.shutdown()?)
}

fn follow(
    client: &Client,
    bdk: &mut BdkWallet,
    is_last: impl Fn(&News) -> bool,
) -> Result<(), Box<dyn Error>> {
    for update in client.updates() {
        let mut tx_update = TxUpdate::default();
        let mut tip = bdk.latest_checkpoint();
        match &update.news {
            News::Hit(hit) => {
                tx_update.txs.push(Arc::new(hit.transaction.clone()));
                if let (Some(place), Some(header)) = (hit.place, hit.header) {
                    let (block_id, confirmation_time) = (id(place.block), header.time.into());
                    let anchor = ConfirmationBlockTime { block_id, confirmation_time };
                    tx_update.anchors.insert((anchor, hit.txid));
                    tip = tip.insert(block_id);
                }
            }
            // The transaction becomes unconfirmed when its block leaves the wallet's checkpoints.
            // Without a block, it is gone.
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
        bdk.apply_update(BdkUpdate { tx_update, chain: Some(tip), ..BdkUpdate::default() })?;
        // Here a program persists the wallet.
        client.acknowledge(&update);
        if is_last(&update.news) {
            return Ok(());
        }
    }
    Err("the client has stopped".into())
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

fn now() -> Result<u64, Box<dyn Error>> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
}
