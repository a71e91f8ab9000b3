//! The files of a pack: built in, or below a folder.

use std::borrow::Cow;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

/// Where the files of a pack are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Files {
    /// In the package `chainsieve-vectors`.
    BuiltIn,
    /// Below a folder that has the structure of `conformance/` in the repository.
    Folder(PathBuf),
}

/// Maximum size in bytes of a file of a pack. All files of an export with the corpus together have
/// about half of that.
const MAX_FILE: usize = 2 << 30;
/// Folders of a pack that `list` returns.
const FOLDERS: [&str; 3] = ["vectors", "schema", "pages"];

impl Files {
    /// Reads a file of the pack, such as `vectors/bip37.sizing.json`.
    pub(super) fn read(&self, path: &str) -> io::Result<Cow<'static, str>> {
        self.read_of(chainsieve_vectors::FILES, "", path)
    }

    /// Reads a file below `fixtures/`.
    pub(super) fn read_fixture(&self, path: &str) -> io::Result<Cow<'static, str>> {
        self.read_of(chainsieve_vectors::FIXTURES, "fixtures", path)
    }

    fn read_of(
        &self,
        built_in: &'static [(&str, &str)],
        folder: &str,
        path: &str,
    ) -> io::Result<Cow<'static, str>> {
        match self {
            Self::BuiltIn => {
                let found = built_in.iter().find(|(name, _)| *name == path);
                let text = found.map(|(_, text)| Cow::Borrowed(*text));
                text.ok_or_else(|| io::ErrorKind::NotFound.into())
            }
            Self::Folder(root) => {
                let bytes = read_below(&root.join(folder), path, MAX_FILE)?;
                String::from_utf8(bytes).map(Cow::Owned).map_err(invalid)
            }
        }
    }

    /// Returns the paths of all files of the pack except the fixtures, sorted.
    pub(super) fn list(&self) -> io::Result<Vec<String>> {
        let mut paths = match self {
            Self::BuiltIn => {
                chainsieve_vectors::FILES.iter().map(|(path, _)| (*path).to_owned()).collect()
            }
            Self::Folder(root) => {
                let mut paths = vec!["pack.json".to_owned()];
                for folder in FOLDERS {
                    let entries = match fs::read_dir(root.join(folder)) {
                        Ok(entries) => entries,
                        // Only vectors are required, and a missing file of them is found when it
                        // is read.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                        Err(error) => return Err(error),
                    };
                    for entry in entries {
                        let name = entry?.file_name();
                        paths.push(format!("{folder}/{}", name.to_string_lossy()));
                    }
                }
                paths
            }
        };
        paths.sort();
        Ok(paths)
    }
}

/// Reads a file below a folder.
///
/// # Errors
/// If `path` is not a plain relative path, if the file cannot be read, or if it has more than `limit`
/// bytes.
pub(super) fn read_below(root: &Path, path: &str, limit: usize) -> io::Result<Vec<u8>> {
    let path = below(root, path)?;
    // A link may lead to a device or a pipe, which has no end or blocks when it is opened.
    if !fs::metadata(&path)?.is_file() {
        return Err(invalid("not a regular file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        return Err(invalid(format!("larger than {limit} bytes")));
    }
    Ok(bytes)
}

fn invalid(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Returns the path of a file below a folder.
///
/// # Errors
/// If `path` is not a plain relative path: a pack must not read other files of the machine.
fn below(root: &Path, path: &str) -> io::Result<PathBuf> {
    let is_normal = |part| matches!(part, Component::Normal(_));
    // A backslash separates folders on Windows only, where it would hide a `..`.
    if path.is_empty() || path.contains('\\') || !Path::new(path).components().all(is_normal) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a path below the folder"));
    }
    Ok(root.join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_folder() {
        let root = Path::new("root");
        assert_eq!(below(root, "a/b.json").expect("below"), Path::new("root/a/b.json"));
        for path in ["", "..", "../a", "a/../../b", "/etc/passwd", "a\\..\\b", "./a/.."] {
            assert!(below(root, path).is_err(), "{path}");
        }
    }
}
