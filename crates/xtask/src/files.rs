//! Which files are generated, and how they are written and checked.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context;

use crate::{difference, manifests, reasons, reference};

/// All generated files: path below the repository's root, and what belongs into it.
fn generated() -> anyhow::Result<Vec<(&'static str, String)>> {
    let definition = lanekeeper_api::crd::definition();
    Ok(vec![
        ("crds/lanekeeper.dev_orderedpartitionsets.yaml", manifests::plain(&definition)?),
        ("charts/lanekeeper/templates/crd.yaml", manifests::chart(&definition)?),
        ("docs/reference/orderedpartitionset.md", reference::page(&definition)?),
        ("docs/reference/reasons.md", reasons::page()),
    ])
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest).to_owned()
}

/// Writes those that differ.
pub(crate) fn write() -> anyhow::Result<()> {
    for (path, content) in generated()? {
        let file = root().join(path);
        if read(&file)?.as_deref() == Some(&content) {
            continue;
        }
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        fs::write(&file, content).with_context(|| format!("cannot write {path}"))?;
        println!("wrote {path}");
    }
    Ok(())
}

/// What is wrong with those that differ.
pub(crate) fn stale() -> anyhow::Result<Vec<String>> {
    let mut findings = Vec::new();
    for (path, content) in generated()? {
        match read(&root().join(path))? {
            None => findings.push(format!("{path} is missing")),
            Some(found) => {
                findings.extend(difference::first(&content, &found).map(|words| format!("{path} {words}")));
            }
        }
    }
    Ok(findings)
}

fn read(file: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_files_are_what_is_generated() {
        assert_eq!(stale().unwrap(), Vec::<String>::new());
    }
}
