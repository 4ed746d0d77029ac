//! One file for each verb.

pub(crate) mod bench;
pub(crate) mod r#break;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod elect;
pub(crate) mod key;
pub(crate) mod ls;
pub(crate) mod run;
pub(crate) mod schema;

use crate::{
    args::{Cli, Verb},
    failure::{Failure, Status},
};

/// Does what the command line asks for.
pub(crate) async fn perform(cli: Cli) -> Result<Status, Failure> {
    let connection = &cli.connection;
    match cli.verb {
        Verb::Run(args) => args.perform(connection).await,
        Verb::Elect(args) => args.perform(connection).await,
        Verb::Ls(args) => args.perform(connection).await,
        Verb::Key(args) => args.perform(),
        Verb::Doctor(args) => args.perform(connection).await,
        Verb::Break(args) => args.perform(connection).await,
        Verb::Schema(args) => args.perform(connection).await,
        Verb::Bench(args) => args.perform(connection).await,
        Verb::Completions(args) => args.perform(),
    }
}
