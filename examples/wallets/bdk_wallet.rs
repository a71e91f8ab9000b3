//! Keeps a wallet of `bdk_wallet` up to date: its history, a broadcast payment, a reorganisation. The wallet is
//! not stored: see `bdk_stored.rs` for that.

mod bdk_updates;

use std::error::Error;

use bdk_wallet::{KeychainKind, SignOptions, Wallet as BdkWallet};
use chainsieve_client::chainsieve::bitcoin::{Amount, ScriptBuf, bip32::Xpriv};
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
    bdk.apply_unconfirmed_txs([(payment.clone(), bdk_updates::now()?)]);
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
        bdk_updates::apply(client, bdk, &update.news)?;
        client.acknowledge(&update);
        if is_last(&update.news) {
            return Ok(());
        }
    }
    Err("the client has stopped".into())
}
