//! Names for numbers: those that people have given, and what follows from them.

use std::{collections::HashMap, fs, path::Path};

use latchwork_core::{Key, Namespace, key::Registry, slots::MAX_SLOTS};

use crate::{
    failure::{Failure, Status},
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

/// How many slots of a pool are named before it is known how many there are.
const SLOTS: u32 = 64;
