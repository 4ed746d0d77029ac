//! The table `stock`.

diesel::table! {
    stock (item) {
        item -> Integer,
        remaining -> Integer,
    }
}
