//! Names for numbers: those that people have given, and what follows from them.

use std::{fs, path::Path};

use latchwork_core::{Key, Namespace, key::Registry};

use crate::{
    failure::{Failure, Status},
    tool::Tool,
};

/// Collects names of keys. A key that has one already keeps it.
#[derive(Default)]
pub(crate) struct Names(Registry);

impl Names {
    pub(crate) const fn registry(&self) -> &Registry {
        &self.0
    }

    /// Names a key, and the keys of its slots and of its fences.
    pub(crate) fn add(&mut self, key: Key, name: &str) {
        self.put(key, name.to_owned());
        for slot in 0..SLOTS {
            self.put(key.derive("slot", slot), format!("{name} slot {slot}"));
            let limit = slot + 1;
            if let Ok(number) = i32::try_from(limit) {
                self.put(key.derive_pair("slots", number), format!("{name} has {limit} slots"));
            }
        }
        self.put(key.derive("fence", 0), format!("{name} fence"));
        self.put(key.derive("fence", 1), format!("{name} fence of those who share"));
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
        let _ = self.0.add(key, name);
    }
}

/// How many slots of a pool are known by name.
const SLOTS: u32 = 64;
