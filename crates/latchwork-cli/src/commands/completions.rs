use std::io;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::{
    args::{Cli, unused_url},
    failure::{Failure, Status},
};

/// Writes completions for a shell
///
/// Such as: latchwork completions bash > /etc/bash_completion.d/latchwork
#[derive(Debug, Args)]
#[command(arg = unused_url())]
pub(crate) struct CompletionsArgs {
    shell: Shell,
}

impl CompletionsArgs {
    pub(crate) fn perform(self) -> Result<Status, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "latchwork", &mut script);
        io::Write::write_all(&mut io::stdout(), &script)?;
        Ok(Status::SUCCESS)
    }
}
