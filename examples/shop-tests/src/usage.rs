//! The command line.

use std::net::TcpListener;

use latchwork_harness::Cluster;

use crate::{
    http::get,
    program::{Program, Shop, run},
};

pub fn help_names_every_option_and_route(program: &Program) {
    let (code, output, _) = run(&mut program.command(&["--help"]));
    assert_eq!(code, 0);
    for word in [
        "--port N",
        "--host ADDRESS",
        "--database-url URL",
        "DATABASE_URL",
        "POST /orders/{id}/charge?ms=N",
        "GET  /ai?ms=N[&stream=1]",
        "POST /payments?ms=N[&fail=1]",
        "GET  /search?q=..",
        "GET  /stats",
        "Exit status",
    ] {
        assert!(output.contains(word), "{word}");
    }
}

pub fn a_mistake_on_the_command_line_is_exit_status_2(program: &Program) {
    for mistake in [
        &["--prot"][..],
        &["--port"],
        &["--port", "0"],
        &["--port", "http"],
        &["--host", "localhost"],
        &["--database-url"],
        &["serve"],
    ] {
        let (code, output, errors) = run(&mut program.command(mistake));
        assert_eq!(code, 2, "{mistake:?}: {errors}");
        assert!(output.is_empty() && errors.contains("--help"), "{output}{errors}");
    }
}

pub fn a_url_that_does_not_parse_is_exit_status_2_and_its_password_is_not_shown(program: &Program) {
    let url = "postgres://u:hunter2@host:port/db";
    for (named, command) in [
        (
            "--database-url",
            program.command(&["--database-url", url]).env("DATABASE_URL", ""),
        ),
        ("DATABASE_URL", program.command(&[]).env("DATABASE_URL", url)),
    ] {
        let (code, output, errors) = run(command);
        assert_eq!(code, 2, "{errors}");
        assert!(errors.contains(named), "{errors}");
        assert!(!format!("{output}{errors}").contains("hunter2"), "{errors}");
    }
}

pub fn a_database_that_does_not_answer_is_exit_status_1(program: &Program) {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("postgres://u:hunter2@{closed}/db");
    let (code, output, errors) = run(&mut program.command(&["--database-url", &url]));
    assert_eq!(code, 1, "{errors}");
    assert!(errors.contains("no PostgreSQL server answers"), "{errors}");
    assert!(!format!("{output}{errors}").contains("hunter2"), "{errors}");
}

pub fn a_port_that_is_taken_is_exit_status_1_and_named(program: &Program) {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let (code, output, errors) = run(&mut program.command(&["--port", &port]));
    assert_eq!(code, 1, "{errors}");
    assert!(errors.contains(&port) && errors.contains("--port"), "{errors}");
    assert!(output.is_empty() && !errors.contains("cluster"), "{output}{errors}");
}

pub fn it_listens_where_it_is_told_to_on_the_database_of_the_environment(program: &Program) {
    let cluster = Cluster::start().unwrap();
    let free = TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap();
    let port = free.port().to_string();
    let shop = Shop::start(
        program
            .command(&["--host", "127.0.0.2", "--port", &port])
            .env("DATABASE_URL", cluster.url()),
    );
    assert_eq!(shop.address, free.to_string());
    assert_eq!(get(&shop.address, "/stats").status, 200);
    assert_eq!(cluster.psql("SELECT count(*) FROM shop.orders").unwrap(), "0");
}
