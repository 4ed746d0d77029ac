use std::time::Duration;

use clap::Args;
use serde_json::json;

use crate::{
    args::duration,
    connection::ConnectionArgs,
    failure::{Failure, Status},
    measure::measure,
    output::line,
};

/// Measures acquires and releases over this path for a moment
///
/// It takes free locks that nobody else uses, from one process on one thread. The server is busy meanwhile.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// For how long, at most 60s; once with one task, once with all
    #[arg(long = "for", value_name = "DUR", value_parser = duration, default_value = "2s")]
    time: Duration,
    /// How many tasks take locks at once, at most 2000
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    tasks: u32,
    /// Writes JSON, a line for each measure
    #[arg(long)]
    json: bool,
}

impl BenchArgs {
    pub(crate) async fn perform(self, connection: &ConnectionArgs) -> Result<Status, Failure> {
        let time = self.time.min(LONGEST);
        let postgres = connection.connect("latchwork bench").await?;
        for tasks in [1, self.tasks] {
            let measured = measure(&postgres, tasks, time).await?;
            let (median, p99) = (measured.median.as_micros(), measured.p99.as_micros());
            let cycles = measured.cycles_per_second.round();
            if self.json {
                line(&json!({
                    "tasks": tasks,
                    "cycles_per_second": cycles,
                    "acquire_median_us": median,
                    "acquire_p99_us": p99,
                }))?;
            } else {
                line(&format_args!(
                    "{tasks:5} tasks: {cycles:9} cycles/s, acquire median {median} µs, p99 {p99} µs"
                ))?;
            }
        }
        if !self.json {
            line(&"This measures the path from this machine to this server now; other machines have other paths.")?;
        }
        Ok(Status::SUCCESS)
    }
}

const LONGEST: Duration = Duration::from_secs(60);
