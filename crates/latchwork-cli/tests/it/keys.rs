//! Keys in every form.

use crate::support::{cluster, stdout, without_database};

fn key(arguments: &[&str]) -> String {
    let mut all = vec!["key"];
    all.extend(arguments);
    stdout(&without_database(&all).output().unwrap())
}

#[test]
fn a_name_has_its_documented_key_without_a_database() {
    let text = key(&["--namespace", "shop", "reindex"]);
    assert!(text.contains("3107224507058314625"), "{text}");
    assert!(text.contains(" 723457081/4103691649/1\n"), "{text}");
    assert!(text.contains("pg_catalog.sha256("), "{text}");
}

#[test]
fn what_is_shown_as_sql_is_what_the_server_has() {
    let text = key(&["--namespace", "it's", "größe", "42"]);
    let value = |label: &str| {
        let line = text.lines().find(|line| line.starts_with(label)).unwrap();
        line[label.len()..].trim().to_owned()
    };
    assert_eq!(cluster().psql(&value("computed by")).unwrap(), value("bigint"));
    let look = "SELECT classid || '/' || objid || '/' || objsubid FROM pg_locks \
                WHERE locktype = 'advisory' AND pid = pg_backend_pid()";
    let seen = cluster().psql(&format!("{};\n{look}", value("locked by"))).unwrap();
    assert_eq!(seen.trim(), value("classid/objid/objsubid"));
    let seen = cluster()
        .psql(&format!("{};\n{};\n", value("tried by"), value("unlocked by")))
        .unwrap();
    assert_eq!(seen, "t\nt");
}

#[test]
fn keys_of_other_tools_are_their_published_ones() {
    let text = key(&[
        "--json",
        "--compat",
        "hashtext,sqlx,with-advisory-lock,distributed-lock-net",
        "foo",
    ]);
    let keys: Vec<&str> = text
        .lines()
        .map(|line| line.split("\"key\":\"").nth(1).unwrap().split('"').next().unwrap())
        .collect();
    assert_eq!(
        keys,
        ["1955559433", "171470676134381313", "(208889121, 0)", "(-843088897, -1)"]
    );
    assert!(key(&["--compat", "prisma-migrate"]).contains("72707369"));
    assert!(key(&["--raw", "1", "-2"]).contains("(1, -2)"));
}
