//! Processes of their own, to be killed and stopped.

use std::io::Write as _;
use std::process::{Command, Stdio};

use latchwork_harness::{Process, Signal};

/// A process that does as it is told.
pub(crate) struct Holder {
    process: Process,
    /// Lines that came before the one that was waited for.
    unheard: Vec<String>,
}

impl Holder {
    /// Starts one with the time limits of [`quick`](crate::onlooker::quick), and waits until it is connected.
    pub(crate) fn start(url: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holder"));
        command.args([url, "250", "500"]).stdin(Stdio::piped());
        let process = Process::spawn(&mut command).unwrap();
        let mut holder = Self {
            process,
            unheard: Vec::new(),
        };
        holder.hear("ready");
        holder
    }

    pub(crate) fn tell(&mut self, command: &str) {
        let input = self.process.child_mut().stdin.as_mut().unwrap();
        input.write_all(format!("{command}\n").as_bytes()).unwrap();
    }

    /// Waits for a line that begins like this, and returns the rest. Others are kept for later.
    pub(crate) fn hear(&mut self, beginning: &str) -> String {
        if let Some(at) = self.unheard.iter().position(|line| line.starts_with(beginning)) {
            return self.unheard.remove(at)[beginning.len()..].to_owned();
        }
        loop {
            let line = self.process.next_line().unwrap();
            let line = line.unwrap_or_else(|| panic!("it ended without {beginning:?}, after {:?}", self.unheard));
            match line.strip_prefix(beginning) {
                Some(rest) => return rest.to_owned(),
                None => self.unheard.push(line),
            }
        }
    }

    pub(crate) fn ask(&mut self, command: &str, answer: &str) -> String {
        self.tell(command);
        self.hear(answer)
    }

    pub(crate) fn kill(mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait().unwrap();
    }

    pub(crate) fn stop(&self) {
        self.process.signal(Signal::STOP);
    }

    pub(crate) fn go_on(&self) {
        self.process.signal(Signal::CONT);
    }
}
