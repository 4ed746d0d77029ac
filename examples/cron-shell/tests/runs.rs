//! The example itself.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

fn cron_shell(arguments: &[&Path]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_cron-shell")).args(arguments).output();
    output.expect("it is built beside its test")
}

#[test]
fn each_line_runs_once_on_two_hosts_that_come_at_the_same_moment() {
    let output = cron_shell(&[]);
    let (said, complained) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{said}\n{complained}");
    assert!(said.contains("latchwork understands each of 4 lines."), "{said}");
    let once = said.matches("ran on a; exit statuses: a 0, b 75").count()
        + said.matches("ran on b; exit statuses: a 75, b 0").count();
    assert_eq!(once, 3, "{said}");
    let in_turn = said.matches(", and then on ").count();
    assert_eq!(in_turn, 1, "{said}");
}

#[test]
fn a_line_that_latchwork_does_not_understand_is_refused() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("crontab");
    for (flags, complaint) in [
        ("--hold-for 10s", "unexpected argument '--hold-for'"),
        ("--wait 1m --tick now", "cannot be used with"),
        (
            "--tick '0 25 * * *'",
            "the cron expression \"0 25 * * *\" can't be read",
        ),
    ] {
        fs::write(&file, format!("* * * * * latchwork run {flags} job -- ./job.sh\n")).unwrap();
        let output = cron_shell(&[&file]);
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && complained.contains(complaint),
            "{flags}\n{complained}"
        );
    }
}
