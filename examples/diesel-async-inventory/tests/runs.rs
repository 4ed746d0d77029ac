//! The example itself.

#[test]
fn exactly_fifty_are_sold() {
    inventory::check(env!("CARGO_BIN_EXE_diesel-async-inventory"));
}
