//! Locks of [latchwork](https://docs.rs/latchwork) in the transactions of sea-orm.
