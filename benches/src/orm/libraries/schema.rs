//! The table, as diesel knows it.

diesel::table! {
    items (id) {
        id -> BigInt,
        stock -> BigInt,
    }
}
