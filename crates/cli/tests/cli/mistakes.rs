//! Inputs that people give by mistake, and output streams that are closed.

use super::*;
use crate::cf::Folder;

#[test]
fn private_keys_are_never_shown() {
    let wif = "5Kg1gnAjaLfKiwhhPpGS3QfRg2m6awQvaj98JCZBZQ5SuS2F15C";
    let secrets = [
        wif,
        &wif[..50],
        "5Kg1gnAjaLfKiwhhPpGS3QfRg2m6awQvaj98JCZBZQ5SuS2F15D",
        "cMahea7zqjxrtgAbB7LSGbcQUr1uX1ojuat9jZodMN87JcbXMTcA",
        "6PRVWUbkzzsbcVac2qwfssoUJAN1Xhrg6bNk8J7Nzm5H7kxEbn2Nh2ZoGg",
        "tprv8ZgxMBicQKsPd7Uf69XL1XwhmjHopUGep8GuEiJDZmbQz6o58LninorQAfcKZWARbtRtfnLcJ5MQ2AtHcQJCCRUcMRvmDUjyEmNUWwx8UbK",
        "zprvAWgYBBk7JR8Gjrh4UJQ2uJdG1r3WNRRfURiABBE3RvMXYSrRJL62XuezvGdPvG6GFBZduosCc1YP5wixPox7zhZLfiUm8aunE96BBa4Kei5",
    ];
    for secret in secrets {
        let origin = format!("[73c5da0a/84'/0'/0']{secret}/0/*");
        let descriptor = format!("wpkh({origin})");
        let file = TempFile::new("secret.txt", format!("data:00\n{secret}\n"));
        let mut given: Vec<Vec<String>> = ["address", "script", "key", "outpoint", "txid", "data"]
            .iter()
            .chain(&["descriptor"])
            .flat_map(|kind| {
                let flag = vec![format!("--{kind}"), secret.to_owned()];
                [flag, vec![format!("{kind}:{secret}")]]
            })
            .collect();
        given.extend([secret, &origin, &descriptor].map(|item| vec![item.to_owned()]));
        given.extend(
            [["--file", file.path()], ["--file", secret], ["--tweak", secret]]
                .map(|args| args.map(str::to_owned).to_vec()),
        );
        for args in given {
            let args: Vec<_> = args.iter().map(String::as_str).collect();
            let output = run(&[&["btc", "bloom", "new"], &args[..]].concat());
            assert!(output.code >= USAGE, "{args:?}");
            assert!(!output.stderr.contains(&secret[..8]), "{}", output.stderr);
            assert!(output.stderr.contains("a private key, not shown"), "{}", output.stderr);
        }
        for (command, code) in [
            (&["bloom", "info"][..], BAD_INPUT),
            (&["prove", "verify", "00", "--block-hash"], USAGE),
        ] {
            let output = run(&[&["btc"], command, &[secret]].concat());
            assert_eq!(output.code, code, "{command:?}: {}", output.stderr);
            assert!(!output.stderr.contains(&secret[..8]), "{}", output.stderr);
        }
    }
}

#[test]
fn the_payload_goes_out_and_the_exit_code_holds_whatever_is_closed() {
    let closed = || std::io::pipe().expect("a pipe").1;
    let new = ["btc", "bloom", "new", "--tweak", "1", "data:c0ffee00c0ffee00"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_chainsieve"));
    let output = command.args(new).stderr(closed()).stdout(Stdio::piped()).output();
    let output = output.expect("the binary ends");
    assert_eq!(output.status.code(), Some(YES));
    assert_eq!(String::from_utf8(output.stdout).expect("text"), run(&new).stdout);
    let transaction = fixture("bip37_vectors.json")["transactions"]["funding"]["hex"].clone();
    let nothing = "0100010000000000000000";
    let mut command = Command::new(env!("CARGO_BIN_EXE_chainsieve"));
    command.args(["btc", "match", nothing, text(&transaction)]).stdout(closed());
    assert_eq!(command.status().expect("the binary ends").code(), Some(NO));
}

#[test]
fn manual_pages_are_counted_and_replaced_only_with_force() {
    let folder = Folder::new("man");
    folder.write("other.1", "a page of another program");
    let args = ["man", folder.0.to_str().expect("text")];
    let pages = json_of(&args, YES)["pages"].as_u64().expect("a count");
    let page = fs::read_to_string(folder.path("chainsieve-eth-scan.1")).expect("a page");
    assert!(page.contains("eth") && page.contains("scan"), "{page}");
    let written = fs::read_dir(&folder.0).expect("a folder").count() as u64;
    assert_eq!(pages, written - 1, "all but the other program's page");
    fails(&args, b"", BAD_INPUT, &["exists", "--force"]);
    // A single page that already exists is enough for the error.
    for entry in fs::read_dir(&folder.0).expect("a folder") {
        let path = entry.expect("an entry").path();
        if !["other.1", "chainsieve-eth-scan.1"].iter().any(|name| path.ends_with(name)) {
            fs::remove_file(path).expect("removed");
        }
    }
    fails(&args, b"", BAD_INPUT, &["chainsieve-eth-scan.1", "--force"]);
    assert_eq!(json_of(&[&args[..], &["--force"]].concat(), YES)["pages"], pages);
}

/// A command without an input argument reads standard input if this is a pipe, as with `-`.
#[test]
fn a_missing_input_is_read_from_a_pipe() {
    let block = block_757753();
    let address = "1979m9gb8qypkDp8HYV3HvbWxCBX5anSzn";
    let everything = "00010000000000000001";
    let (proof, _) = blocks::merkle_block(&block, &[0]);
    let commands: [(&[&str], &str); 4] = [
        (&["btc", "bloom", "info"], everything),
        (&["btc", "bloom", "new", "--tweak", "1"], address),
        (&["btc", "match", everything], &block),
        (&["btc", "prove", "verify"], &proof),
    ];
    for (args, input) in commands {
        let piped = run_with(args, input.as_bytes());
        let named = run_with(&[args, &["-"]].concat(), input.as_bytes());
        assert_eq!(piped.stdout, named.stdout, "{args:?}: {}", piped.stderr);
        assert_eq!((piped.code, named.code), (YES, YES), "{args:?}: {}", piped.stderr);
        assert_eq!(run(args).code, USAGE, "{args:?}: nothing is piped");
    }
}

/// Missing headers can come from a provider, where the command has the option.
#[test]
fn missing_headers_hint_at_the_provider() {
    for (args, has_rpc) in
        [(&["eth", "scan", "--topic0", "any"][..], true), (&["eth", "stats"], false)]
    {
        let output = run(args);
        assert_eq!(output.code, USAGE, "{args:?}: {}", output.stderr);
        assert_eq!(output.stderr.contains("ETH_RPC_URL"), has_rpc, "{args:?}: {}", output.stderr);
    }
}

#[test]
fn verbose_notes_begin_with_the_time() {
    let plain = run(&["demo"]);
    let verbose = run(&["demo", "-v"]);
    assert_eq!((plain.code, verbose.code), (YES, YES));
    let last = verbose.stderr.lines().last().expect("a note");
    let (time, text) = last.trim_start().split_once(" s  ").expect("a time");
    assert!(time.parse::<f64>().expect("seconds") >= 0.0, "{last}");
    assert_eq!(text, "the command ends");
    assert!(!plain.stderr.contains("the command ends"), "{}", plain.stderr);
    fails(&["demo", "-q", "-v"], b"", USAGE, &["--quiet", "--verbose"]);
}

#[test]
fn verify_says_what_its_exit_codes_mean() {
    let (made, _) = blocks::merkle_block(&block_757753(), &[]);
    let verified = run(&["btc", "prove", "verify", &made]);
    assert_eq!(verified.code, YES);
    assert!(verified.stdout.contains("nothing about any transaction"), "{}", verified.stdout);
    let help = run(&["btc", "prove", "verify", "--help"]).stdout;
    assert!(help.contains("1 the merkleblock is valid, but does not prove all"), "{help}");
}

#[test]
fn text_that_is_almost_hex_is_no_raw_bytes() {
    let inspect = ["btc", "bloom", "info"];
    let almost = TempFile::new("almost.hex", "03614e9b05000000\n00g0000001\n");
    let words = ["almost.hex", "not hex: 'g' at position 19"];
    fails(&[&inspect[..], &[almost.path()]].concat(), b"", BAD_INPUT, &words);
    let stdin = "00\nffé\n".as_bytes();
    let words = ["line 2", "not hex: 'é' at position 2"];
    fails(&["btc", "match", "03614e9b050000000000000001", "-"], stdin, BAD_INPUT, &words);
    let marked = TempFile::new("marked.hex", "\u{feff}03614e9b050000000000000001\r\n");
    assert_eq!(run(&[&inspect[..], &[marked.path()]].concat()).code, YES);
    let items = TempFile::new("marked.txt", "\u{feff}data:c0ffee00c0ffee00\n");
    assert_eq!(run(&["btc", "bloom", "new", "--file", items.path()]).code, YES);
    assert_eq!(run(&[&inspect[..], &[" 03614e9b050000000000000001\n"]].concat()).code, YES);
}

#[test]
fn slips_of_the_pen_are_named() {
    let new = ["btc", "bloom", "new"];
    let refused = |args: &[&str], code, words: &[&str]| {
        fails(&[&new[..], args].concat(), b"", code, words);
    };
    refused(&["--fpr", "1.5", "data:00"], USAGE, &["between 0 and 1"]);
    refused(&["--elements", "0", "data:00"], USAGE, &["--elements"]);
    let empty = TempFile::new("empty.txt", "# nothing\n");
    refused(&["--file", empty.path()], BAD_INPUT, &["empty.txt"]);
    let mainnet = format!("wpkh({XPUB}/0/*)");
    refused(&["--network", "testnet", &mainnet], BAD_INPUT, &["--network mainnet"]);
    refused(&["wpkh(tpubD6NzVbkrYhZ4X/0/*)"], BAD_INPUT, &["--network testnet"]);
    assert_eq!(run(&[&new[..], &[" data:c0ffee00c0ffee00 "]].concat()).code, YES);
}
