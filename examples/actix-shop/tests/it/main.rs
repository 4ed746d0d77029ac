//! The program as users start it, beside another instance of it, and beside one on axum.

use shop_tests::{Program, scenarios_of_one, scenarios_of_two};

fn program() -> Program {
    Program::at(env!("CARGO_BIN_EXE_actix-shop"))
}

scenarios_of_one!(crate::program());

mod two {
    super::scenarios_of_two!(crate::program(), crate::program());
}

mod with_axum {
    super::scenarios_of_two!(crate::program(), crate::program().beside("axum-shop"));
}
