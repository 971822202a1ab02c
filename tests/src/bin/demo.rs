//! `make demo`: see `lanekeeper_tests::demo`. `FLIGHTS` says how many departures: a number (20000), or all.

use std::process::ExitCode;

use lanekeeper_tests::{demo, flights::data::Amount};

const DEFAULT: Amount = Amount::First(20_000);

#[tokio::main]
async fn main() -> ExitCode {
    let amount = match std::env::var("FLIGHTS").ok().filter(|text| !text.is_empty()).map(|text| text.parse())
    {
        None => DEFAULT,
        Some(Ok(amount)) => amount,
        Some(Err(wrong)) => {
            eprintln!("demo: {wrong}");
            return ExitCode::from(2);
        }
    };
    match demo::run(amount).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}
