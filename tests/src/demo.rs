//! `make demo`: from nothing to ordered messages through real pods, and a verdict.
//!
//! The story is here, one step after another; the steps are in the modules. Everything is done as a user would do
//! it (kubectl, Helm, a NATS client), and the verdict is the independent one of [`crate::journal`].
//! A second run on a running demo goes on with the same set and judges only what it published itself.

mod flow;
mod prepare;
mod verdict;

use std::time::Instant;

use anyhow::{Context, Result};

use crate::{
    cluster::{self, Cluster},
    flights::data::{self, Amount},
    helm::Helm,
    images::Images,
    kubectl::Kubectl,
};

/// Progress for people: each line with the seconds since the start.
#[derive(Debug, Clone, Copy)]
pub struct Teller(Instant);

impl Teller {
    /// One line.
    pub fn say(&self, step: &str, text: &str) {
        println!("{:>5.0} s  {step:<9} {text}", self.0.elapsed().as_secs_f64());
    }
}

/// Runs the demo; whether every message was handled, and in order.
pub async fn run(amount: Amount) -> Result<bool> {
    let teller = Teller(Instant::now());
    println!(
        "Lanekeeper demo: departures of 2013, each aircraft's strictly in order (seconds since this line)"
    );
    let _reservation = cluster::reserve(|text| teller.say("cluster", text))?;
    Cluster::prepare_tools(&["kubectl", "helm", "flights-data"])?;
    // Read beside the preparations: Python needs some seconds for 336,776 rows.
    let reader = std::thread::spawn(move || data::departures(amount));

    let cluster = Cluster::chosen()?;
    teller.say("cluster", &format!("ready; export KUBECONFIG={}", cluster.kubeconfig));
    teller
        .say("images", "building what changed (5 to 10 minutes on two cores the first time, seconds later)");
    let images = Images::build()?;
    images.deliver(&cluster)?;
    teller.say("images", "in the cluster");

    let kubectl = Kubectl::new(&cluster).await?;
    let helm = Helm::new(&cluster);
    let selector = prepare::install(&teller, &kubectl, &helm, &images).await?;

    let messages = reader.join().ok().context("reading the data set panicked")??;
    let outcome = flow::run(&teller, &cluster, &kubectl, &selector, &messages).await?;
    let clean = verdict::tell(&outcome, &messages)?;
    if !clean {
        println!("\n{}", kubectl.diagnosis(crate::flights::NAMESPACE));
    }
    verdict::look_around(&cluster, &images);
    Ok(clean)
}
