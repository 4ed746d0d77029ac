//! What the work of a line has said, on all hosts.

use std::{
    fmt,
    io::{self, BufRead as _, BufReader, PipeReader},
};

/// Lines such as `NAME begins on a` and `NAME ends on a`, as they came.
#[derive(Debug)]
pub(crate) struct Journal(Vec<String>);

impl Journal {
    /// Reads until nobody is left who could write.
    pub(crate) fn read(said: PipeReader) -> io::Result<Self> {
        BufReader::new(said).lines().collect::<Result<_, _>>().map(Self)
    }

    /// The hosts that the work has run on, in order.
    pub(crate) fn ran_on(&self) -> Vec<&str> {
        let ends = self.0.iter().filter_map(|line| line.split_once(" ends on "));
        ends.map(|(_, host)| host).collect()
    }

    /// Whether a run has begun before the last one had ended.
    pub(crate) fn is_ever_in_two_places(&self) -> bool {
        let begun_and_ended = |run: &[String]| {
            let [begins, ends] = run else { return false };
            let begun = begins.split_once(" begins on ");
            begun.is_some() && begun == ends.split_once(" ends on ")
        };
        !self.0.chunks(2).all(begun_and_ended)
    }
}

impl fmt::Display for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_at_once_are_seen() {
        let is_seen = |lines: &[&str]| {
            let lines = lines.iter().map(|&line| line.to_owned());
            Journal(lines.collect()).is_ever_in_two_places()
        };
        assert!(!is_seen(&[
            "x begins on a",
            "x ends on a",
            "x begins on b",
            "x ends on b"
        ]));
        assert!(is_seen(&[
            "x begins on a",
            "x begins on b",
            "x ends on a",
            "x ends on b"
        ]));
        assert!(is_seen(&["x begins on a"]));
    }
}
