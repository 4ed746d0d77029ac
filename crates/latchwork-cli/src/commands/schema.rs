use clap::{Args, Subcommand};
use latchwork_postgres::schema;

use crate::{
    args::unused_url,
    connection::ConnectionArgs,
    failure::{Failure, Status, chain},
    output::line,
};

/// Shows, makes or checks the tables that rate limits, idempotency and ticks need
///
/// Locks, slots and leaders need no tables; `latchwork run --tick` does.
#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    #[command(subcommand)]
    verb: SchemaVerb,
}

#[derive(Debug, Subcommand)]
enum SchemaVerb {
    /// Writes the SQL that makes the tables, for a migration tool; it may run twice
    #[command(arg = unused_url())]
    Print,
    /// Makes what is missing, and brings older tables up to date
    Install,
    /// Says whether the tables are those of this version; ends with 1 if they are not
    Check,
}

impl SchemaArgs {
    pub(crate) async fn perform(self, connection: &ConnectionArgs) -> Result<Status, Failure> {
        match self.verb {
            SchemaVerb::Print => line(&schema::sql().trim_end())?,
            SchemaVerb::Install => {
                connection.connect("latchwork schema").await?.install_schema().await?;
                line(&format_args!("the tables of version {} are there", schema::VERSION))?;
            }
            SchemaVerb::Check => {
                let state = connection.connect("latchwork schema").await?.check_schema().await?;
                if let Err(error) = state.require() {
                    line(&chain(&error))?;
                    return Ok(Status::WARNINGS);
                }
                line(&format_args!("the tables of version {} are there", schema::VERSION))?;
            }
        }
        Ok(Status::SUCCESS)
    }
}
