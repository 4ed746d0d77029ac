use crate::run::{Failure, cargo, run};

/// Builds the documentation; a broken link or a missing item is an error.
pub(crate) fn docs() -> Result<(), Failure> {
    let mut doc = cargo(&[
        "doc",
        "--workspace",
        "--no-deps",
        "--all-features",
        "--document-private-items",
        "--locked",
    ]);
    run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}
