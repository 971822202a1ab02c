//! Rows of figures: a table for people, a file for programs.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde::Serialize;

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    value: f64,
    unit: &'static str,
    /// What it is compared with.
    against: Option<String>,
    /// `value` divided by that.
    ratio: Option<f64>,
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

impl Report {
    pub(crate) fn alone(&mut self, name: &str, value: f64, unit: &'static str) {
        self.rows.push(Row { name: name.to_owned(), value, unit, against: None, ratio: None });
    }

    pub(crate) fn add(&mut self, name: &str, value: f64, unit: &'static str, against: &str, other: f64) {
        let (against, ratio) = (Some(against.to_owned()), Some(value / other));
        self.rows.push(Row { name: name.to_owned(), value, unit, against, ratio });
    }

    pub(crate) fn print(&self) {
        println!("{:<44} {:>12} {:<14} {:>6}  against", "name", "value", "unit", "ratio");
        for row in &self.rows {
            let ratio = row.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
            let against = row.against.as_deref().unwrap_or_default();
            println!("{:<44} {:>12.1} {:<14} {ratio:>6}  {against}", row.name, row.value, row.unit);
        }
    }

    pub(crate) fn write(&self) -> Result<()> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench");
        fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        let path = folder.join("report.json");
        fs::write(&path, serde_json::to_vec_pretty(&self.rows)?)
            .with_context(|| format!("{} cannot be written", path.display()))?;
        eprintln!("written to target/bench/report.json");
        Ok(())
    }
}

pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value below which this part of all values lies, by the nearest rank.
pub(crate) fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a part of a number of values is one"
    )]
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}
