use std::net::TcpListener;

use crate::program::{program, run};

#[test]
fn help_names_every_option_and_exit_status() {
    let (code, output, _) = run(&mut program(&["--help"]));
    assert_eq!(code, 0);
    for word in [
        "--serve",
        "--port N",
        "--memory",
        "DATABASE_URL",
        "/ai?ms=N",
        "/orders/{id}/charge?ms=N",
        "Exit status",
    ] {
        assert!(output.contains(word), "{word}");
    }
}

#[test]
fn a_mistake_on_the_command_line_is_exit_status_2() {
    for mistake in [
        &["--sevre"][..],
        &["--port"],
        &["--port", "65535"],
        &["--port", "http"],
        &["serve"],
    ] {
        let (code, output, errors) = run(&mut program(mistake));
        assert_eq!(code, 2, "{mistake:?}: {errors}");
        assert!(output.is_empty() && errors.contains("--help"), "{output}{errors}");
    }
}

#[test]
fn a_database_url_that_does_not_parse_is_exit_status_2_and_its_password_is_not_shown() {
    let (code, output, errors) = run(program(&[]).env("DATABASE_URL", "postgres://u:hunter2@host:port/db"));
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("DATABASE_URL"), "{errors}");
    assert!(!format!("{output}{errors}").contains("hunter2"), "{errors}");
}

#[test]
fn a_database_that_does_not_answer_is_exit_status_1_and_told_once() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("postgres://u:hunter2@{closed}/db");
    let (code, output, errors) = run(program(&[]).env("DATABASE_URL", url));
    assert_eq!(code, 1, "{errors}");
    assert_eq!(errors.matches("no PostgreSQL server answers").count(), 1, "{errors}");
    assert!(!format!("{output}{errors}").contains("hunter2"), "{errors}");
}

#[test]
fn a_port_that_is_taken_is_exit_status_1_and_named() {
    for arguments in [&["--serve", "--memory"][..], &["--serve"]] {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port().to_string();
        let (code, output, errors) = run(&mut program(&[arguments, &["--port", &port]].concat()));
        assert_eq!(code, 1, "{errors}");
        assert!(errors.contains(&port) && errors.contains("--port"), "{errors}");
        assert!(output.is_empty(), "{output}");
    }
}
