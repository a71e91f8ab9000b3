//! Inputs that people give by mistake, and output streams that are closed.

use super::*;

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
