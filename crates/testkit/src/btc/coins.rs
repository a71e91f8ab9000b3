//! Outputs of every kind, and inputs that look like spending them. The signatures are made up, as
//! no test checks them.

use chainsieve::bitcoin::blockdata::opcodes::all as op;
use chainsieve::bitcoin::hashes::{Hash as _, hash160, sha256};
use chainsieve::bitcoin::script::{Builder, PushBytesBuf};
use chainsieve::bitcoin::secp256k1::{Secp256k1, SecretKey};
use chainsieve::bitcoin::{
    PubkeyHash, PublicKey, ScriptBuf, WPubkeyHash, Witness, WitnessProgram, WitnessVersion,
};

use crate::Rng;

/// An output's kind and key, from which its script and a matching input are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coin {
    kind: Kind,
    key: PublicKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    P2pk,
    P2pkh,
    Multisig,
    P2shMultisig,
    P2wpkh,
    P2shP2wpkh,
    P2wsh,
    P2shP2wsh,
    P2tr,
    /// A P2WSH output whose witness script is 33 bytes that look like a public key.
    KeyLikeP2wsh,
    /// A witness program of a version that has no consensus rules yet.
    FutureWitness,
    /// The script `2DROP 1`, spent with items that look like a signature and a key.
    Drop,
    /// The script `DROP 1`, spent by a push that looks like the script inside P2SH-P2WPKH. With an
    /// invented witness, the input would look like proof of that script.
    DropProgram,
    /// An empty script: anyone can spend such an output, and block filters leave the empty script
    /// out.
    Empty,
    /// A script that starts with `OP_RETURN`: block filters leave out such outputs.
    OpReturn,
}

const KINDS: [Kind; 15] = [
    Kind::P2pk,
    Kind::P2pkh,
    Kind::Multisig,
    Kind::P2shMultisig,
    Kind::P2wpkh,
    Kind::P2shP2wpkh,
    Kind::P2wsh,
    Kind::P2shP2wsh,
    Kind::P2tr,
    Kind::KeyLikeP2wsh,
    Kind::FutureWitness,
    Kind::Drop,
    Kind::DropProgram,
    Kind::Empty,
    Kind::OpReturn,
];

/// The kinds of outputs that wallets use. The test wallet has one script of each kind.
const WALLET_KINDS: [Kind; 7] = [
    Kind::P2wpkh,
    Kind::P2tr,
    Kind::P2shP2wpkh,
    Kind::P2pkh,
    Kind::P2wsh,
    Kind::P2shMultisig,
    Kind::P2pk,
];

fn key(rng: &mut Rng) -> PublicKey {
    let secret = SecretKey::from_slice(&rng.array::<32>())
        .expect("a random key is not 0 and is below the order");
    PublicKey::new(secret.public_key(&Secp256k1::signing_only()))
}

/// Returns coins of all kinds for six keys that are not the wallet's. There are only six, because
/// it takes long to make a key.
pub fn strangers(rng: &mut Rng) -> Vec<Coin> {
    let coins = |_| {
        let key = key(rng);
        KINDS.map(|kind| Coin { kind, key })
    };
    (0..6).flat_map(coins).collect()
}

/// Returns the coins of a wallet. No two coins have the same kind or the same key.
pub fn wallet(rng: &mut Rng) -> Vec<Coin> {
    WALLET_KINDS.iter().map(|&kind| Coin { kind, key: key(rng) }).collect()
}

impl Coin {
    /// Returns `true` if an input can spend the output.
    pub fn spendable(&self) -> bool {
        self.kind != Kind::OpReturn
    }

    /// Returns the witness script, or the redeem script of pay-to-script-hash without a witness.
    fn inner_script(&self) -> ScriptBuf {
        match self.kind {
            Kind::KeyLikeP2wsh => ScriptBuf::from_bytes(self.key.to_bytes()),
            _ => Builder::new()
                .push_int(1)
                .push_key(&self.key)
                .push_int(1)
                .push_opcode(op::OP_CHECKMULTISIG)
                .into_script(),
        }
    }

    fn key_program(&self) -> ScriptBuf {
        ScriptBuf::new_p2wpkh(&WPubkeyHash::from_raw_hash(hash160::Hash::hash(
            &self.key.to_bytes(),
        )))
    }

    pub fn script_pubkey(&self) -> ScriptBuf {
        let program = |version, program: &[u8]| {
            ScriptBuf::new_witness_program(&WitnessProgram::new(version, program).expect("short"))
        };
        match self.kind {
            Kind::P2pk => ScriptBuf::new_p2pk(&self.key),
            Kind::P2pkh => {
                let hash = hash160::Hash::hash(&self.key.to_bytes());
                ScriptBuf::new_p2pkh(&PubkeyHash::from_raw_hash(hash))
            }
            Kind::Multisig => self.inner_script(),
            Kind::P2shMultisig => self.inner_script().to_p2sh(),
            Kind::P2wpkh => self.key_program(),
            Kind::P2shP2wpkh => self.key_program().to_p2sh(),
            Kind::P2wsh | Kind::KeyLikeP2wsh => self.inner_script().to_p2wsh(),
            Kind::P2shP2wsh => self.inner_script().to_p2wsh().to_p2sh(),
            Kind::P2tr => program(WitnessVersion::V1, &self.key.to_bytes()[1..]),
            Kind::FutureWitness => {
                let hash = sha256::Hash::hash(&self.key.to_bytes());
                program(WitnessVersion::V2, &hash.to_byte_array())
            }
            Kind::Drop => Builder::new().push_opcode(op::OP_2DROP).push_int(1).into_script(),
            Kind::DropProgram => Builder::new().push_opcode(op::OP_DROP).push_int(1).into_script(),
            Kind::Empty => ScriptBuf::new(),
            Kind::OpReturn => ScriptBuf::new_op_return(self.key.inner.serialize()),
        }
    }

    /// Returns the `scriptSig` and the witness of an input that spends the output.
    pub fn spend(&self, rng: &mut Rng) -> (ScriptBuf, Witness) {
        let mut signature = vec![0x30, 0x44];
        signature.extend(rng.bytes(68));
        signature.push(1);
        let key = self.key.to_bytes();
        let push = |items: &[&[u8]]| {
            let push = |builder: Builder, item: &&[u8]| {
                builder.push_slice(PushBytesBuf::try_from(item.to_vec()).expect("short"))
            };
            items.iter().fold(Builder::new(), push).into_script()
        };
        let no_script = ScriptBuf::new;
        let inner = self.inner_script();
        let multisig: [&[u8]; 3] = [&[], &signature, inner.as_bytes()];
        let by_key: [&[u8]; 2] = [&signature, &key];
        match self.kind {
            Kind::P2pk => (push(&[&signature]), Witness::new()),
            Kind::P2pkh | Kind::Drop => (push(&by_key), Witness::new()),
            Kind::Multisig => (push(&multisig[..2]), Witness::new()),
            Kind::P2shMultisig => (push(&multisig), Witness::new()),
            Kind::P2wpkh | Kind::FutureWitness => (no_script(), Witness::from_slice(&by_key)),
            Kind::P2shP2wpkh => {
                (push(&[self.key_program().as_bytes()]), Witness::from_slice(&by_key))
            }
            Kind::DropProgram => (push(&[self.key_program().as_bytes()]), Witness::new()),
            Kind::P2wsh => (no_script(), Witness::from_slice(&multisig)),
            Kind::KeyLikeP2wsh => (no_script(), Witness::from_slice(&[&signature[..], &key])),
            Kind::P2shP2wsh => {
                (push(&[inner.to_p2wsh().as_bytes()]), Witness::from_slice(&multisig))
            }
            Kind::P2tr => (no_script(), Witness::from_slice(&[&signature[..64]])),
            Kind::Empty => (Builder::new().push_int(1).into_script(), Witness::new()),
            Kind::OpReturn => unreachable!("nothing spends it"),
        }
    }
}
