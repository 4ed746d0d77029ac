//! What must not be in a tracked file.

use std::fs;
use std::process::Command;

use crate::run::{Failure, output, root};

/// Written in two halves, so that this file passes its own check.
const FORBIDDEN: [(&str, &str, &str); 7] = [
    ("/work", "/", "a path of one machine"),
    ("/root", "/", "a path of one machine"),
    ("registry.", "npmjs", "the host of a registry"),
    ("pypi.", "org", "the host of a registry"),
    ("pythonhosted.", "org", "the host of a registry"),
    ("index.", "crates.io", "the host of a registry"),
    ("deb.", "debian.org", "the host of a registry"),
];
const UNFINISHED: [(&str, &str, &str); 2] = [
    ("<<<<<", "<< ", "a merge conflict"),
    (">>>>>", ">> ", "a merge conflict"),
];

/// Looks at every tracked text file.
pub(crate) fn check() -> Result<(), Failure> {
    let names = output(Command::new("git").args(["ls-files", "-z"]).current_dir(root()))?;
    let mut found = Vec::new();
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        // Binary files and files that are being removed have no lines to look at.
        if let Ok(text) = fs::read_to_string(root().join(name)) {
            found.extend(findings(name, &text));
        }
    }
    println!(
        "xtask: {} in tracked files",
        if found.is_empty() {
            "nothing forbidden"
        } else {
            "forbidden text"
        }
    );
    if found.is_empty() {
        Ok(())
    } else {
        Err(Failure::step(found.join("\n")))
    }
}

fn findings(name: &str, text: &str) -> Vec<String> {
    let forbidden = FORBIDDEN.iter().chain(&UNFINISHED);
    let needles: Vec<(String, &str)> = forbidden
        .map(|(head, tail, what)| (format!("{head}{tail}"), *what))
        .collect();
    let in_line = |(number, line): (usize, &str)| {
        let hits = needles.iter().filter(|(needle, _)| line.contains(needle));
        hits.map(|(needle, what)| format!("{name}:{}: {needle:?} is {what}", number + 1))
            .collect::<Vec<_>>()
    };
    text.lines().enumerate().flat_map(in_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_a_machine_is_found_with_its_line() {
        let text = format!("fine\nsee {}{}somebody/notes\n", "/root", "/");
        assert_eq!(
            findings("README.md", &text),
            ["README.md:2: \"/root\u{2f}\" is a path of one machine"]
        );
    }

    #[test]
    fn ordinary_text_passes() {
        assert_eq!(
            findings("x", "/tmp/x and https://example.org/homework, crates.io"),
            Vec::<String>::new()
        );
    }
}
