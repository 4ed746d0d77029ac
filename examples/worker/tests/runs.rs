//! The example itself.

use std::process::Command;

#[test]
fn work_goes_on_and_happens_once_though_the_leader_is_killed() {
    let output = Command::new(env!("CARGO_BIN_EXE_worker")).output();
    let output = output.expect("it is built beside its test");
    let (said, complained) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{said}\n{complained}");
    for line in [
        "kill -9 ",
        " were taken over: ",
        "Terms rose from ",
        "Nothing was dispatched in the old term",
        "Each of 300 orders was shipped once.",
        "ticks, and each ran once: ",
    ] {
        assert!(said.contains(line), "{line}\n{said}\n{complained}");
    }
    assert_eq!(complained.matches("has ended in order").count(), 2, "{complained}");
    assert!(!complained.contains("could not"), "{complained}");
}
