use crate::key::Key;

/// Computes the key that sqlx holds while it migrates.
///
/// Formula: 0x3d32ad9e times the CRC-32 of the database's name. Taken with `pg_advisory_lock(bigint)`.
#[must_use]
pub fn sqlx_migrate(database: &str) -> Key {
    Key::bigint(0x3d32_ad9e * i64::from(crc32fast::hash(database.as_bytes())))
}

/// Computes the key that Rails holds while it migrates.
///
/// Formula: 2053462845 times the CRC-32 of the database's name. Taken with `pg_try_advisory_lock(bigint)`; Rails
/// raises `ConcurrentMigrationError` when it does not get it.
#[must_use]
pub fn rails_migrations(database: &str) -> Key {
    Key::bigint(2_053_462_845 * i64::from(crc32fast::hash(database.as_bytes())))
}

/// Computes the key that golang-migrate (v4) holds while it migrates.
///
/// Formula: the CRC-32 of `schema NUL table NUL database`, times 1486364155, modulo 2^32: a 64-bit number that is never
/// negative. Taken with `pg_advisory_lock(bigint)`.
///
/// `database` is the name as the tool has it. Given a URL, as on its command line, that is the URL's path **with its
/// slash**: `/app`. Given an open connection it asks the server: `app`. `schema` is the first schema of the search path,
/// usually `public`, and `table` is `schema_migrations` unless it was set. Early v4 releases hashed the database alone,
/// later ones schema and database.
#[must_use]
pub fn golang_migrate(database: &str, schema: &str, table: &str) -> Key {
    salted(&[schema, table, database])
}

fn salted(names: &[&str]) -> Key {
    let hash = crc32fast::hash(names.join("\0").as_bytes());
    Key::bigint(i64::from(hash.wrapping_mul(1_486_364_155)))
}

/// Computes the key that Flyway holds while it migrates.
///
/// Formula: 77431708279161 (`Flyway` in ASCII) plus Java's `hashCode` of `"schema"."table"`, with both quoted as
/// identifiers. `table` is the history table, `flyway_schema_history` unless it was set. Polled with
/// `pg_try_advisory_xact_lock(bigint)`, or with `pg_try_advisory_lock(bigint)` where the transactional lock is off.
#[must_use]
pub fn flyway(schema: &str, table: &str) -> Key {
    let table = format!("{}.{}", quoted(schema), quoted(table));
    // Java strings are UTF-16, and `hashCode` wraps as a signed 32-bit number.
    let hash = table
        .encode_utf16()
        .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    Key::bigint(77_431_708_279_161 + i64::from(hash))
}

fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

/// Returns the key that Prisma Migrate holds while it migrates: 72707369, the same for every database and schema.
///
/// Taken with `pg_advisory_lock(bigint)`; Prisma gives up after 10 seconds (its error P1002).
#[must_use]
pub const fn prisma_migrate() -> Key {
    Key::bigint(72_707_369)
}

/// Returns the key that goose's PostgreSQL session locker holds by default: 4097083626, the CRC-32 of `goose`.
///
/// Polled with `pg_try_advisory_lock(bigint)`. The first releases of the session locker used the CRC-64 (ECMA) of
/// `goose` instead: `Key::bigint(5887940537704921958)`.
#[must_use]
pub const fn goose() -> Key {
    Key::bigint(4_097_083_626)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_from_the_database_name() {
        assert_eq!(sqlx_migrate("app"), Key::bigint(3469795979745788610));
        assert_eq!(rails_migrations("app"), Key::bigint(6939591962871035475));
    }

    #[test]
    fn the_largest_checksum_still_fits() {
        let largest = i64::from(u32::MAX);
        assert!(largest.checked_mul(2_053_462_845).is_some());
        assert!(largest.checked_mul(0x3d32_ad9e).is_some());
    }

    #[test]
    fn golang_migrate_joins_its_names_with_nul() {
        assert_eq!(
            golang_migrate("app", "public", "schema_migrations"),
            Key::bigint(1787120056)
        );
        assert_ne!(
            golang_migrate("/app", "public", "schema_migrations"),
            Key::bigint(1787120056)
        );
        // The vectors that the project itself tests with.
        assert_eq!(salted(&["database_name"]), Key::bigint(1764327054));
        assert_eq!(salted(&["schema_name_1", "database_name"]), Key::bigint(2453313553));
        assert_eq!(
            golang_migrate("database_name", "schema_name_1", "schema_name_2"),
            Key::bigint(3743845847)
        );
    }

    #[test]
    fn flyway_hashes_the_quoted_table() {
        assert_eq!(flyway("public", "flyway_schema_history"), Key::bigint(77433833903597));
        assert_eq!(flyway("a\"b", "😀"), Key::bigint(77_431_708_279_161 + 1_396_182_796));
    }

    #[test]
    fn constants() {
        assert_eq!(prisma_migrate(), Key::bigint(72707369));
        assert_eq!(goose(), Key::bigint(i64::from(crc32fast::hash(b"goose"))));
    }
}
