//! Tests of `filter size`.

use super::*;

#[test]
fn size_says_what_keys_and_rate_cost() {
    let args = ["filter", "size", "--keys", "1000000", "--fpr", "0.01"];
    let json = json_of(&args, YES);
    let layouts = json["layouts"].as_array().expect("layouts");
    let of = |name: &str| {
        let found = layouts.iter().find(|layout| layout["layout"] == name);
        found.unwrap_or_else(|| panic!("{name} is not listed")).clone()
    };
    // The textbook's values: 9.59 bits per key and 7 hash functions.
    let bloom = of("bloom");
    let bits = bloom["bits_per_key"].as_f64().expect("bits");
    assert!((9.58..9.61).contains(&bits), "{bits}");
    assert_eq!((&bloom["hash_funcs"], &bloom["remove"]), (&json!(7), &json!(false)));
    assert_eq!((&of("cuckoo12")["remove"], &of("fuse8")["insert"]), (&json!(true), &json!(false)));
    assert_eq!(of("cuckoo8")["possible"], true);
    let floor = json["floor"].as_f64().expect("floor");
    assert!((floor - 100_f64.log2()).abs() < 1e-9, "{floor}");
    let fails = json_of(&["filter", "size", "--keys", "1000000", "--fpr", "0.001"], YES);
    let fuse8 = fails["layouts"].as_array().expect("layouts");
    let fuse8 = fuse8.iter().find(|layout| layout["layout"] == "fuse8").expect("there");
    assert_eq!(
        (&fuse8["possible"], &fuse8["why"]),
        (&json!(false), &json!("the lowest rate is 1 in 256, at any size"))
    );
    // Every layout is listed once, in order of its size, and the rate of no layout is higher than
    // the requested rate.
    let mut before = 0.0;
    for layout in layouts.iter().filter(|layout| layout["possible"] == true) {
        let bits = layout["bits_per_key"].as_f64().expect("bits");
        assert!(bits >= before && bits > floor, "{layout}");
        assert!(layout["rate"].as_f64().is_some_and(|rate| rate > 0.0 && rate <= 0.01), "{layout}");
        before = bits;
    }
    let page = run(&args);
    assert_eq!((page.code, page.stderr.as_str()), (YES, ""));
    for words in ["1 in 100", "split-block-512", "insert, remove", "6.64 bits per key"] {
        assert!(page.stdout.contains(words), "{words}: {}", page.stdout);
    }
}

#[test]
fn size_draws_a_line_for_each_layout() {
    let svg = TempFile::absent("sizes.svg");
    let args = ["filter", "size", "--keys", "20000", "--fpr", "1e-4", "--svg", svg.path()];
    assert_eq!(run(&args).code, YES);
    let drawn = svg.read();
    is_well_formed(&drawn);
    let names = [
        "floor",
        "bloom",
        "split-block-512",
        "split-block-256",
        "counting",
        "scalable",
        "rolling",
        "cuckoo8, 12, 16",
        "fuse8, 16",
        "ribbon",
        "partitioned",
        "compressed",
    ];
    for name in names {
        assert!(drawn.contains(&format!(">{name}")), "{name} is not in the legend");
    }
    // Each layout has one line in the chart and one line in the legend.
    let lines: Vec<_> = drawn.split("<path class=\"line ").skip(1).collect();
    assert_eq!(lines.len(), 2 * names.len());
    assert!(lines[..names.len()].iter().all(|line| line.contains('L')), "a line has two points");
    for tick in ["10⁻¹<", "10⁻⁶<", "bits per key", "false-positive rate", "1 in 10,000"] {
        assert!(drawn.contains(tick), "{tick}");
    }
    assert!(!drawn.contains("NaN") && !drawn.contains("inf"));
}

/// Checks that tags are nested, attributes are quoted, and ampersands are escaped.
fn is_well_formed(svg: &str) {
    let mut open = Vec::new();
    let mut rest = svg;
    while let Some((text, behind)) = rest.split_once('<') {
        assert!(!text.contains('>') || open.last() == Some(&"style"), "{text:?}");
        let entities = text.split('&').skip(1);
        assert!(entities.clone().all(|entity| entity.split_once(';').is_some()), "{text:?}");
        let (tag, behind) = behind.split_once('>').expect("a tag ends");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag:?}");
        let name = tag.trim_start_matches('/').split([' ', '\n']).next().expect("a name");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "a closing tag matches its opening tag");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        rest = behind;
    }
    assert_eq!((open.len(), rest.trim()), (0, ""), "everything is closed");
    assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
}

#[test]
fn size_refuses_what_makes_no_sense() {
    for (args, word) in [
        (&["--keys", "0", "--fpr", "0.1"][..], "--keys"),
        (&["--keys", "1", "--fpr", "0"], "not a rate between 0 and 1"),
        (&["--keys", "1", "--fpr", "1"], "not a rate between 0 and 1"),
        (&["--keys", "1", "--fpr", "-0.1"], "not a rate between 0 and 1"),
        (&["--keys", "1", "--fpr", "NaN"], "not a rate between 0 and 1"),
        (&["--keys", "18446744073709551616", "--fpr", "0.1"], "--keys"),
        (&["--keys", "1"], "--fpr"),
    ] {
        fails(&[&["filter", "size"], args].concat(), b"", USAGE, &[word]);
    }
    let nowhere = ["filter", "size", "--keys", "9", "--fpr", "0.1", "--svg", "/nonexistent/a.svg"];
    fails(&nowhere, b"", BAD_INPUT, &["/nonexistent/a.svg"]);
    // The largest numbers and lowest rates: the command prints a result, or an error that names a
    // limit.
    for (keys, fpr) in
        [("18446744073709551615", "0.5"), ("1000000000000000000", "1e-300"), ("1", "1e-12")]
    {
        let output = run(&["filter", "size", "--keys", keys, "--fpr", fpr]);
        assert!([YES, BAD_INPUT].contains(&output.code), "{}", output.stderr);
        assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
    }
}
