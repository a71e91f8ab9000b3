//! Writes a filter to standard output, or to a file that is never visible half written.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context as _, ensure};
use chainsieve_report::{UsageError, check_overwrite, folder_and_name, named, replace};

/// Returns an error, before any work is done, if `out` cannot be written or is one of the inputs.
pub(super) fn check<'a>(
    out: &Path,
    inputs: impl IntoIterator<Item = &'a Path>,
    (json, force): (bool, bool),
) -> anyhow::Result<()> {
    if is_stdout(out) {
        if json {
            return Err(UsageError(
                "--json and --out - both write to standard output: give --out a file",
            )
            .into());
        }
        return Ok(());
    }
    ensure!(!out.is_dir(), "cannot write {}: it is a directory", named(out));
    let (folder, _) = folder_and_name(out)?;
    ensure!(folder.is_dir(), "cannot write {}: no such directory", named(out));
    let place = |path: &Path| fs::canonicalize(path).ok();
    if let Some(out_place) = place(out)
        && out_place.is_file()
        && inputs.into_iter().any(|input| place(input).as_ref() == Some(&out_place))
    {
        return Err(UsageError("--out is also an input: give another file").into());
    }
    check_overwrite(out, force)
}

/// Returns `true` for `-`, which stands for standard output.
pub(super) fn is_stdout(out: &Path) -> bool {
    out.as_os_str() == "-"
}

/// Writes a filter.
pub(super) fn write(out: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if is_stdout(out) {
        let mut stdout = io::stdout().lock();
        return stdout.write_all(bytes).and_then(|()| stdout.flush()).context("standard output");
    }
    replace(out, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_stays_beside_it() {
        let folder = std::env::temp_dir().join(format!("chainsieve-out-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let out = folder.join("filter");
        write(&out, b"one").expect("written");
        write(&out, b"two").expect("written");
        assert_eq!(fs::read(&out).expect("there"), b"two");
        let names = || fs::read_dir(&folder).expect("a folder").count();
        assert_eq!(names(), 1);
        // A name of the maximum length.
        let long = folder.join("n".repeat(255));
        write(&long, b"three").expect("written");
        assert_eq!((fs::read(&long).expect("there"), names()), (b"three".to_vec(), 2));
        #[cfg(unix)]
        for (link, to) in [("link", "filter"), ("dangling", "not-yet")] {
            let link = folder.join(link);
            std::os::unix::fs::symlink(to, &link).expect("a link");
            write(&link, b"four").expect("written");
            assert!(link.is_symlink(), "the link stays");
            assert_eq!(fs::read(folder.join(to)).expect("there"), b"four");
        }
        assert!(check(&out, [out.as_path()], (false, true)).is_err());
        assert!(check(&out, [], (false, false)).is_err(), "it exists");
        assert!(check(&out, [folder.join("keys").as_path()], (true, true)).is_ok());
        assert!(check(&folder, [], (false, false)).is_err());
        assert!(check(&folder.join("no/filter"), [], (false, false)).is_err());
        assert!(check(Path::new("-"), [], (false, false)).is_ok());
        assert!(check(Path::new("-"), [], (true, false)).is_err());
        fs::remove_dir_all(&folder).expect("removed");
    }
}
