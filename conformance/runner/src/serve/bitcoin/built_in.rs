//! The built-in chain: regtest blocks that are valid by consensus, with payments to known scripts.

use chainsieve::bitcoin::absolute::LockTime;
use chainsieve::bitcoin::constants::genesis_block;
use chainsieve::bitcoin::key::{CompressedPublicKey, PrivateKey};
use chainsieve::bitcoin::secp256k1::{All, Message, Secp256k1, SecretKey};
use chainsieve::bitcoin::sighash::{EcdsaSighashType, SighashCache};
use chainsieve::bitcoin::{
    Address, Amount, Block, Network, NetworkKind, OutPoint, ScriptBuf, Sequence, Transaction, TxIn,
    TxOut, Witness, ecdsa, transaction,
};
use chainsieve_client::testnode::next_block;
use serde::Serialize;

/// Number of blocks after the genesis block. Below 150, the first halving on regtest, every block
/// may create 50 bitcoin.
const BLOCKS: u32 = 140;
/// Number of blocks after which a coinbase output may be spent.
const MATURITY: u32 = 100;
/// One coinbase output, which is the input of each payment.
const SUBSIDY: Amount = Amount::from_sat(50 * 100_000_000);
/// The amount of each payment to a known script.
const PAYMENT: Amount = Amount::from_sat(100_000_000);
/// The fee of each transaction. The coinbase does not claim it.
const FEE: Amount = Amount::from_sat(1_000);
/// Secret key of the miner, as a number.
const MINER: u8 = 9;

/// A script that the built-in chain pays to. A wallet that watches it must find the payments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KnownScript {
    /// The kind of the script: `p2pkh`, `p2sh-p2wpkh`, `p2wpkh` or `p2tr`.
    pub kind: &'static str,
    /// The address on regtest.
    #[serde(serialize_with = "as_text")]
    pub address: Address,
    /// The script, which serialises as hex.
    #[serde(serialize_with = "as_hex")]
    pub script: ScriptBuf,
    /// The secret key in wallet import format. The key is worthless: it is a number below 10.
    pub wif: String,
}

fn as_text<S: serde::Serializer>(address: &Address, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(address)
}

fn as_hex<S: serde::Serializer>(script: &ScriptBuf, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{script:x}"))
}

/// A key whose secret is a small number.
struct Key {
    secret: SecretKey,
    public: CompressedPublicKey,
    secp: Secp256k1<All>,
}

impl Key {
    fn new(number: u8) -> Self {
        let mut bytes = [0; 32];
        bytes[31] = number;
        let secp = Secp256k1::new();
        let secret = SecretKey::from_slice(&bytes).expect("a number from 1 to 9 is a key");
        let public = CompressedPublicKey(secret.public_key(&secp));
        Self { secret, public, secp }
    }

    fn wpkh(&self) -> ScriptBuf {
        ScriptBuf::new_p2wpkh(&self.public.wpubkey_hash())
    }

    /// Signs the only input, which spends an output of [`wpkh`](Self::wpkh) (BIP143).
    fn sign(&self, tx: &mut Transaction, amount: Amount) {
        let sighash_type = EcdsaSighashType::All;
        let sighash = SighashCache::new(&*tx)
            .p2wpkh_signature_hash(0, &self.wpkh(), amount, sighash_type)
            .expect("the script is P2WPKH, and the transaction has an input");
        let signature = self.secp.sign_ecdsa(&Message::from(sighash), &self.secret);
        let signature = ecdsa::Signature { signature, sighash_type };
        tx.input[0].witness = Witness::p2wpkh(&signature, &self.public.0);
    }
}

/// Returns the scripts that the built-in chain pays to.
pub fn known_scripts() -> Vec<KnownScript> {
    let known = (1..).zip(["p2pkh", "p2sh-p2wpkh", "p2wpkh", "p2tr"]).map(|(number, kind)| {
        let key = Key::new(number);
        let script = match kind {
            "p2pkh" => ScriptBuf::new_p2pkh(&key.public.pubkey_hash()),
            "p2sh-p2wpkh" => ScriptBuf::new_p2sh(&key.wpkh().script_hash()),
            "p2wpkh" => key.wpkh(),
            _ => ScriptBuf::new_p2tr(&key.secp, key.public.0.x_only_public_key().0, None),
        };
        KnownScript {
            kind,
            address: Address::from_script(&script, Network::Regtest).expect("a standard script"),
            script,
            wif: PrivateKey::new(key.secret, NetworkKind::Test).to_wif(),
        }
    });
    known.collect()
}

/// Returns the blocks of the built-in chain, from height 1 on. Every run has the same blocks.
///
/// The first 100 blocks pay the miner. In each group of five later blocks, four blocks pay to one of
/// the [known scripts](known_scripts) each, and the fifth spends the payment to the P2WPKH script.
/// So no block has both, and a filter that hides a spend hides the whole block.
pub fn blocks() -> Vec<Block> {
    let (miner, wallet) = (Key::new(MINER), Key::new(3));
    let known = known_scripts();
    let mut blocks: Vec<Block> = Vec::new();
    let mut parent = genesis_block(Network::Regtest).header;
    let mut received: Option<Transaction> = None;
    for height in 1..=BLOCKS {
        let mut txs = Vec::new();
        if let Some(mature) = height.checked_sub(MATURITY + 1) {
            let coinbase = &blocks[mature as usize].txdata[0];
            if let Some(known) = known.get(mature as usize % (known.len() + 1)) {
                let paid = TxOut { value: PAYMENT, script_pubkey: known.script.clone() };
                let change = SUBSIDY - PAYMENT - FEE;
                let change = TxOut { value: change, script_pubkey: miner.wpkh() };
                let mut payment = spending(coinbase, vec![paid, change]);
                miner.sign(&mut payment, SUBSIDY);
                if known.script == wallet.wpkh() {
                    received = Some(payment.clone());
                }
                txs.push(payment);
            } else if let Some(received) = received.take() {
                let back = TxOut { value: PAYMENT - FEE, script_pubkey: miner.wpkh() };
                let mut spend = spending(&received, vec![back]);
                wallet.sign(&mut spend, PAYMENT);
                txs.push(spend);
            }
        }
        let block = next_block(&parent, height, &miner.wpkh(), txs);
        parent = block.header;
        blocks.push(block);
    }
    blocks
}

/// Returns an unsigned transaction that spends the first output of `previous`.
fn spending(previous: &Transaction, output: Vec<TxOut>) -> Transaction {
    let input = TxIn {
        previous_output: OutPoint { txid: previous.compute_txid(), vout: 0 },
        script_sig: ScriptBuf::new(),
        sequence: Sequence::MAX,
        witness: Witness::new(),
    };
    let (version, lock_time) = (transaction::Version::TWO, LockTime::ZERO);
    Transaction { version, lock_time, input: vec![input], output }
}
