use std::future::Future;

/// What is done in a locked transaction: an async closure `async |tx| { .. }` over `&mut AsyncPgConnection`, or a function
/// like it. Implemented for all of them.
///
/// Its future is `Send`. `A` is the argument; users of
/// [`locked_transaction`](crate::LockedTransactionExt::locked_transaction) need not name it.
pub trait TransactionBody<A, T, E>: AsyncFnOnce(A) -> Result<T, E> + FnOnce(A) -> Self::Running + Send {
    /// The body at work.
    type Running: Future<Output = Result<T, E>> + Send;
}

impl<F, A, R, T, E> TransactionBody<A, T, E> for F
where
    F: AsyncFnOnce(A) -> Result<T, E> + FnOnce(A) -> R + Send,
    R: Future<Output = Result<T, E>> + Send,
{
    type Running = R;
}
