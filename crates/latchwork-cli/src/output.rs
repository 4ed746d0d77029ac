//! What is written to standard output: lines, and tables of them.

use std::{
    fmt::Display,
    io::{self, Write as _},
    sync::mpsc,
    thread,
    time::{Duration, SystemTime},
};

use crate::{failure::Failure, terminal};

/// Writes a line.
pub(crate) fn line(line: &dyn Display) -> Result<(), Failure> {
    Ok(writeln!(io::stdout().lock(), "{line}")?)
}

/// Tells people of something on standard error. Nobody may be there to read it any more, which is no reason to stop, and less
/// than none to leave the command that runs to itself. Nor is a terminal that stands still, by Ctrl-S, or a pipe that is full.
pub(crate) fn news(news: &dyn Display) {
    if terminal::stops_writers(io::stderr()) {
        return;
    }
    // At once, so that lines of several processes do not mix.
    let text = format!("latchwork: {news}\n");
    let (says, written) = mpsc::channel();
    let write = move || {
        let _ = io::stderr().write_all(text.as_bytes());
        let _ = says.send(());
    };
    if thread::Builder::new().spawn(write).is_ok() {
        let _ = written.recv_timeout(NEWS_WITHIN);
    }
}

/// How long news may take to be written. Then they are left to be, for as long as this process is there.
const NEWS_WITHIN: Duration = Duration::from_millis(100);

/// A moment in UTC, as RFC 3339 has it.
pub(crate) fn time(moment: SystemTime) -> String {
    humantime::format_rfc3339_seconds(moment).to_string()
}

/// How long ago a moment was, for people.
pub(crate) fn ago(moment: SystemTime) -> String {
    short(moment.elapsed().unwrap_or_default())
}

/// A time for people: its two greatest units.
pub(crate) fn short(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Columns that are as wide as their widest cell.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
    let width = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count());
        cells.chain([head[column].len()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let head: Vec<String> = head.iter().map(ToString::to_string).collect();
    for row in std::iter::once(&head).chain(rows) {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        line(&cells.join("  ").trim_end())?;
    }
    Ok(())
}

/// Makes text of others safe to show on a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|char| if char.is_control() { '?' } else { char })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let table = [(0, "0s"), (59, "59s"), (61, "1m1s"), (3_600, "1h0m"), (90_000, "1d1h")];
        for (seconds, text) in table {
            assert_eq!(short(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn names_of_others_move_no_cursor() {
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a?[2Jb?");
    }
}
