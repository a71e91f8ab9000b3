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
    Chains = "docs/chains.md";
    ComparedWith = "docs/compared-with.md";
    #[cfg(feature = "dataset")]
    Datasets = "docs/datasets.md";
    #[cfg(feature = "alloy-layer")]
    Endpoint = "docs/endpoint.md";
    EthereumLogs = "docs/ethereum-logs.md";
    Formats = "docs/formats.md";
    Json = "docs/json.md";
    Logs = "docs/logs.md";
    Maintainers = "docs/maintainers.md";
    MembershipFilters = "docs/membership-filters.md";
    ProtocolFilters = "docs/protocol-filters.md";
    Python = "docs/python.md";
    Security = "docs/security.md";
    Speed = "docs/speed.md";
    TestNode = "docs/test-node.md";
    Wallet = "docs/wallet.md";
    WalletBackend = "docs/wallet-backend.md";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    /// A page that is not in the list would not be tested.
    #[test]
    fn every_page_is_listed() {
        for entry in root().join("docs").read_dir().expect("docs") {
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
        let pages = super::PAGES.iter().map(|page| root().join(page)).chain(readmes());
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

    /// Readers reach each page from the README, or from a page that it leads to. Each link leads to a
    /// file of the repository, and to a heading of it if the link names one.
    #[test]
    fn links_lead_to_all_pages_and_to_nothing_else() {
        let root = root().canonicalize().expect("the repository");
        let mut open = vec![root.join("README.md")];
        let mut reached = BTreeSet::new();
        while let Some(page) = open.pop() {
            if !reached.insert(page.clone()) {
                continue;
            }
            let text = std::fs::read_to_string(&page).expect("a page");
            for link in links(&text) {
                let named = format!("{}: {link}", page.display());
                let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
                let at = page.parent().expect("a folder").join(file);
                let at = if file.is_empty() { Ok(page.clone()) } else { at.canonicalize() };
                let at = at.unwrap_or_else(|error| panic!("{named}: {error}"));
                assert!(at.starts_with(&root), "{named}");
                if at.extension().is_some_and(|extension| extension == "md") {
                    let headings = headings(&std::fs::read_to_string(&at).expect("a page"));
                    assert!(heading.is_empty() || headings.contains(heading), "{named}");
                    open.push(at);
                } else {
                    assert_eq!(heading, "", "{named}");
                }
            }
        }
        let all = super::PAGES.iter().map(|page| root.join(page)).chain(readmes());
        for page in all {
            let page = page.canonicalize().expect("a page");
            assert!(reached.contains(&page), "no link leads to {}", page.display());
        }
    }

    /// A blank line in a table ends it, and what follows is shown as text. A code block whose lines
    /// were joined is shown as text, too.
    #[test]
    fn tables_and_code_blocks_are_whole() {
        let mut open = vec![root().canonicalize().expect("the repository")];
        let mut pages = 0;
        while let Some(folder) = open.pop() {
            for entry in folder.read_dir().expect("a folder") {
                let path = entry.expect("an entry").path();
                let name = path.file_name().and_then(|name| name.to_str()).expect("text");
                let is_made = ["target", "node_modules", "venv"].contains(&name);
                if path.is_dir() && !path.is_symlink() && !is_made && !name.starts_with('.') {
                    open.push(path);
                } else if path.extension().is_some_and(|extension| extension == "md") {
                    let text = std::fs::read_to_string(&path).expect("a page");
                    assert_whole(&text, &path);
                    pages += 1;
                }
            }
        }
        assert!(pages >= 40, "only {pages}");
    }

    fn assert_whole(text: &str, path: &Path) {
        let (mut is_code, mut rows) = (false, 0);
        for (index, line) in text.lines().enumerate() {
            let at = format!("{}:{}: {line}", path.display(), index + 1);
            if let Some(info) = line.trim_start().strip_prefix("```") {
                assert!(!info.contains("```") && (!is_code || info.is_empty()), "{at}");
                is_code = !is_code;
            }
            rows = if !is_code && line.starts_with('|') { rows + 1 } else { 0 };
            assert!(rows != 2 || line.starts_with("|--") || line.starts_with("| -"), "{at}");
            assert!(rows != 0 || is_code || !line.ends_with(" |"), "{at}");
        }
        assert!(!is_code, "{}", path.display());
    }

    /// The page for maintainers names files and folders, from the root or from where its sections say.
    #[test]
    fn the_files_of_the_house_are_where_the_page_says() {
        let page = root().join("docs/maintainers.md");
        let text = std::fs::read_to_string(page).expect("a page");
        let bases = [
            "",
            "crates/provider/src",
            "crates/filter/src",
            "crates/cli/tests/transcripts",
            "src/btc",
            "src/eth/anchor",
        ];
        let mut named = 0;
        for name in prose(&text).collect::<Vec<_>>().join(" ").split('`').skip(1).step_by(2) {
            let is_path =
                |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "/_.-".contains(c);
            if name.chars().all(is_path)
                && (name.contains('/') || Path::new(name).extension().is_some())
            {
                let exists = bases.iter().any(|base| root().join(base).join(name).exists());
                assert!(exists, "{name}");
                named += 1;
            }
        }
        assert!(named >= 50, "only {named}");
    }

    /// Operators read what a counter means in the table of the endpoint's page.
    #[test]
    fn every_counter_is_in_the_table() {
        let read = |path| std::fs::read_to_string(root().join(path)).expect("a file");
        let source = read("crates/provider/src/server/operator.rs");
        let page = read("docs/endpoint.md");
        let (_, list) = source.split_once("\nmetrics! {").expect("the list of metrics");
        let (list, _) = list.split_once("\n}\n").expect("its end");
        let names = list.split(" = \"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0));
        let names: Vec<_> = names.chain(["request_duration"]).collect();
        assert!(names.len() >= 20, "{names:?}");
        for name in names {
            let ends = ["`", "_total`", "_seconds`"];
            let is_listed =
                ends.iter().any(|end| page.contains(&format!("`chainsieve_{name}{end}")));
            assert!(is_listed, "{name}");
        }
    }

    /// Returns the lines of a page outside of its code blocks.
    fn prose(text: &str) -> impl Iterator<Item = &str> {
        text.split("\n```").step_by(2).flat_map(str::lines)
    }

    /// Returns where the links of a page lead, except those to other sites.
    fn links(text: &str) -> Vec<String> {
        let prose = prose(text).collect::<Vec<_>>().join("\n");
        let ends = prose.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        ends.filter(|link| !link.contains("://")).map(str::to_owned).collect()
    }

    /// Returns the names that GitHub gives to the headings of a page.
    fn headings(text: &str) -> BTreeSet<String> {
        let titles = prose(text).filter(|line| line.starts_with('#'));
        let titles = titles.map(|line| line.trim_start_matches('#').trim().to_lowercase());
        let is_kept = |c: &char| c.is_alphanumeric() || ['-', '_', ' '].contains(c);
        titles
            .map(|title| title.chars().filter(is_kept).collect::<String>().replace(' ', "-"))
            .collect()
    }

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// Returns the READMEs of the packages.
    fn readmes() -> impl Iterator<Item = PathBuf> {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let folders = crates.read_dir().expect("packages");
        let readmes = folders.map(|entry| entry.expect("an entry").path().join("README.md"));
        readmes.filter(|readme| readme.exists())
    }
}
