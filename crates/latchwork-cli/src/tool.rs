//! The tools whose keys are known.

use clap::ValueEnum;
use latchwork_core::{Key, key::compat};

/// A tool that takes advisory locks of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tool {
    /// FNV-1a, 32 bits, as written by hand in many services: NAME
    #[value(name = "fnv1a-32")]
    Fnv1a32,
    /// FNV-1a, 64 bits: NAME
    #[value(name = "fnv1a-64")]
    Fnv1a64,
    /// PostgreSQL's hashtext: NAME
    Hashtext,
    /// PostgreSQL's hashtextextended: NAME [SEED]
    Hashtextextended,
    /// The Ruby gem with_advisory_lock: NAME [PREFIX]
    WithAdvisoryLock,
    /// .NET DistributedLock: NAME
    DistributedLockNet,
    /// Rust sqlx, PgAdvisoryLock: NAME
    Sqlx,
    /// Python django-pglock: NAME
    DjangoPglock,
    /// Python PALs: [APP] NAME
    Pals,
    /// Node advisory-lock: NAME
    NodeAdvisoryLock,
    /// The migrations of sqlx: DATABASE
    SqlxMigrate,
    /// The migrations of Rails: DATABASE
    RailsMigrations,
    /// golang-migrate: DATABASE [SCHEMA [TABLE]]
    GolangMigrate,
    /// Flyway: [SCHEMA [TABLE]]
    Flyway,
    /// Prisma Migrate, which has one key
    PrismaMigrate,
    /// goose, which has one key
    Goose,
}

impl Tool {
    /// Those whose key depends on nothing but the database, with their defaults.
    pub(crate) fn of_database(database: &str) -> Vec<(Self, Key)> {
        vec![
            (Self::SqlxMigrate, compat::sqlx_migrate(database)),
            (Self::RailsMigrations, compat::rails_migrations(database)),
            (
                Self::GolangMigrate,
                compat::golang_migrate(database, PUBLIC, "schema_migrations"),
            ),
            (
                Self::GolangMigrate,
                compat::golang_migrate(&format!("/{database}"), PUBLIC, "schema_migrations"),
            ),
            (Self::Flyway, compat::flyway(PUBLIC, "flyway_schema_history")),
            (Self::PrismaMigrate, compat::prisma_migrate()),
            (Self::Goose, compat::goose()),
        ]
    }

    /// Those whose key is of one name alone.
    pub(crate) fn of_name(name: &str) -> Vec<(Self, Key)> {
        let name = [name.to_owned()];
        Self::value_variants()
            .iter()
            .filter(|tool| !tool.is_migration())
            .filter_map(|tool| Some((*tool, tool.key(&name).ok()?)))
            .collect()
    }

    const fn is_migration(self) -> bool {
        matches!(
            self,
            Self::SqlxMigrate
                | Self::RailsMigrations
                | Self::GolangMigrate
                | Self::Flyway
                | Self::PrismaMigrate
                | Self::Goose
        )
    }

    /// As the command line has it.
    pub(crate) fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The key that the tool has for a name in these parts.
    pub(crate) fn key(self, parts: &[String]) -> Result<Key, String> {
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let key = match (self, &parts[..]) {
            (Self::Fnv1a32, [name]) => compat::fnv1a_32(name),
            (Self::Fnv1a64, [name]) => compat::fnv1a_64(name),
            (Self::Hashtext, [name]) => compat::hashtext(name),
            (Self::Hashtextextended, [name]) => compat::hashtextextended(name, 0),
            (Self::Hashtextextended, [name, seed]) => compat::hashtextextended(name, number(seed)?),
            (Self::WithAdvisoryLock, [name]) => compat::with_advisory_lock(name, 0),
            (Self::WithAdvisoryLock, [name, prefix]) => compat::with_advisory_lock(name, number(prefix)?),
            (Self::DistributedLockNet, [name]) => compat::distributed_lock_net(name),
            (Self::Sqlx, [name]) => compat::sqlx(name),
            (Self::DjangoPglock, [name]) => compat::django_pglock(name),
            (Self::Pals, [name]) => compat::pals(None, name),
            (Self::Pals, [app, name]) => compat::pals(Some(app), name),
            (Self::NodeAdvisoryLock, [name]) => compat::node_advisory_lock(name),
            (Self::SqlxMigrate, [database]) => compat::sqlx_migrate(database),
            (Self::RailsMigrations, [database]) => compat::rails_migrations(database),
            (Self::GolangMigrate, [database, rest @ ..]) if rest.len() <= 2 => {
                let (schema, table) = in_schema(rest, "schema_migrations");
                compat::golang_migrate(database, schema, table)
            }
            (Self::Flyway, rest) if rest.len() <= 2 => {
                let (schema, table) = in_schema(rest, "flyway_schema_history");
                compat::flyway(schema, table)
            }
            (Self::PrismaMigrate, []) => compat::prisma_migrate(),
            (Self::Goose, []) => compat::goose(),
            _ => {
                let help = self.to_possible_value().and_then(|value| value.get_help().cloned());
                return Err(format!(
                    "{} does not name its locks like that; see {}",
                    self.name(),
                    help.unwrap_or_default()
                ));
            }
        };
        Ok(key)
    }

    /// The SQL of the type bigint that computes the key, for tools whose function the server has.
    pub(crate) fn sql(self, parts: &[String]) -> Option<String> {
        let text = |text: &str| format!("'{}'", text.replace('\'', "''"));
        match (self, parts) {
            (Self::Hashtext, [name]) => Some(format!("pg_catalog.hashtext({})::pg_catalog.int8", text(name))),
            (Self::Hashtextextended, [name, seed @ ..]) => {
                let seed = seed.first().map_or("0", String::as_str);
                Some(format!("pg_catalog.hashtextextended({}, {seed})", text(name)))
            }
            _ => None,
        }
    }
}

fn number(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| format!("{text:?} is no number of 64 bits"))
}

fn in_schema<'a>(rest: &[&'a str], table: &'a str) -> (&'a str, &'a str) {
    let given = rest.get(1).copied();
    (rest.first().copied().unwrap_or(PUBLIC), given.unwrap_or(table))
}

const PUBLIC: &str = "public";

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tool: Tool, parts: &[&str]) -> Result<Key, String> {
        tool.key(&parts.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn every_tool_has_a_key_and_says_what_it_takes() {
        for tool in Tool::value_variants() {
            let fits = [
                &[][..],
                &["foo"],
                &["foo", "1"],
                &["foo", "1", "2"],
                &["a", "b", "c", "d"],
            ]
            .iter()
            .filter(|parts| key(*tool, parts).is_ok())
            .count();
            assert!((1..=4).contains(&fits), "{tool:?}");
            let refusal = key(*tool, &["a", "b", "c", "d"]).unwrap_err();
            assert!(refusal.contains(&tool.name()), "{refusal}");
        }
    }

    #[test]
    fn defaults_are_those_of_the_tools() {
        assert_eq!(key(Tool::Flyway, &[]), Ok(Key::bigint(77_433_833_903_597)));
        assert_eq!(key(Tool::GolangMigrate, &["app"]), Ok(Key::bigint(1_787_120_056)));
        assert_eq!(key(Tool::WithAdvisoryLock, &["foo"]), Ok(Key::pair(208_889_121, 0)));
        assert_eq!(
            key(Tool::Pals, &["app", "foo"]),
            Ok(Key::bigint(-1_365_832_281_233_075_688))
        );
    }
}
