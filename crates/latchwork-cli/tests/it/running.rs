//! What `run` gives the command, and what it ends with.

use std::{
    net::TcpListener,
    process::{Command, Stdio},
};

use latchwork_harness::{Cluster, Proxy, StopMode, wait_until};

use crate::support::{PATIENCE, cluster, exit_status, held, latchwork, run, start, status, stdout, without_database};

#[test]
fn the_command_has_the_lock_and_knows_its_name_and_key() {
    let script = "echo $LATCHWORK_NAME $LATCHWORK_KEY ${LATCHWORK_TERM-none} ${LATCHWORK_SLOT-none}";
    let output = run(&["run", "--namespace", "shop", "reindex", "--", "/bin/sh", "-c", script]);
    assert_eq!(stdout(&output), "reindex 3107224507058314625 none none\n");
    let output = run(&[
        "run",
        "--namespace",
        "shop",
        "order",
        "42",
        "--",
        "/bin/sh",
        "-c",
        script,
    ]);
    assert_eq!(stdout(&output), "order/42 -4728112896971531517 none none\n");
    let output = run(&[
        "run",
        "--slots",
        "1",
        "pool",
        "--",
        "/bin/sh",
        "-c",
        "echo $LATCHWORK_SLOT",
    ]);
    assert_eq!(stdout(&output), "0\n");
}

#[test]
fn a_run_inside_another_knows_nothing_of_the_other_ones_lock() {
    let script = "echo $LATCHWORK_NAME ${LATCHWORK_TERM-none} ${LATCHWORK_SLOT-none}";
    let program = env!("CARGO_BIN_EXE_latchwork");
    let inner = [program, "run", "inner", "--", "/bin/sh", "-c", script];
    for outer in [&["--fenced", "outer"][..], &["--slots", "1", "outer slot"]] {
        let output = run(&[&["run"], outer, &["--"], &inner[..]].concat());
        assert_eq!(stdout(&output), "inner none none\n", "{outer:?}");
    }
}

#[test]
fn times_without_end_are_no_accident() {
    let times = [
        "--grace",
        "1e19",
        "--wait",
        "10000000000000000000s",
        "--max-run",
        "1e19",
        "long",
    ];
    assert_eq!(status(&[&["run"], &times[..], &["--", "true"]].concat()), 0);
    // Nor an end at once, for who is to be given time.
    let mut process = start(
        cluster(),
        &["run", "--grace", "1e19", "patient"],
        "trap 'echo told; sleep 0.5; echo tidy; exit 0' TERM; echo ready; while :; do sleep 0.05; done",
    );
    process.signal(latchwork_harness::Signal::KILL);
    process.wait_for_line("told").unwrap();
    process.wait_for_line("tidy").unwrap();
}

#[test]
fn the_lock_is_held_while_the_command_runs_and_no_longer() {
    let cluster = Cluster::start().unwrap();
    let mut process = start(&cluster, &["run", "alone"], "echo ready; exec sleep 60");
    assert_eq!(held(&cluster), "1");
    process.signal(latchwork_harness::Signal::TERM);
    assert_eq!(exit_status(&mut process), 143);
    assert!(wait_until(PATIENCE, || held(&cluster) == "0"));
}

#[test]
fn a_run_makes_one_connection() {
    let proxy = Proxy::start(cluster().endpoint()).unwrap();
    let ran = latchwork(&proxy.url(), &["run", "lean", "--", "true"])
        .status()
        .unwrap();
    assert!(ran.success());
    assert_eq!(proxy.accepted(), 1);
}

#[test]
fn the_status_is_that_of_the_command() {
    for code in [0, 1, 3, 42, 255] {
        assert_eq!(
            status(&["run", "status", "--", "/bin/sh", "-c", &format!("exit {code}")]),
            code
        );
    }
    assert_eq!(status(&["run", "status", "--", "/bin/sh", "-c", "kill -KILL $$"]), 137);
    assert_eq!(status(&["run", "status", "--", "/bin/sh", "-c", "kill -TERM $$"]), 143);
}

#[test]
fn a_command_that_is_not_there_or_can_not_be_run_is_told_as_a_shell_does() {
    assert_eq!(status(&["run", "missing", "--", "/no/such/program"]), 127);
    assert_eq!(status(&["run", "folder", "--", "/"]), 126);
    // And the lock is free again.
    assert_eq!(status(&["run", "--try", "missing", "--", "true"]), 0);
}

#[test]
fn who_finds_the_lock_held_is_told_so_and_runs_nothing() {
    let cluster = Cluster::start().unwrap();
    let _holder = start(&cluster, &["run", "busy"], "echo ready; exec sleep 60");
    for how in [&["--try"][..], &["--wait", "1s"], &["--wait", "0"]] {
        let mut arguments = vec!["run"];
        arguments.extend(how);
        arguments.extend(["busy", "--", "echo", "it runs"]);
        let output = latchwork(&cluster.url(), &arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(75), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("busy"), "{output:?}");
    }
    let quiet = latchwork(&cluster.url(), &["run", "--try", "-q", "busy", "--", "true"]).output();
    assert!(quiet.unwrap().stderr.is_empty());
}

#[test]
fn who_waits_has_the_lock_when_it_is_free() {
    let cluster = Cluster::start().unwrap();
    let holder = start(&cluster, &["run", "turns"], "echo ready; exec sleep 60");
    let mut waiter = latchwork(&cluster.url(), &["run", "--wait", "30s", "turns", "--", "true"])
        .spawn()
        .unwrap();
    let waits = || cluster.psql("SELECT count(*) FROM pg_locks WHERE NOT granted").unwrap() == "1";
    assert!(wait_until(PATIENCE, waits));
    holder.signal(latchwork_harness::Signal::TERM);
    assert!(waiter.wait().unwrap().success());
}

#[test]
fn those_who_share_run_at_once_and_one_who_does_not_waits() {
    let cluster = Cluster::start().unwrap();
    let _one = start(&cluster, &["run", "--shared", "report"], "echo ready; exec sleep 60");
    let shared = latchwork(&cluster.url(), &["run", "--shared", "--try", "report", "--", "true"]).status();
    assert!(shared.unwrap().success());
    let alone = latchwork(&cluster.url(), &["run", "--try", "report", "--", "true"]).status();
    assert_eq!(alone.unwrap().code(), Some(75));
}

#[test]
fn as_many_run_at_once_as_there_are_slots() {
    let cluster = Cluster::start().unwrap();
    let script = "echo ready $LATCHWORK_SLOT; exec sleep 60";
    let _one = start(&cluster, &["run", "--slots", "2", "--try", "render"], script);
    let _two = start(&cluster, &["run", "--slots", "2", "--try", "render"], script);
    let third = latchwork(
        &cluster.url(),
        &["run", "--slots", "2", "--try", "render", "--", "true"],
    )
    .status();
    assert_eq!(third.unwrap().code(), Some(75));
}

#[test]
fn a_fenced_command_has_a_term_that_grows() {
    let term = || {
        let output = run(&[
            "run",
            "--fenced",
            "ledger",
            "--",
            "/bin/sh",
            "-c",
            "echo $LATCHWORK_TERM",
        ]);
        stdout(&output).trim().to_owned()
    };
    let (first, second) = (term(), term());
    assert_eq!(first.len(), "00000001-00000000000002db".len());
    assert!(first < second, "{first} {second}");
}

fn refusal(arguments: &[&str]) -> (Option<i32>, String) {
    let output = run(arguments);
    assert!(output.stdout.is_empty(), "{output:?}");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_fenced_lock_that_was_not_asked_for_is_never_called_busy() {
    // Less than a connection has to be old, so that no server is asked.
    for wait in ["2s", "0", "5s"] {
        let (status, told) = refusal(&["run", "--fenced", "--wait", wait, "young", "--", "echo", "it runs"]);
        assert_eq!(status, Some(64), "{told}");
        assert!(told.contains("5s old"), "{told}");
    }
    let (status, told) = refusal(&["run", "--fenced", "--try", "young", "--", "echo", "it runs"]);
    assert_eq!(status, Some(64), "{told}");
    // More, but by less than it takes to connect.
    let (status, told) = refusal(&[
        "run",
        "--fenced",
        "--wait",
        "5000001us",
        "young",
        "--",
        "echo",
        "it runs",
    ]);
    assert_eq!(status, Some(69), "{told}");
    assert!(told.contains("nothing is known of the lock young"), "{told}");
    assert!(!told.contains("others hold"), "{told}");
}

#[test]
fn who_has_forgotten_the_dashes_before_the_command_is_told_so() {
    for verb in ["run", "elect"] {
        let (status, told) = refusal(&[verb, "mail", "true"]);
        assert_eq!(status, Some(64), "{told}");
        assert!(told.contains("the command comes after --"), "{told}");
    }
    let (_, told) = refusal(&["run", "--", "true"]);
    assert!(!told.contains("after --"), "{told}");
}

#[test]
fn a_number_below_zero_is_no_name_but_by_its_key() {
    for verb in ["run", "elect"] {
        let (status, told) = refusal(&[verb, "-5", "--", "true"]);
        assert_eq!(status, Some(64), "{told}");
        assert!(told.contains("--raw"), "{told}");
    }
    assert_eq!(status(&["run", "--raw", "-5", "--", "true"]), 0);
    assert_eq!(status(&["run", "account", "-5", "--", "true"]), 0);
    assert_eq!(status(&["run", "5", "--", "true"]), 0);
}

#[test]
fn every_status_is_in_the_help() {
    let help = stdout(&without_database(&["--help"]).output().unwrap());
    let (_, statuses) = help.split_once("Exit status: ").unwrap();
    for status in ["64", "69", "70", "74", "75", "124", "126", "127"] {
        assert!(statuses.contains(status), "{status}: {statuses}");
    }
}

#[test]
fn verbs_that_need_no_database_do_not_offer_one() {
    for verb in [&["key"][..], &["completions"], &["schema", "print"], &["ls"]] {
        let help = stdout(&without_database(&[verb, &["--help"]].concat()).output().unwrap());
        assert_eq!(help.contains("--url"), verb == ["ls"], "{help}");
    }
    // Whoever gives it to all of them may go on.
    for place in [
        &["--url", "host=x", "key", "mail"][..],
        &["key", "--url", "host=x", "mail"],
    ] {
        assert!(without_database(place).output().unwrap().status.success(), "{place:?}");
    }
}

#[test]
fn who_runs_too_long_ends_with_124_whatever_becomes_of_it() {
    for script in [
        "exec sleep 60",
        "trap 'exit 0' TERM; while :; do sleep 0.05; done",
        "trap '' TERM; while :; do sleep 0.05; done",
    ] {
        let arguments = [
            "run",
            "--max-run",
            "300ms",
            "--grace",
            "1s",
            "long",
            "--",
            "/bin/sh",
            "-c",
            script,
        ];
        assert_eq!(status(&arguments), 124, "{script}");
    }
    assert_eq!(
        status(&["run", "--max-run", "1h", "short", "--", "/bin/sh", "-c", "exit 3"]),
        3
    );
}

#[test]
fn the_way_to_a_server_that_never_answers_takes_no_longer_than_the_wait() {
    // The system takes the connection, and nobody answers on it.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let url = format!("postgres://shop@127.0.0.1:{port}/shop?sslmode=disable&connect_timeout=2");
    for (how, says) in [
        (&["--wait", "300ms"][..], "longer than --wait allows, which is 300ms"),
        (&["--wait", "1h"], "longer than 2s"),
        (&["--wait", "0"], "longer than 2s"),
        (&["--try"], "longer than 2s"),
    ] {
        let arguments = [&["run"], how, &["name", "--", "true"]].concat();
        let output = latchwork(&url, &arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(69), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(says), "{output:?}");
    }
}

#[test]
fn no_database_is_not_the_one_of_this_machine() {
    for empty in ["", " "] {
        let mut command = without_database(&["run", "--try", "--url", empty, "name", "--", "true"]);
        // Where there is one.
        let output = command.env("PGHOST", cluster().host()).output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{output:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("--url is empty"),
            "{output:?}"
        );
    }
    let output = latchwork("", &["run", "--try", "name", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(64), "{output:?}");
}

#[test]
fn what_can_not_be_understood_is_told_with_64_and_without_secrets() {
    let url = "postgres://shop:hunter2@db/shop";
    for arguments in [
        &["run"][..],
        &["run", "name"],
        &["run", "name", "--"],
        &["run", "name", "true"],
        &["run", "--wait", "soon", "name", "--", "true"],
        &["run", "--slots", "0", "name", "--", "true"],
        &["run", "--try", "--wait", "1s", "name", "--", "true"],
        &["run", "", "--", "true"],
        &["run", "--raw", "x", "--", "true"],
        &["run", "--url", "postgres://u:hunter2@h:port/d", "name", "--", "true"],
        &["ls", url],
        &["no-such-verb"],
        &[],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments:?} {output:?}");
        assert!(
            !String::from_utf8_lossy(&output.stderr).contains("hunter2"),
            "{output:?}"
        );
    }
    assert_eq!(without_database(&["ls"]).status().unwrap().code(), Some(64));
    assert!(without_database(&["--help"]).output().unwrap().status.success());
}

#[test]
fn a_database_that_is_not_there_is_69_and_never_busy() {
    let cluster = Cluster::start().unwrap();
    let url = cluster.url();
    cluster.stop(StopMode::Fast).unwrap();
    for arguments in [
        &["run", "--try", "name", "--", "true"][..],
        &["run", "--wait", "1s", "name", "--", "true"],
        &["elect", "name", "--", "true"],
        &["ls"],
        &["schema", "check"],
    ] {
        let output = latchwork(&url, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(69), "{arguments:?} {output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}

#[test]
fn an_outage_while_waiting_names_the_lock_and_is_69() {
    let cluster = Cluster::start().unwrap();
    let _holder = start(&cluster, &["run", "stuck"], "echo ready; exec sleep 60");
    let mut command = latchwork(&cluster.url(), &["run", "--wait", "8s", "stuck", "--", "true"]);
    let waiter = command.stderr(Stdio::piped()).spawn().unwrap();
    let waits = || cluster.psql("SELECT count(*) FROM pg_locks WHERE NOT granted").unwrap() == "1";
    assert!(wait_until(PATIENCE, waits));
    cluster.stop(StopMode::Immediate).unwrap();
    let output = waiter.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(69), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the lock stuck") && !said.contains("key "), "{said}");
}

#[test]
fn a_password_is_shown_by_nothing() {
    let url = "postgres://shop:hunter2@127.0.0.1:1/shop";
    let output = latchwork(url, &["run", "--try", "name", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(69));
    assert!(!format!("{output:?}").contains("hunter2"), "{output:?}");
}

#[test]
fn a_password_may_be_in_the_environment_or_in_the_password_file() {
    let hba = "local all postgres trust\nlocal all shop scram-sha-256\n";
    let cluster = Cluster::builder().hba(hba).start().unwrap();
    cluster.psql("CREATE ROLE shop LOGIN PASSWORD 'hunter2'").unwrap();
    let url = cluster.url_for("shop", "postgres");
    let arguments = ["run", "--try", "--url", &url, "name", "--", "true"];
    let status = |command: &mut Command| command.output().unwrap().status.code();
    assert_eq!(status(&mut without_database(&arguments)), Some(69));
    assert_eq!(
        status(without_database(&arguments).env("PGPASSWORD", "hunter2")),
        Some(0)
    );

    let file = std::env::temp_dir().join(format!("latchwork-cli-pgpass-{}", std::process::id()));
    std::fs::write(&file, "*:*:*:shop:hunter2\n").unwrap();
    let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, owner_only).unwrap();
    let found = status(without_database(&arguments).env("PGPASSFILE", &file));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(found, Some(0));

    let home = std::env::temp_dir().join(format!("latchwork-cli-home-{}", std::process::id()));
    std::fs::create_dir(&home).unwrap();
    let file = home.join(".pgpass");
    std::fs::write(&file, "*:*:*:shop:hunter2\n").unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let found = status(without_database(&arguments).env("HOME", &home));
    std::fs::remove_dir_all(&home).unwrap();
    assert_eq!(found, Some(0));
}

#[test]
fn the_database_may_be_named_by_the_variables_of_libpq() {
    let cluster = Cluster::start().unwrap();
    cluster.psql("CREATE ROLE shop LOGIN").unwrap();
    cluster.psql("CREATE DATABASE orders").unwrap();
    let named = |database: &str| {
        let script = "echo ready; exec sleep 60";
        let mut command = without_database(&["run", "--try", "libpq", "--", "/bin/sh", "-c", script]);
        command
            .env("PGHOST", cluster.host())
            .env("PGPORT", cluster.port().to_string())
            .env("PGUSER", "shop")
            .env("PGDATABASE", database);
        command
    };
    let mut held = latchwork_harness::Process::spawn(&mut named("orders")).unwrap();
    held.wait_for_line("ready").unwrap();
    let whose = "SELECT usename || ' in ' || datname FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid) \
         WHERE l.locktype = 'advisory' AND granted";
    assert_eq!(cluster.psql(whose).unwrap(), "shop in orders");

    // Not what is connected to, but what is said of it.
    let output = named("orders").env("PGSERVICE", "orders").output().unwrap();
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("PGSERVICE") && said.contains("write out"), "{said}");
}

#[test]
fn a_name_excludes_whoever_has_its_key_whatever_program_it_is() {
    let cluster = cluster();
    for (arguments, sql) in [
        (&["--raw", "-77"][..], "SELECT pg_advisory_lock(-77)"),
        (&["--raw", "1", "-2"], "SELECT pg_advisory_lock(1, -2)"),
        (
            &["--compat", "hashtext", "it's"],
            "SELECT pg_advisory_lock(hashtext('it''s'))",
        ),
    ] {
        let mut command = vec!["run", "--try"];
        command.extend(arguments);
        command.extend(["--", "true"]);
        let script = command
            .iter()
            .map(|word| format!("'{}'", word.replace('\'', r"'\''")))
            .collect::<Vec<_>>();
        let inside = format!(
            "{sql};\n\\! {} {}; echo $?",
            env!("CARGO_BIN_EXE_latchwork"),
            script.join(" ")
        );
        // psql runs our command while its session holds the lock.
        let inside = inside.replacen("\\! ", &format!("\\! DATABASE_URL='{}' ", cluster.url()), 1);
        assert!(cluster.psql(&inside).unwrap().ends_with("75"), "{arguments:?}");
        assert_eq!(status(&command), 0, "{arguments:?}");
    }
}
