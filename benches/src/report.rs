use std::{collections::BTreeMap, fs, path::Path};

use serde_json::{Map, Value, json};

use crate::Failure;

/// What a comparison has found.
#[derive(Debug)]
pub(crate) struct Report {
    name: &'static str,
    facts: Map<String, Value>,
    rows: Vec<Value>,
    notes: Vec<String>,
    figures: BTreeMap<String, f64>,
}

impl Report {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            facts: Map::new(),
            rows: Vec::new(),
            notes: Vec::new(),
            figures: BTreeMap::new(),
        }
    }

    /// Says what was measured on.
    pub(crate) fn fact(&mut self, name: &str, value: impl Into<Value>) {
        self.facts.insert(name.to_owned(), value.into());
    }

    /// Adds a line of the table.
    pub(crate) fn row(&mut self, row: Value) {
        self.rows.push(row);
    }

    /// Prints a remark, and keeps it.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        println!("{note}");
        self.notes.push(note);
    }

    /// Prints a figure with its goal, and keeps it under its full name.
    pub(crate) fn figure(&mut self, name: &str, value: f64, goal: Goal) {
        let name = format!("{}.{name}", self.name);
        let (word, bound, reached) = match goal {
            Goal::AtLeast(bound) => ("at least", bound, value >= bound),
            Goal::AtMost(bound) => ("at most", bound, value <= bound),
        };
        let verdict = if reached { "reached" } else { "MISSED" };
        println!("{name:<36}{value:>12.3}   {word} {bound}: {verdict}");
        self.figures.insert(name, value);
    }

    /// Prints a figure that has no goal, and keeps it under this name.
    #[cfg(feature = "libraries")]
    pub(crate) fn stated(&mut self, name: &str, value: f64) {
        println!("{name:<36}{value:>12.3}");
        self.figures.insert(name.to_owned(), value);
    }

    /// Writes everything as JSON.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Failure> {
        let all = json!({
            "bench": self.name,
            "facts": self.facts,
            "rows": self.rows,
            "notes": self.notes,
            "figures": self.figures,
        });
        let text = serde_json::to_string_pretty(&all)? + "\n";
        fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()).into())
    }
}

/// What a figure should be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}
