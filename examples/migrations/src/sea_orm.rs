//! sea-orm-migration.

use latchwork::Locks;
use sea_orm_migration::{
    DbErr, MigrationName, MigrationTrait, MigratorTrait, SchemaManager, async_trait,
    sea_orm::{ConnectionTrait as _, Database},
};

use crate::{Failure, LOCK, PATIENCE};

struct Migrator;

impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        let orders = Migration {
            name: "1_orders",
            up: include_str!("../migrations/diesel/1_orders/up.sql"),
            use_transaction: None,
        };
        let orders_by_customer = Migration {
            name: "2_orders_by_customer",
            up: include_str!("../migrations/diesel/2_orders_by_customer/up.sql"),
            // The server builds no index concurrently inside of one.
            use_transaction: Some(false),
        };
        vec![Box::new(orders), Box::new(orders_by_customer)]
    }
}

pub(crate) async fn migrate(locks: Locks, url: &str) -> Result<(), Failure> {
    let database = Database::connect(url).await?;
    locks.migrate(LOCK, PATIENCE, Migrator::up(&database, None)).await?;
    Ok(())
}

struct Migration {
    name: &'static str,
    up: &'static str,
    use_transaction: Option<bool>,
}

impl MigrationName for Migration {
    fn name(&self) -> &str {
        self.name
    }
}

#[async_trait::async_trait]
#[expect(
    elided_lifetimes_in_paths,
    reason = "the trait's has none that is written, which async_trait tells apart"
)]
impl MigrationTrait for Migration {
    async fn up(&self, schema: &SchemaManager) -> Result<(), DbErr> {
        schema.get_connection().execute_unprepared(self.up).await?;
        Ok(())
    }

    fn use_transaction(&self) -> Option<bool> {
        self.use_transaction
    }
}
