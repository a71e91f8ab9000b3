//! `eth index build` and `append`.

use anyhow::Context as _;
use chainsieve::eth::index::{Folder, Index, IndexError, Settings};

use super::adding::Adding;
use super::{named, provider};
use crate::args::eth::{AppendArgs, BuildArgs};
use crate::output::Report;

pub(super) fn build(args: &BuildArgs, json: bool) -> anyhow::Result<Report> {
    let mut settings = Settings::new(&args.chain)?;
    if args.block_hashes {
        settings = settings.with_block_hashes();
    }
    let mut adding = Adding::new(&args.index, settings, &args.adding, json);
    match Index::open(Folder::new(&args.index)) {
        // A folder without an index is made or taken when the first headers are there.
        Err(IndexError::NoIndex) => {}
        opened => {
            opened.with_context(|| named(&args.index))?;
            adding.open()?;
        }
    }
    if args.headers.rpc.is_given() {
        return provider::run(adding, &args.headers, args.from.unwrap_or(0));
    }
    adding.run(&args.headers.linked())
}

pub(super) fn append(args: &AppendArgs, json: bool) -> anyhow::Result<Report> {
    let index = Index::open(Folder::new(&args.index)).with_context(|| named(&args.index))?;
    let mut adding = Adding::new(&args.index, index.settings().clone(), &args.adding, json);
    adding.reorganises = true;
    adding.open()?;
    if args.headers.rpc.is_given() {
        return provider::run(adding, &args.headers, 0);
    }
    adding.run(&args.headers.linked())
}
