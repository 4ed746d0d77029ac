//! The canonical key in SQL.
