//! The example itself.

use std::process::Command;

#[test]
fn two_processes_at_once_apply_each_migration_once() {
    let output = Command::new(env!("CARGO_BIN_EXE_migrations")).output();
    let output = output.expect("it is built beside its test");
    let (said, complained) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{said}\n{complained}");
    for tool in ["diesel", "sea-orm", "sqlx", "refinery"] {
        assert!(
            said.contains(&format!("{tool}: 2 migrations were applied once")),
            "{said}"
        );
    }
}
