//! The account of what happened.

use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Tells what happens, line by line, and keeps count of the promises.
#[derive(Debug)]
pub(crate) struct Account {
    begun: Instant,
    chapter: u32,
    held: u32,
    broken: u32,
}

impl Account {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            chapter: 0,
            held: 0,
            broken: 0,
        }
    }

    /// Says something that needs no proof.
    pub(crate) fn say(&self, text: &str) {
        print(text);
    }

    /// Says what is about to happen, before it does.
    pub(crate) fn begin(&mut self, text: &str) {
        self.chapter += 1;
        print(&format!("\n{}. {text}", self.chapter));
    }

    /// Says what was seen.
    pub(crate) fn tell(&self, text: &str) {
        print(&format!("   {text}"));
    }

    /// Says whether a promise held, and if not, what was seen instead.
    pub(crate) fn promise(&mut self, promise: &str, seen: Result<(), String>) {
        match seen {
            Ok(()) => {
                self.held += 1;
                print(&format!("   kept:   {promise}"));
            }
            Err(seen) => {
                self.broken += 1;
                print(&format!("   BROKEN: {promise}\n           {seen}"));
            }
        }
    }

    /// Says how it ended; `true` if every promise held.
    pub(crate) fn close(self) -> bool {
        let Self {
            begun, held, broken, ..
        } = self;
        let seconds = begun.elapsed().as_secs_f64();
        if broken == 0 {
            print(&format!("\nEvery promise held: {held} of {held}, in {seconds:.1} s."));
        } else {
            print(&format!("\n{broken} of {} promises did not hold.", held + broken));
        }
        broken == 0
    }
}

/// Milliseconds, for reading.
pub(crate) fn millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}

/// Says on standard error what is no part of the account.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Unlike `println!` it goes on when nobody reads: the exit status still counts.
pub(crate) fn print(text: &str) {
    let mut output = io::stdout().lock();
    let _ = writeln!(output, "{text}");
    let _ = output.flush();
}
