//! Names of keys.
/// Names.
#[derive(Debug, Clone, Default)]
pub struct Registry {}
