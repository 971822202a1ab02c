//! The documents of the repository, and what is in them.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::Value;

/// A file for people.
pub(crate) struct Document {
    /// Below the repository's root.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Code between fences.
pub(crate) struct Block<'a> {
    pub(crate) language: &'a str,
    pub(crate) code: String,
    /// The line of its first fence, counted from 1.
    pub(crate) line: usize,
}

/// Every Markdown and YAML file that users read.
pub(crate) fn all(root: &Path) -> Vec<Document> {
    let mut files =
        vec![root.join("README.md"), root.join("SECURITY.md"), root.join("charts/lanekeeper/README.md")];
    for folder in ["docs", "examples"] {
        collect(&root.join(folder), &mut files);
    }
    files.sort();
    let document = |file: PathBuf| {
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        Document { path: file.strip_prefix(root).unwrap().display().to_string(), text }
    };
    files.into_iter().map(document).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let wanted = path.extension().is_some_and(|extension| extension == "md" || extension == "yaml");
        if path.is_dir() {
            collect(&path, files);
        } else if wanted {
            files.push(path);
        }
    }
}

/// One of them by its path.
pub(crate) fn read(root: &Path, path: &str) -> Document {
    let text = fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    Document { path: path.to_owned(), text }
}

impl Document {
    /// All code between fences. A YAML file is one block.
    pub(crate) fn blocks(&self) -> Vec<Block<'_>> {
        if Path::new(&self.path).extension().is_some_and(|extension| extension == "yaml") {
            return vec![Block { language: "yaml", code: self.text.clone(), line: 1 }];
        }
        let mut blocks = Vec::new();
        let mut open: Option<Block<'_>> = None;
        for (number, line) in self.text.lines().enumerate() {
            match (line.strip_prefix("```"), &mut open) {
                (Some(language), None) => {
                    open = Some(Block { language: language.trim(), code: String::new(), line: number + 1 });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (None, Some(block)) => {
                    block.code.push_str(line);
                    block.code.push('\n');
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block of code has no end", self.path);
        blocks
    }

    /// The only block of a language.
    pub(crate) fn only(&self, language: &str) -> String {
        let mut found: Vec<_> =
            self.blocks().into_iter().filter(|block| block.language == language).collect();
        assert_eq!(found.len(), 1, "{}: blocks of {language}", self.path);
        found.remove(0).code
    }

    /// Every Kubernetes object in its YAML, each with where it is.
    pub(crate) fn objects(&self) -> Vec<(String, Value)> {
        let mut objects = Vec::new();
        for block in self.blocks().into_iter().filter(|block| block.language == "yaml") {
            let place = format!("{}:{}", self.path, block.line);
            for document in serde_yaml::Deserializer::from_str(&block.code) {
                let value = Value::deserialize(document).unwrap_or_else(|error| panic!("{place}: {error}"));
                if value["kind"].is_string() {
                    objects.push((place.clone(), value));
                }
            }
        }
        objects
    }

    /// Targets of its links.
    pub(crate) fn links(&self) -> Vec<String> {
        // What looks like a link in code is none.
        let prose = |line: &str| line.split('`').step_by(2).collect::<String>();
        let prose: String = self.text.lines().flat_map(|line| [prose(line), "\n".to_owned()]).collect();
        let ends = prose.match_indices("](").map(|(start, _)| &prose[start + 2..]);
        ends.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()).collect()
    }

    /// Words in `backticks`.
    pub(crate) fn words(&self) -> Vec<&str> {
        self.text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
    }
}
