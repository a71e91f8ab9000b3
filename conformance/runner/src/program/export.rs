//! The command `export`.

use std::path::Path;
use std::{fs, io};

use anyhow::{Context as _, ensure};
use chainsieve_conformance::{InputError, Inputs, Pack};
use chainsieve_report::{Exit, Page, Progress, Report, count, named, write};
use serde_json::{Value, json};

use crate::args::ExportArgs;

pub(crate) fn run(args: &ExportArgs) -> anyhow::Result<Report> {
    let pack = super::pack(args.pack.as_deref())?;
    let mut inputs = Inputs::new(&pack);
    if let Some(corpus) = &args.corpus {
        inputs = inputs.with_corpus(corpus);
    }
    let progress = Progress::counting(pack.areas().len() as u64, "areas");
    let (mut files, mut cases, mut left_out) = (0, 0, 0);
    let mut put = |path: &str, text: &str| {
        let path = args.folder.join(path);
        let parent = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(parent).with_context(|| format!("cannot write {}", named(parent)))?;
        files += 1;
        write(&path, text.as_bytes(), args.force)
    };
    let index = pack.file("pack.json").context("pack.json")?;
    let mut index: Value = serde_json::from_str(&index).context("pack.json")?;
    for (at, area) in pack.areas().iter().enumerate() {
        progress.at(at as u64);
        let (text, written, without) = vectors(&pack, &inputs, &area.file)?;
        ensure!(written > 0, "{}: all cases need the corpus", area.name);
        index["areas"][at]["cases"] = json!(written);
        cases += written;
        left_out += without;
        put(&area.file, &text)?;
        for file in [format!("schema/{}.schema.json", area.name), format!("pages/{}.md", area.name)]
        {
            match pack.file(&file) {
                // A pack need not have them.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                text => put(&file, &text.context(file.clone())?)?,
            }
        }
    }
    put("pack.json", &format!("{index:#}\n"))?;
    drop(progress);
    let mut page = Page::default();
    page.line(format!(
        "{} with {} in {}",
        count(files, "file"),
        count(cases, "case"),
        named(&args.folder)
    ));
    if left_out > 0 {
        page.line(format!(
            "{} that need the corpus left out: --corpus adds them",
            count(left_out, "case")
        ));
    }
    let json =
        json!({ "folder": args.folder, "files": files, "cases": cases, "left_out": left_out });
    Ok(Report::new(page, json, Exit::Yes))
}

/// Returns the file of an area with its references resolved, one case per line; and the numbers of
/// cases that are in it and that are left out.
fn vectors(pack: &Pack, inputs: &Inputs<'_>, file: &str) -> anyhow::Result<(String, usize, usize)> {
    let mut vectors: Value = serde_json::from_str(&pack.file(file)?).context("vectors")?;
    let area = pack.areas().iter().find(|area| area.file == file).context("an area")?;
    let mut known = area.cases.iter();
    let (mut written, mut left_out) = (0, 0);
    let mut groups = Vec::new();
    for group in vectors["groups"].as_array_mut().context("groups")? {
        let mut lines = Vec::new();
        for case in group["cases"].as_array_mut().context("cases")? {
            let of = known.next().context("a case")?;
            match inputs.of(of) {
                Ok(input) => case["input"] = input,
                Err(InputError::NoCorpus) => {
                    left_out += 1;
                    continue;
                }
                Err(error) => return Err(anyhow::Error::from(error).context(of.id.clone())),
            }
            written += 1;
            lines.push(case.to_string());
        }
        // The members that the cases share are in each input.
        groups.push(format!("{{\"params\":{{}},\"cases\":[\n{}\n]}}", lines.join(",\n")));
    }
    let head = vectors.as_object_mut().context("an object")?;
    head.remove("groups");
    let head = Value::from(head.clone()).to_string();
    let head = head.strip_suffix('}').context("an object")?;
    Ok((format!("{head},\"groups\":[\n{}\n]}}\n", groups.join(",\n")), written, left_out))
}
