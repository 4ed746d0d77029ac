//! Keys of other tools.
