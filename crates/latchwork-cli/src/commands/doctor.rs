mod finding;
mod judge;

use std::time::Duration;

use clap::Args;
use latchwork_postgres::Postgres;
use serde_json::json;

use self::finding::{Finding, Level};
use crate::{
    connection::ConnectionArgs,
    failure::{Failure, Status, chain},
    measure::measure,
    output::line,
};

/// Examines whether this server, and the way to it, can be trusted with locks
///
/// Ends with 0 if the server is fit for locks, 1 if there are warnings, 2 if it is not fit, or can't be reached. It takes
/// free locks for a second to measure the path.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Says whether so many acquires a second fit
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Writes JSON, a line for each finding, and the verdict last
    #[arg(long)]
    json: bool,
}

impl DoctorArgs {
    pub(crate) async fn perform(self, connection: &ConnectionArgs) -> Result<Status, Failure> {
        let config = connection.config()?;
        let options = ConnectionArgs::options(&config, "latchwork doctor");
        let silence = options.timing.silence();
        let findings = match Postgres::connect(config, options).await {
            Ok(postgres) => self.examine(&postgres, silence).await,
            Err(error) => vec![judge::refused(&error)],
        };
        self.show(&findings)
    }

    async fn examine(&self, postgres: &Postgres, silence: Duration) -> Vec<Finding> {
        let mut findings = match postgres.survey().await {
            Ok(survey) => judge::judge(&survey, silence),
            // What is known by now is known all the same.
            Err(error) => {
                let mut findings: Vec<Finding> = postgres.server().iter().flat_map(judge::checked).collect();
                findings.push(judge::not_examined(&error));
                findings
            }
        };
        findings.push(match measure(postgres, TASKS, MEASURE_FOR).await {
            Ok(measured) => judge::throughput(measured.cycles_per_second, measured.tasks, self.rate),
            Err(error) => Finding::unfit("throughput", chain(&error), "see to the server, and examine it again"),
        });
        findings
    }

    fn show(&self, findings: &[Finding]) -> Result<Status, Failure> {
        let worst = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok);
        for finding in findings {
            if self.json {
                line(&finding.json())?;
            } else {
                finding.tell()?;
            }
        }
        let (verdict, status) = match worst {
            Level::Ok => ("fit", Status::SUCCESS),
            Level::Warning => ("fit, with warnings", Status::WARNINGS),
            Level::Unfit => ("not fit for locks", Status::UNFIT),
        };
        if self.json {
            line(&json!({"verdict": verdict}))?;
        } else {
            line(&format_args!("\nThis server, and the way to it, is {verdict}."))?;
        }
        Ok(status)
    }
}

const TASKS: u32 = 64;
const MEASURE_FOR: Duration = Duration::from_secs(1);
