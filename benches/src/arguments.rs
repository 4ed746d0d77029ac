use std::{path::PathBuf, str::FromStr, time::Duration};

use crate::{Failure, USAGE};

/// What a comparison can be told.
#[derive(Debug)]
pub(crate) struct Arguments {
    /// Where the figures are written.
    pub(crate) json: Option<PathBuf>,
    /// Numbers of tasks that work at once.
    pub(crate) tasks: Vec<usize>,
    /// Numbers of worker threads of the client.
    pub(crate) threads: Vec<usize>,
    /// How often each contender has its turn.
    pub(crate) rounds: usize,
    /// How long a turn is.
    pub(crate) length: Duration,
    only: Option<Vec<String>>,
}

impl Arguments {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut arguments = Self {
            json: None,
            tasks: vec![1, 16, 64, 512],
            threads: vec![1, 2],
            rounds: 5,
            length: Duration::from_millis(300),
            only: None,
        };
        while let Some(name) = words.next() {
            let value = words.next().ok_or(USAGE)?;
            match name.as_str() {
                "--json" => arguments.json = Some(value.into()),
                "--only" => arguments.only = Some(value.split(',').map(str::to_owned).collect()),
                "--tasks" => arguments.tasks = value.split(',').map(number).collect::<Result<_, _>>()?,
                "--threads" => arguments.threads = value.split(',').map(number).collect::<Result<_, _>>()?,
                "--rounds" => arguments.rounds = number(&value)?,
                "--millis" => arguments.length = Duration::from_millis(number(&value)?),
                _ => return Err(USAGE.into()),
            }
        }
        let numbers = [&arguments.tasks, &arguments.threads];
        let is_zero = numbers.iter().any(|numbers| numbers.is_empty() || numbers.contains(&0));
        if is_zero || arguments.rounds == 0 || arguments.length.is_zero() {
            return Err("numbers of tasks, threads, rounds and milliseconds are at least 1".into());
        }
        Ok(arguments)
    }

    /// Whether the contender or figure with this name is wanted.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only
            .as_ref()
            .is_none_or(|only| only.iter().any(|wanted| wanted == name))
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, Failure> {
    text.parse().map_err(|_| format!("{text:?} is not a number").into())
}
