//! Runs the programs of the README and of `docs/` as documentation tests. The programs use the
//! packages as users do. The programs run in this package's folder, where the link `fixtures` leads
//! to the files that they read.

macro_rules! pages {
    ($($(#[$condition:meta])? $page:ident = $path:literal;)+) => {
        $(
            $(#[$condition])?
            #[cfg(doctest)]
            #[doc = include_str!(concat!("../../../", $path))]
            struct $page;
        )+

        /// The pages whose programs run here.
        #[cfg(test)]
        const PAGES: &[&str] = &[$($path),+];
    };
}

pages! {
    Readme = "README.md";
    Anchors = "docs/anchors.md";
    Audit = "docs/audit.md";
    ComparedWith = "docs/compared-with.md";
    #[cfg(feature = "alloy-layer")]
    Endpoint = "docs/endpoint.md";
    EthereumLogs = "docs/ethereum-logs.md";
    Formats = "docs/formats.md";
    Logs = "docs/logs.md";
    MembershipFilters = "docs/membership-filters.md";
    Security = "docs/security.md";
    Speed = "docs/speed.md";
    TestNode = "docs/test-node.md";
    Wallet = "docs/wallet.md";
    WalletBackend = "docs/wallet-backend.md";
    WhichFilter = "docs/which-filter.md";
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    /// A page that is not in the list would not be tested.
    #[test]
    fn every_page_is_listed() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        for entry in docs.read_dir().expect("docs") {
            let path = entry.expect("an entry").path();
            let is_page = path.extension().is_some_and(|extension| extension == "md");
            let name = path.file_name().and_then(|name| name.to_str()).expect("text");
            let page = format!("docs/{name}");
            assert!(!is_page || super::PAGES.contains(&page.as_str()), "{page}");
        }
    }

    /// Lines that rustdoc hides are shown by other viewers, and do not compile when they are copied.
    #[test]
    fn no_program_has_hidden_lines() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let pages = super::PAGES.iter().map(|page| root.join(page)).chain(readmes());
        for page in pages {
            let text = std::fs::read_to_string(&page).expect("a page");
            let mut is_program = false;
            for line in text.lines() {
                if let Some(language) = line.strip_prefix("```") {
                    is_program = language.starts_with("rust");
                }
                let is_hidden = line.trim() == "#" || line.trim_start().starts_with("# ");
                assert!(!is_program || !is_hidden, "{}: {line}", page.display());
            }
        }
    }

    /// Viewers other than rustdoc show a README alone: it needs a title, and each of its code
    /// blocks a language.
    #[test]
    fn readmes_of_packages_stand_alone() {
        for readme in readmes() {
            let (text, path) = (std::fs::read_to_string(&readme).expect("text"), readme.display());
            let package = readme.parent().and_then(Path::file_name).expect("a folder");
            let title = format!("# chainsieve-{}", package.display());
            assert_eq!(text.lines().next(), Some(title.as_str()), "{path}");
            let fences = text.lines().filter_map(|line| line.strip_prefix("```"));
            assert!(fences.step_by(2).all(|language| !language.is_empty()), "{path}");
        }
    }

    /// Returns the READMEs of the packages.
    fn readmes() -> impl Iterator<Item = PathBuf> {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let folders = crates.read_dir().expect("packages");
        let readmes = folders.map(|entry| entry.expect("an entry").path().join("README.md"));
        readmes.filter(|readme| readme.exists())
    }
}
