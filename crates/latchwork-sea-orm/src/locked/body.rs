use std::future::Future;

use sea_orm::DatabaseTransaction;

/// What runs in a locked transaction: an async closure, or an async function, whose future is `Send`.
///
/// It is implemented for all of them. It is there since a bound on an async closure cannot yet say that its future is
/// `Send`. Where the compiler says of a closure that its `Send` is "not general enough", as it does of closures inside of
/// closures that borrow, an async function in its place helps.
///
/// # Examples
///
/// A body may borrow from what surrounds it:
///
/// ```no_run
/// use std::time::Duration;
///
/// use latchwork_sea_orm::{Key, LockedTransactionExt as _, XactOptions};
/// use sea_orm::{ConnectionTrait as _, DatabaseConnection, DbErr};
///
/// # async fn example(db: DatabaseConnection) -> Result<(), Box<dyn std::error::Error>> {
/// let statements = ["UPDATE a SET n = n - 1", "UPDATE b SET n = n + 1"];
/// let options = XactOptions::within(Duration::from_secs(2));
/// db.locked_transaction([Key::bigint(1), Key::bigint(2)], options, async |tx| {
///     for statement in &statements {
///         tx.execute_unprepared(statement).await?;
///     }
///     Ok::<_, DbErr>(())
/// })
/// .await?;
/// # Ok(())
/// # }
/// ```
pub trait TransactionBody<'t, T, E>:
    AsyncFnOnce(&'t DatabaseTransaction) -> Result<T, E> + FnOnce(&'t DatabaseTransaction) -> Self::Running + Send
{
    /// The body at work.
    type Running: Future<Output = Result<T, E>> + Send;
}

impl<'t, T, E, F, R> TransactionBody<'t, T, E> for F
where
    F: AsyncFnOnce(&'t DatabaseTransaction) -> Result<T, E> + FnOnce(&'t DatabaseTransaction) -> R + Send,
    R: Future<Output = Result<T, E>> + Send,
{
    type Running = R;
}
