//! The light client on files and messages from untrusted sources: it opens or rejects the files,
//! and no message makes it panic or send without bound.
//!
//! Input: protocol | three files (length u16 each): headers, journal, state | messages: command u8,
//! length u16, payload.
#![no_main]

use std::time::Duration;

use chainsieve::bitcoin::consensus::encode::deserialize;
use chainsieve::bitcoin::hashes::{Hash as _, sha256d};
use chainsieve::bitcoin::p2p::message::{NetworkMessage, RawNetworkMessage};
use chainsieve::bitcoin::p2p::{Magic, ServiceFlags};
use chainsieve::bitcoin::{Network, ScriptBuf};
use chainsieve::btc::client::{
    Action, Birthday, Config, Event, Item, LightClient, PeerInfo, Protocol, StoredFiles, Wallet,
    WatchId,
};
use chainsieve::btc::peer::PeerId;
use libfuzzer_sys::fuzz_target;

/// The commands that the input can select.
const COMMANDS: [&str; 12] = [
    "headers",
    "inv",
    "block",
    "tx",
    "merkleblock",
    "notfound",
    "cfheaders",
    "cfilter",
    "cfcheckpt",
    "getdata",
    "reject",
    "feefilter",
];
/// A time after that of every header of a test network.
const NOW: Duration = Duration::from_secs(1_700_000_000);

fn part<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (part, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
    *bytes = rest;
    Some(part)
}

fn message(bytes: &mut &[u8]) -> Option<NetworkMessage> {
    let (&command, rest) = bytes.split_first()?;
    *bytes = rest;
    let payload = part(bytes)?;
    let mut name = [0; 12];
    let command = COMMANDS[usize::from(command) % COMMANDS.len()].as_bytes();
    name[..command.len()].copy_from_slice(command);
    let mut frame = Magic::REGTEST.to_bytes().to_vec();
    frame.extend(name);
    frame.extend(u32::try_from(payload.len()).ok()?.to_le_bytes());
    frame.extend(&sha256d::Hash::hash(payload).to_byte_array()[..4]);
    frame.extend(payload);
    let message: RawNetworkMessage = deserialize(&frame).ok()?;
    Some(message.into_payload())
}

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    let Some((&protocol, after)) = rest.split_first() else { return };
    rest = after;
    let mut files = [(); 3].map(|()| part(&mut rest).map(<[u8]>::to_vec));
    let [headers, journal, state] = files.each_mut().map(Option::take);
    let kept = StoredFiles { headers, journal, state, ..StoredFiles::default() };
    let mut config = Config::new(Network::Regtest, [1; 16]);
    config.protocol = if protocol % 2 == 0 { Protocol::Bip157 } else { Protocol::Bip37 };
    let Ok(mut client) = LightClient::new(config, &kept) else { return };
    let script = ScriptBuf::from([&[0, 20][..], &[1; 20]].concat());
    let wallet = Wallet::new(Birthday::Height(0), vec![Item::Script(script)]);
    let mut sent = 0;
    let mut tell = |event| {
        let mut stored = Vec::new();
        for action in client.handle(event, NOW) {
            match action {
                Action::Send(..) => sent += 1,
                Action::Write(id, _) => stored.push(id),
                _ => {}
            }
        }
        for id in stored {
            let _ = client.handle(Event::Stored(id), NOW);
        }
    };
    tell(Event::Watch(WatchId(1), "a".into(), Box::new(wallet)));
    let services = ServiceFlags::NETWORK | ServiceFlags::BLOOM | ServiceFlags::COMPACT_FILTERS;
    for peer in 1..=2 {
        let info = PeerInfo { name: peer.to_string(), services, start_height: 3 };
        tell(Event::Connected(PeerId(peer), info));
    }
    let mut messages = 0;
    while !rest.is_empty() {
        let Some(message) = message(&mut rest) else { continue };
        messages += 1;
        tell(Event::Message(PeerId(1 + messages % 2), message));
        tell(Event::Tick);
    }
    assert!(sent <= 1_000 + 1_000 * messages, "{sent} messages for {messages}");
});
