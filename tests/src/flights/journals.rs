//! Follows the journals of all handlers of a set while they grow.
//!
//! A journal in an `emptyDir` goes with its pod, so what was written is fetched while the pod is there, and a pod
//! that went away with unread lines shows up as lost messages: never as silence. Only what was written after
//! [`Journals::follow`] counts, so that a second run on the same pods is judged by its own handlings.

use std::collections::{BTreeMap, HashSet};

use anyhow::{Context, Result};

use super::HANDLER_PORT;
use crate::{
    journal::{self, Entry},
    kubectl::Kubectl,
};

/// All journals of one set.
pub struct Journals {
    kubectl: Kubectl,
    namespace: String,
    selector: String,
    after: u64,
    /// How much of each pod's journal was read.
    read: BTreeMap<String, usize>,
    entries: Vec<Entry>,
    fences: HashSet<String>,
}

impl Journals {
    /// Follows the pods of a selector from now on. Messages up to the stream sequence `after` belong to others.
    pub async fn follow(kubectl: &Kubectl, namespace: &str, selector: &str, after: u64) -> Result<Self> {
        let mut journals = Self {
            kubectl: kubectl.clone(),
            namespace: namespace.to_owned(),
            selector: selector.to_owned(),
            after,
            read: BTreeMap::new(),
            entries: Vec::new(),
            fences: HashSet::new(),
        };
        journals.read_on().await?;
        journals.entries.clear();
        journals.fences.clear();
        Ok(journals)
    }

    /// Fetches what was added. A pod that cannot be read now is named in the error, after all others were read.
    pub async fn read_on(&mut self) -> Result<()> {
        let mut trouble = Ok(());
        for pod in self.kubectl.pods(&self.namespace, &self.selector).await? {
            let Some(name) = pod["metadata"]["name"].as_str() else { continue };
            if pod["status"]["phase"] != "Running" {
                continue;
            }
            if let Err(error) = self.read_pod(name).await {
                trouble = Err(error);
            }
        }
        trouble
    }

    /// What was handled so far, of the messages that count.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// How many different messages that is.
    pub fn handled(&self) -> usize {
        self.fences.len()
    }

    async fn read_pod(&mut self, pod: &str) -> Result<()> {
        let from = self.read.get(pod).copied().unwrap_or_default();
        let path = format!("/api/v1/namespaces/{}/pods/{pod}:{HANDLER_PORT}/proxy/journal", self.namespace);
        let text =
            self.kubectl.text(&path, from).await.with_context(|| format!("the journal of pod {pod}"))?;
        self.read.insert(pod.to_owned(), from + text.len());
        for entry in journal::parse(pod, &text)?.into_iter().filter(|entry| counts(entry, self.after)) {
            self.fences.insert(entry.fence.clone());
            self.entries.push(entry);
        }
        Ok(())
    }
}

/// Whether an entry is of a message behind the sequence. A fence that nobody can read counts, so that it is seen.
fn counts(entry: &Entry, after: u64) -> bool {
    let sequence = entry.fence.rsplit_once('-').and_then(|(_, sequence)| sequence.parse::<u64>().ok());
    sequence.is_none_or(|sequence| sequence > after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_behind_the_base_count_and_a_strange_fence_does() {
        let entry = |fence: &str| Entry {
            key: "N1".into(),
            number: 1,
            fence: fence.into(),
            partition: 0,
            attempt: 1,
            start: 1,
            end: 2,
            pod: "p".into(),
        };
        assert!(!counts(&entry("0000000001-00000000000000000007"), 7));
        assert!(counts(&entry("0000000001-00000000000000000008"), 7));
        assert!(counts(&entry("nonsense"), 7));
    }
}
