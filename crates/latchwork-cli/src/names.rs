//! Names for numbers: those that people have given, and what follows from them.

use std::{collections::HashMap, fs, path::Path};

use latchwork_core::{Key, Namespace, key::Registry, slots::MAX_SLOTS};

use crate::{
    failure::{Failure, Status},
    name::raw,
    tool::Tool,
};

/// Collects names of keys. A key that has one already keeps it.
#[derive(Default)]
pub(crate) struct Names {
    registry: Registry,
    /// Markers by the first number of their pair. What the second one says is not known beforehand.
    markers: HashMap<i32, Marker>,
}

/// What a pair is whose second number says something.
enum Marker {
    /// It is how many slots, or shards, there are.
    Limit(Pool),
    /// It tells a worker from others that share the shards of a name.
    Worker(String),
}

/// Slots or shards, of which the first few are named.
struct Pool {
    key: Key,
    name: String,
    /// What one of them is called.
    noun: &'static str,
    named: u32,
}

impl Names {
    /// The name of a key.
    pub(crate) fn of(&self, key: Key) -> Option<String> {
        if let Some(name) = self.registry.name(key) {
            return Some(name.to_owned());
        }
        let (first, number) = key.as_pair()?;
        Some(match self.markers.get(&first)? {
            Marker::Limit(pool) => format!("{} has {number} {}s", pool.name, pool.noun),
            Marker::Worker(name) => format!("{name} worker"),
        })
    }

    /// Puts names in place of the keys that the texts of the library have: it knows no names.
    pub(crate) fn put_into(&self, text: &str) -> String {
        let mut named = String::new();
        let mut rest = text;
        while let Some((place, word, replaced_by)) = first_of(rest) {
            let (before, after) = rest.split_at(place);
            let after = &after[word.len()..];
            let name = key_at(after).and_then(|(length, key)| Some((length, self.of(key)?)));
            named += before;
            match name {
                Some((length, name)) => {
                    named += replaced_by;
                    named += &name;
                    rest = &after[length..];
                }
                None => {
                    named += word;
                    rest = after;
                }
            }
        }
        named + rest
    }

    /// Names a key, and the keys of its slots, of its shards and of its fences.
    pub(crate) fn add(&mut self, key: Key, name: &str) {
        self.put(key, name.to_owned());
        self.add_pool(key, name, "slot");
        self.add_pool(key.derive("shards", 0), name, "shard");
        self.mark(key.derive_pair("shards", 0), Marker::Worker(name.to_owned()));
        self.put(key.derive("fence", 0), format!("{name} fence"));
        self.put(key.derive("fence", 1), format!("{name} fence of those who share"));
    }

    fn add_pool(&mut self, key: Key, name: &str, noun: &'static str) {
        let name = name.to_owned();
        let (marker, named) = (key.derive_pair("slots", 0), 0);
        let mut pool = Pool { key, name, noun, named };
        pool.name_slots(SLOTS, &mut self.registry);
        self.mark(marker, Marker::Limit(pool));
    }

    fn mark(&mut self, key: Key, marker: Marker) {
        if let Some((first, _)) = key.as_pair() {
            self.markers.entry(first).or_insert(marker);
        }
    }

    /// Learns from a key that is there: whoever has a pool holds a marker that says how many slots it has.
    pub(crate) fn learn(&mut self, key: Key) {
        let Some((first, number)) = key.as_pair() else { return };
        if let Some(Marker::Limit(pool)) = self.markers.get_mut(&first) {
            let limit = u32::try_from(number).unwrap_or_default().min(MAX_SLOTS);
            pool.name_slots(limit, &mut self.registry);
        }
    }

    /// Names the keys of migration tools.
    pub(crate) fn add_migrations(&mut self, database: &str) {
        for (tool, key) in Tool::of_database(database) {
            self.put(key, format!("compat {}", tool.name()));
        }
    }

    /// Reads a file of names.
    pub(crate) fn read(&mut self, file: &Path) -> Result<(), Failure> {
        let text = fs::read_to_string(file)
            .map_err(|error| Failure::new(Status::USAGE, format!("{}: {error}", file.display())))?;
        let names = text
            .lines()
            .map(str::trim)
            .filter(|name| !name.is_empty() && !name.starts_with('#'));
        for line in names {
            let (namespace, name) = line.split_once(':').unwrap_or(("", line));
            let key = match namespace {
                "" => Namespace::unnamed(),
                namespace => Namespace::new(namespace)?,
            }
            .key(name)?;
            self.add(key, line);
            for (tool, key) in Tool::of_name(name) {
                self.put(key, format!("compat {} {name}", tool.name()));
            }
        }
        Ok(())
    }

    fn put(&mut self, key: Key, name: String) {
        // The first name that a key was given is as good as another.
        let _ = self.registry.add(key, name);
    }
}

impl Pool {
    fn name_slots(&mut self, limit: u32, registry: &mut Registry) {
        for slot in self.named..limit {
            let _ = registry.add(
                self.key.derive("slot", slot),
                format!("{} {} {slot}", self.name, self.noun),
            );
        }
        self.named = self.named.max(limit);
    }
}

/// A name by which names are sorted as people do it: 2 comes before 10.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Natural(Vec<(String, usize, String)>);

impl Natural {
    /// Words, each with the number behind it: its length without zeros in front, and its digits.
    pub(crate) fn of(name: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = name;
        while !rest.is_empty() {
            let (word, after) = split_where(rest, |char| char.is_ascii_digit());
            let (number, after) = split_where(after, |char| !char.is_ascii_digit());
            let digits = number.trim_start_matches('0');
            parts.push((word.to_owned(), digits.len(), digits.to_owned()));
            rest = after;
        }
        Self(parts)
    }
}

fn split_where(text: &str, is_split: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(is_split).unwrap_or(text.len()))
}

/// Where the next key may stand in a text, after which word, and what to say in place of that word.
fn first_of(text: &str) -> Option<(usize, &'static str, &'static str)> {
    let words = [("key ", "the lock "), ("job ", "the job ")];
    let found = words
        .iter()
        .filter_map(|(word, by)| Some((text.find(word)?, *word, *by)));
    found.min_by_key(|(place, ..)| *place)
}

/// The key that a text begins with, and how long it is there.
fn key_at(text: &str) -> Option<(usize, Key)> {
    let length = if text.starts_with('(') {
        text.find(')')? + 1
    } else {
        let is_of_number = |char: char| char == '-' || char.is_ascii_digit();
        text.find(|char| !is_of_number(char)).unwrap_or(text.len())
    };
    Some((length, raw(&text[..length])?))
}

/// How many slots of a pool are named before it is known how many there are.
const SLOTS: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_sorted_as_numbers() {
        let sorted = [
            "mail",
            "mail 9 a",
            "mail 10",
            "mail shard 0",
            "mail shard 2",
            "mail shard 10",
            "mail shard 100000000000000000000",
            "mail worker",
            "zoo",
        ];
        let mut names = sorted;
        names.reverse();
        names.sort_by_cached_key(|name| Natural::of(name));
        assert_eq!(names, sorted);
    }

    #[test]
    fn names_stand_in_place_of_the_keys_that_have_one() {
        let (key, pair) = (Key::bigint(-7), Key::pair(1, -2));
        let mut names = Names::default();
        names.add(key, "mail");
        names.add(pair, "post");
        let slot = key.derive("slot", 3);
        let table = [
            (
                "nothing is known of key -7".to_owned(),
                "nothing is known of the lock mail",
            ),
            (
                "key (1, -2) was lost; key -7 too".to_owned(),
                "the lock post was lost; the lock mail too",
            ),
            (format!("for key {slot}: no"), "for the lock mail slot 3: no"),
            (
                "the tick of job -7 lies 5s ahead".to_owned(),
                "the tick of the job mail lies 5s ahead",
            ),
            ("key 8, a key of a monkey (1".to_owned(), "key 8, a key of a monkey (1"),
        ];
        for (text, expected) in table {
            assert_eq!(names.put_into(&text), expected);
        }
    }
}
