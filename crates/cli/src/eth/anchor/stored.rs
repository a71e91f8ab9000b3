//! The command `eth anchor show`.

use serde_json::json;

use super::client::{self, data_folder, stored};
use crate::args::eth::ShowAnchorArgs;
use crate::exit::Exit;
use crate::output::{Page, Report};

pub(super) fn run(args: &ShowAnchorArgs) -> anyhow::Result<Report> {
    let network = super::network(&args.network)?;
    let folder = data_folder(args.data.as_ref(), &network)?;
    let client = stored(&folder, network)?;
    let now = super::now(None)?;
    let warnings = client::warnings(&client, now);
    let mut fields = client::fields(&client);
    fields.push(("folder", folder.display().to_string()));
    let mut page = Page::default();
    page.fields(fields);
    page.warnings(&warnings);
    let mut json = client::json(&client, now);
    json["folder"] = json!(folder);
    json["warnings"] = json!(warnings);
    Ok(Report::new(page, json, Exit::Yes))
}
