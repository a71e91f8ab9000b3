//! Scripts of every type, and transactions that spend them.

use chainsieve::bitcoin::absolute::LockTime;
use chainsieve::bitcoin::key::{Keypair, Secp256k1, TapTweak as _};
use chainsieve::bitcoin::opcodes::all::OP_CHECKMULTISIG;
use chainsieve::bitcoin::script::{Builder, PushBytesBuf};
use chainsieve::bitcoin::secp256k1::{All, Message, SecretKey};
use chainsieve::bitcoin::sighash::{Prevouts, SighashCache};
use chainsieve::bitcoin::{
    Amount, EcdsaSighashType, OutPoint, PubkeyHash, PublicKey, ScriptBuf, Sequence, TapSighashType,
    Transaction, TxIn, TxOut, Witness, transaction,
};

/// A type of output script.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    P2pk,
    P2pkh,
    /// Bare multisig, 1 of 2 keys.
    BareMultisig,
    /// P2SH multisig, 1 of 2 keys.
    P2shMultisig,
    P2wpkh,
    P2shP2wpkh,
    /// P2WSH multisig, 1 of 2 keys.
    P2wshMultisig,
    /// Taproot, spent by the key path.
    P2tr,
}

/// All script types.
pub(crate) const KINDS: [Kind; 8] = [
    Kind::P2pk,
    Kind::P2pkh,
    Kind::BareMultisig,
    Kind::P2shMultisig,
    Kind::P2wpkh,
    Kind::P2shP2wpkh,
    Kind::P2wshMultisig,
    Kind::P2tr,
];

/// A key, with the scripts of every type that pay to it.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    secp: Secp256k1<All>,
    secret: SecretKey,
    other: PublicKey,
}

/// An output that a key can spend.
#[derive(Clone, Debug)]
pub(crate) struct Coin {
    pub(crate) outpoint: OutPoint,
    pub(crate) output: TxOut,
    pub(crate) kind: Kind,
}

impl Key {
    /// Returns the key with this number; it is the same in every run.
    pub(crate) fn new(number: u32) -> Self {
        let secp = Secp256k1::new();
        let secret = |fill: u8| {
            let mut bytes = [fill; 32];
            bytes[..4].copy_from_slice(&number.to_be_bytes());
            SecretKey::from_slice(&bytes).expect("below the order")
        };
        let other = PublicKey::new(secret(2).public_key(&secp));
        Self { secret: secret(1), other, secp }
    }

    pub(crate) fn public(&self) -> PublicKey {
        PublicKey::new(self.secret.public_key(&self.secp))
    }

    pub(crate) fn hash(&self) -> PubkeyHash {
        self.public().pubkey_hash()
    }

    /// Returns the multisig script, which is also the redeem and witness script.
    fn multisig(&self) -> ScriptBuf {
        let script = Builder::new().push_int(1).push_key(&self.public()).push_key(&self.other);
        script.push_int(2).push_opcode(OP_CHECKMULTISIG).into_script()
    }

    fn p2wpkh(&self) -> ScriptBuf {
        ScriptBuf::new_p2wpkh(&self.public().wpubkey_hash().expect("compressed"))
    }

    /// Returns the script of this type that pays to the key.
    pub(crate) fn script(&self, kind: Kind) -> ScriptBuf {
        match kind {
            Kind::P2pk => ScriptBuf::new_p2pk(&self.public()),
            Kind::P2pkh => ScriptBuf::new_p2pkh(&self.hash()),
            Kind::BareMultisig => self.multisig(),
            Kind::P2shMultisig => self.multisig().to_p2sh(),
            Kind::P2wpkh => self.p2wpkh(),
            Kind::P2shP2wpkh => self.p2wpkh().to_p2sh(),
            Kind::P2wshMultisig => self.multisig().to_p2wsh(),
            Kind::P2tr => {
                let (key, _) = self.secret.x_only_public_key(&self.secp);
                ScriptBuf::new_p2tr(&self.secp, key, None)
            }
        }
    }

    /// Returns an output that pays to the key.
    pub(crate) fn output(&self, kind: Kind, sats: u64) -> TxOut {
        TxOut { value: Amount::from_sat(sats), script_pubkey: self.script(kind) }
    }

    /// Returns an output of a transaction as a coin; its type follows from its script.
    pub(crate) fn coin(&self, transaction: &Transaction, vout: u32) -> Coin {
        let output = transaction.output[vout as usize].clone();
        let kind = KINDS.into_iter().find(|&kind| self.script(kind) == output.script_pubkey);
        let outpoint = OutPoint { txid: transaction.compute_txid(), vout };
        Coin { outpoint, output, kind: kind.expect("an output of this key") }
    }

    /// Returns a signed transaction that spends coins of this key.
    pub(crate) fn spend(&self, coins: &[Coin], outputs: Vec<TxOut>) -> Transaction {
        let input = coins.iter().map(|coin| TxIn {
            previous_output: coin.outpoint,
            script_sig: ScriptBuf::new(),
            sequence: Sequence::MAX,
            witness: Witness::new(),
        });
        let mut transaction = Transaction {
            version: transaction::Version::TWO,
            lock_time: LockTime::ZERO,
            input: input.collect(),
            output: outputs,
        };
        let unsigned = transaction.clone();
        let previous: Vec<&TxOut> = coins.iter().map(|coin| &coin.output).collect();
        for (index, coin) in coins.iter().enumerate() {
            let (script_sig, witness) = self.unlock(&unsigned, index, coin, &previous);
            transaction.input[index].script_sig = script_sig;
            transaction.input[index].witness = witness;
        }
        transaction
    }

    fn unlock(
        &self,
        transaction: &Transaction,
        index: usize,
        coin: &Coin,
        previous: &[&TxOut],
    ) -> (ScriptBuf, Witness) {
        let all = EcdsaSighashType::All;
        let mut cache = SighashCache::new(transaction);
        let value = coin.output.value;
        let multisig = self.multisig();
        let legacy = |script: &ScriptBuf| -> PushBytesBuf {
            let hash = cache.legacy_signature_hash(index, script, all.to_u32());
            self.sign(Message::from(hash.expect("in range"))).try_into().expect("short")
        };
        let script_code = &coin.output.script_pubkey;
        match coin.kind {
            Kind::P2pk => {
                (Builder::new().push_slice(legacy(script_code)).into_script(), Witness::new())
            }
            Kind::P2pkh => {
                let script = Builder::new().push_slice(legacy(script_code));
                (script.push_key(&self.public()).into_script(), Witness::new())
            }
            Kind::BareMultisig => {
                let script = Builder::new().push_int(0).push_slice(legacy(script_code));
                (script.into_script(), Witness::new())
            }
            Kind::P2shMultisig => {
                let script = Builder::new().push_int(0).push_slice(legacy(&multisig));
                let redeem: PushBytesBuf = multisig.into_bytes().try_into().expect("short");
                (script.push_slice(redeem).into_script(), Witness::new())
            }
            Kind::P2wpkh | Kind::P2shP2wpkh => {
                let program = self.p2wpkh();
                let hash = cache.p2wpkh_signature_hash(index, &program, value, all);
                let signature = self.sign(Message::from(hash.expect("in range")));
                let witness = Witness::from_slice(&[signature, self.public().to_bytes()]);
                let redeem: PushBytesBuf = program.into_bytes().try_into().expect("short");
                let script_sig = match coin.kind {
                    Kind::P2wpkh => ScriptBuf::new(),
                    _ => Builder::new().push_slice(redeem).into_script(),
                };
                (script_sig, witness)
            }
            Kind::P2wshMultisig => {
                let hash = cache.p2wsh_signature_hash(index, &multisig, value, all);
                let signature = self.sign(Message::from(hash.expect("in range")));
                let stack = [Vec::new(), signature, multisig.into_bytes()];
                (ScriptBuf::new(), Witness::from_slice(&stack))
            }
            Kind::P2tr => {
                let sighash = TapSighashType::Default;
                let hash = cache.taproot_key_spend_signature_hash(
                    index,
                    &Prevouts::All(previous),
                    sighash,
                );
                let pair = Keypair::from_secret_key(&self.secp, &self.secret);
                let pair = pair.tap_tweak(&self.secp, None).to_keypair();
                let message = Message::from(hash.expect("in range"));
                let signature = self.secp.sign_schnorr_no_aux_rand(&message, &pair);
                (ScriptBuf::new(), Witness::from_slice(&[signature.serialize()]))
            }
        }
    }

    /// Returns a DER signature followed by its sighash type.
    fn sign(&self, message: Message) -> Vec<u8> {
        let mut signature = self.secp.sign_ecdsa(&message, &self.secret).serialize_der().to_vec();
        signature.push(EcdsaSighashType::All as u8);
        signature
    }
}
