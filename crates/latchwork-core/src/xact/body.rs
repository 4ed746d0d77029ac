use std::future::Future;

/// What runs in a locked transaction: an async closure or function of one argument, whose future is `Send`.
///
/// Implemented for all of them. `A` is the argument, as the library has it; users need not name this.
pub trait TransactionBody<A, T, E>: AsyncFnOnce(A) -> Result<T, E> + FnOnce(A) -> Self::Running + Send {
    /// The body at work.
    type Running: Future<Output = Result<T, E>> + Send;
}

impl<F, A, R, T, E> TransactionBody<A, T, E> for F
where
    // The first lets closures do without the type of their argument.
    F: AsyncFnOnce(A) -> Result<T, E> + FnOnce(A) -> R + Send,
    R: Future<Output = Result<T, E>> + Send,
{
    type Running = R;
}
