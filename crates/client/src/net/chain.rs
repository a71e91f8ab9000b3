//! Parameters of a chain's peer-to-peer network: magic, port and seeds.

use chainsieve::bitcoin::consensus::encode::serialize;
use chainsieve::bitcoin::hashes::{Hash as _, sha256d};
use chainsieve::bitcoin::p2p::Magic;
use chainsieve::bitcoin::{Network, Script};
use chainsieve::btc::headers::BLOCK_TIME;
use chainsieve::btc::protocol::default_port;

/// A chain with the parameters of its peer-to-peer network.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Chain {
    /// The network whose consensus rules apply.
    pub network: Network,
    /// The first four bytes of each message.
    pub magic: Magic,
    /// The default port of nodes, used for addresses without a port.
    pub port: u16,
    /// Block time in seconds at which the difficulty aims: 600, except on a custom signet whose
    /// nodes run with another `-signetblocktime`.
    pub block_time: u32,
    /// Host names of DNS seeds. With a proxy, onion addresses and `HOST:PORT` are possible too.
    pub seeds: Vec<String>,
}

impl Chain {
    /// Returns a well-known chain, with the port and DNS seeds of Core 30
    /// (`kernel/chainparams.cpp`).
    pub fn new(network: Network) -> Self {
        let seeds = seeds(network).iter().map(|seed| (*seed).to_owned()).collect();
        let (magic, port) = (network.magic(), default_port(network));
        Self { network, magic, port, block_time: BLOCK_TIME, seeds }
    }

    /// Returns the signet with this challenge (BIP325). Signets other than the default one have no
    /// seeds. Their block time is ten minutes, unless [`block_time`](Self::block_time) is changed.
    ///
    /// ```
    /// use chainsieve_client::{Builder, Chain, chainsieve::bitcoin::ScriptBuf};
    ///
    /// // Mutinynet: a block every 30 seconds.
    /// let challenge = "512102f7561d208dd9ae99bf497273e16f389bdbd6c4742ddb8e6b216e64fa2928ad8f51ae";
    /// let mut mutinynet = Chain::signet(&ScriptBuf::from_hex(challenge)?);
    /// mutinynet.block_time = 30;
    /// let builder = Builder::new(mutinynet).peer("45.79.52.207");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn signet(challenge: &Script) -> Self {
        let default = Self::new(Network::Signet);
        // BIP325: the magic is the start of SHA256d of the challenge, serialised with its length.
        let [m0, m1, m2, m3, ..] = sha256d::Hash::hash(&serialize(challenge)).to_byte_array();
        let magic = Magic::from_bytes([m0, m1, m2, m3]);
        if magic == default.magic {
            return default;
        }
        Self { magic, seeds: Vec::new(), ..default }
    }
}

impl From<Network> for Chain {
    fn from(network: Network) -> Self {
        Self::new(network)
    }
}

fn seeds(network: Network) -> &'static [&'static str] {
    match network {
        Network::Bitcoin => &[
            "seed.bitcoin.sipa.be",
            "dnsseed.bluematt.me",
            "seed.bitcoin.jonasschnelli.ch",
            "seed.btc.petertodd.net",
            "seed.bitcoin.sprovoost.nl",
            "dnsseed.emzy.de",
            "seed.bitcoin.wiz.biz",
            "seed.mainnet.achownodes.xyz",
        ],
        Network::Testnet => &[
            "testnet-seed.bitcoin.jonasschnelli.ch",
            "seed.tbtc.petertodd.net",
            "seed.testnet.bitcoin.sprovoost.nl",
            "testnet-seed.bluematt.me",
            "seed.testnet.achownodes.xyz",
        ],
        Network::Testnet4 => &["seed.testnet4.bitcoin.sprovoost.nl", "seed.testnet4.wiz.biz"],
        Network::Signet => &["seed.signet.bitcoin.sprovoost.nl", "seed.signet.achownodes.xyz"],
        Network::Regtest => &[],
    }
}

#[cfg(test)]
mod tests {
    use chainsieve::bitcoin::ScriptBuf;

    use super::*;

    #[test]
    fn the_magic_of_a_signet_is_that_of_its_challenge() {
        // The challenge of Core's default signet (kernel/chainparams.cpp). BIP325 states the magic
        // of this signet.
        let challenge = "512103ad5e0edad18cb1f0fc0d28a3d4f1f3e445640337489abb10404f2d1e086be430210359\
                         ef5021964fe22d6f8e05b2463c9540ce96883fe3b278760f048f5189f2e6c452ae";
        let default = Chain::signet(&ScriptBuf::from_hex(challenge).unwrap());
        assert_eq!(default.magic.to_bytes(), [0x0a, 0x03, 0xcf, 0x40]);
        assert_eq!(default, Chain::new(Network::Signet));
        // The challenge of Mutinynet, and the magic that its nodes log.
        let challenge =
            "512102f7561d208dd9ae99bf497273e16f389bdbd6c4742ddb8e6b216e64fa2928ad8f51ae";
        let mutinynet = Chain::signet(&ScriptBuf::from_hex(challenge).unwrap());
        assert_eq!(mutinynet.magic.to_bytes(), [0xa5, 0xdf, 0x2d, 0xcb]);
        assert_eq!((mutinynet.port, mutinynet.seeds.len()), (38_333, 0));
        assert_eq!(mutinynet.block_time, 600);
    }
}
