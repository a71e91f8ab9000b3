//! Files that the commands write, and their names in messages.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use crate::output::plain_or_quoted;

/// Returns a path for a message. If a URL was given instead of a path, the URL is hidden: its path or
/// user is often an API key.
pub(crate) fn named(path: &Path) -> String {
    let text = path.display().to_string();
    match text.split_once("://") {
        Some((scheme, _)) => {
            plain_or_quoted(&format!("{scheme:.16}://… (a URL, not shown)")).into()
        }
        None => plain_or_quoted(&text).into_owned(),
    }
}

/// Writes a file; replaces an existing file only if `force` is `true`.
pub(crate) fn write(path: &Path, bytes: &[u8], force: bool) -> anyhow::Result<()> {
    let is_file = fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    ensure!(force || !is_file, "{} exists: --force replaces it", named(path));
    fs::write(path, bytes).with_context(|| format!("cannot write {}", named(path)))
}

/// Writes a file that is never visible half written: an interrupted command leaves the old contents.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    // If `path` is a link, the link stays, and its target is replaced.
    let target = || Some(folder_of(path).join(fs::read_link(path).ok()?));
    let path = fs::canonicalize(path).ok().or_else(target).unwrap_or_else(|| path.to_owned());
    let special = fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file());
    let written = if special { fs::write(&path, bytes) } else { replace_file(&path, bytes) };
    written.with_context(|| format!("cannot write {}", named(&path)))
}

/// Writes a temporary file in the same folder, syncs it to the disk, and renames it to `path`.
fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // The temporary name is not derived from `path`, whose name may already have the maximum length.
    let name = format!(".chainsieve-conformance-{}.tmp", std::process::id());
    let beside = Unfinished(folder_of(path).join(name));
    let mut file = File::create_new(&beside.0)?;
    if let Ok(metadata) = fs::metadata(path) {
        file.set_permissions(metadata.permissions())?;
    }
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside.0, path)
}

/// A temporary file; dropping this deletes it, unless it was renamed.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}
