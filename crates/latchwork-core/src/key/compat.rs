//! The keys that other tools use, so that a Rust service can share their locks and the inspection can name them.
//!
//! Each function computes what the tool computes from the same name. None of them looks at a namespace, and none
//! refuses a name: what the tool itself refuses is said at the function.
//!
//! | function | tool | formula | space |
//! |---|---|---|---|
//! | [`fnv1a_32`] | hand-written, mostly JavaScript | FNV-1a, 32 bits | 64-bit, never negative |
//! | [`fnv1a_64`] | hand-written | FNV-1a, 64 bits | 64-bit |
//! | [`hashtext`], [`hashtextextended`], [`hashtext32`] | PostgreSQL's own functions | Jenkins' lookup3 | 64-bit; see there for pairs |
//! | [`with_advisory_lock`] | Ruby gem `with_advisory_lock` | CRC-32 without its top bit | pair |
//! | [`distributed_lock_net`] | .NET DistributedLock.Postgres | packed ASCII, hexadecimal, or SHA-1 | pair or 64-bit |
//! | [`sqlx`] | Rust sqlx, `PgAdvisoryLock` | HKDF-SHA-256 | 64-bit |
//! | [`django_pglock`] | Python django-pglock | SHA-256 | 64-bit |
//! | [`pals`] | Python PALs | SHA-1 | 64-bit |
//! | [`node_advisory_lock`] | Node advisory-lock | SHA-256 | pair |
//! | [`sqlx_migrate`] | sqlx migrations | CRC-32 of the database, times a constant | 64-bit |
//! | [`rails_migrations`] | Rails migrations | CRC-32 of the database, times a constant | 64-bit |
//! | [`golang_migrate`] | golang-migrate | CRC-32 times a constant, 32 bits | 64-bit, never negative |
//! | [`flyway`] | Flyway | a constant plus Java's `hashCode` | 64-bit |
//! | [`prisma_migrate`] | Prisma Migrate | a constant | 64-bit |
//! | [`goose`] | goose | a constant | 64-bit |
//!
//! A lock is shared only within one database, and only if both sides take it in the same space: a tool that calls
//! `pg_advisory_lock(int, int)` never meets one that calls `pg_advisory_lock(bigint)`. All but the Node package can
//! also lock for the length of a transaction; the key is the same.
//!
//! # Examples
//!
//! ```
//! use latchwork_core::key::{Key, compat};
//!
//! // Excludes a Ruby process inside `with_advisory_lock("nightly")`.
//! assert_eq!(compat::with_advisory_lock("nightly", 0), Key::pair(267906906, 0));
//! // Keeps away while `sqlx migrate run` is at work.
//! assert_eq!(compat::sqlx_migrate("app"), Key::bigint(3469795979745788610));
//! ```

mod dotnet;
mod lookup3;
mod migrations;
mod names;

pub use dotnet::distributed_lock_net;
pub use lookup3::{hashtext, hashtext32, hashtextextended};
pub use migrations::{flyway, golang_migrate, goose, prisma_migrate, rails_migrations, sqlx_migrate};
pub use names::{django_pglock, fnv1a_32, fnv1a_64, node_advisory_lock, pals, sqlx, with_advisory_lock};
