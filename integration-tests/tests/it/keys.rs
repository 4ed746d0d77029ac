//! Keys as a real server sees them, on every major that is installed.

use latchwork_core::key::sql::SqlPart;
use latchwork_core::key::{Key, Namespace, compat};
use latchwork_harness::Cluster;

use crate::onlooker::{Onlooker, assert_quiet, majors};

async fn on_each_major(test: impl AsyncFn(Onlooker)) {
    for installation in majors() {
        println!("PostgreSQL {}", installation.version());
        let cluster = Cluster::builder().installation(installation).start().unwrap();
        test(Onlooker::new(&cluster.url()).await).await;
        assert_quiet(&cluster);
    }
}

fn quoted(text: &str) -> String {
    format!("E'{}'", text.replace('\\', r"\\").replace('\'', "''"))
}

#[tokio::test]
async fn sql_and_rust_agree_on_every_key() {
    on_each_major(async |server| {
        let long = "long ".repeat(13_000);
        let names: [&[&str]; 13] = [
            &["reindex"],
            &["order", "42"],
            &["a", "bc"],
            &["ab", "c"],
            &["", "x"],
            &["größe 漢字 😀", "é"],
            &["it's", "\"quoted\"", "$1", "$$", "%s"],
            &[r"back\slash", r"\'; SELECT 1; --", r"\\"],
            &["line\nbreak", "tab\t", "\r\n", "\u{1}\u{7f}"],
            &[" ", "  "],
            &["e\u{301}", "é"],
            &["UPPER", "upper"],
            &[&long],
        ];
        let namespaces = [
            Namespace::unnamed(),
            Namespace::new("shop").unwrap(),
            Namespace::new(r"it's a \ 漢").unwrap(),
        ];
        for namespace in &namespaces {
            for parts in names {
                let key = namespace.key_of(parts).unwrap().to_string();
                let texts: Vec<SqlPart<'_>> = parts.iter().map(|part| SqlPart::Text(part)).collect();
                let fixed = namespace.sql(&texts).unwrap();
                for setting in ["on", "off"] {
                    let select = format!("SET standard_conforming_strings = {setting}; SELECT {fixed}");
                    assert_eq!(server.value(&select).await, key, "{setting} {parts:.60?}");
                }
                let params: Vec<SqlPart<'_>> = (1..=parts.len()).map(|number| SqlPart::Param(number as u16)).collect();
                let open = namespace.sql(&params).unwrap();
                let values = parts.iter().map(|part| quoted(part)).collect::<Vec<_>>().join(", ");
                let execute = format!("PREPARE k AS SELECT {open}; EXECUTE k({values}); DEALLOCATE k");
                assert_eq!(server.value(&execute).await, key, "{parts:.60?}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn expressions_and_nulls_in_sql_keys_behave_as_documented() {
    on_each_major(async |server| {
        let shop = Namespace::new("shop").unwrap();
        let number = shop
            .sql(&[SqlPart::Text("order"), SqlPart::Expression("-42::bigint")])
            .unwrap();
        assert_eq!(
            server.value(&format!("SELECT {number}")).await,
            shop.key_of(&["order", "-42"]).unwrap().to_string()
        );
        let null = shop
            .sql(&[SqlPart::Text("order"), SqlPart::Expression("NULL")])
            .unwrap();
        assert_eq!(server.value(&format!("SELECT ({null}) IS NULL")).await, "t");
    })
    .await;
}

#[tokio::test]
async fn no_search_path_can_replace_a_part_of_the_sql_key() {
    on_each_major(async |server| {
        let shop = Namespace::new("shop").unwrap();
        let key = shop.sql(&[SqlPart::Text("order")]).unwrap();
        let hostile = format!(
            "BEGIN; CREATE SCHEMA hostile;
         CREATE FUNCTION hostile.sha256(bytea) RETURNS bytea LANGUAGE sql AS $$ SELECT 'x'::bytea $$;
         CREATE FUNCTION hostile.convert_to(text, name) RETURNS bytea LANGUAGE sql AS $$ SELECT 'x'::bytea $$;
         CREATE FUNCTION hostile.glue(bytea, bytea) RETURNS bytea LANGUAGE sql AS $$ SELECT 'x'::bytea $$;
         CREATE OPERATOR hostile.|| (LEFTARG = bytea, RIGHTARG = bytea, FUNCTION = hostile.glue);
         CREATE DOMAIN hostile.int8 AS pg_catalog.int4;
         SET LOCAL search_path TO hostile, pg_catalog;
         SELECT {key}; ROLLBACK"
        );
        assert_eq!(server.value(&hostile).await, shop.key("order").unwrap().to_string());
    })
    .await;
}

#[tokio::test]
async fn rust_and_the_server_agree_on_hashtext() {
    on_each_major(async |server| {
    const ALPHABET: [char; 8] = ['a', 'Z', '0', ' ', '/', 'é', '漢', '😀'];
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..300 {
        let text: String = (0..random.usize(0..60)).map(|_| ALPHABET[random.usize(..8)]).collect();
        let (seed, literal) = (random.i64(..), quoted(&text));
        let said = server.value(&format!(
            "SELECT pg_catalog.concat_ws(',', hashtext({literal}), hashtextextended({literal}, 0), hashtextextended({literal}, {seed}))"
        )).await;
        let (plain, extended) = (compat::hashtext32(&text), compat::hashtextextended(&text, 0));
        assert_eq!(
            said,
            format!("{plain},{extended},{}", compat::hashtextextended(&text, seed)),
            "{text:?} {seed}"
        );
    }
    }).await;
}

#[tokio::test]
async fn every_key_is_found_again_in_pg_locks() {
    on_each_major(async |server| {
        let bigints = [0, -1, i64::MIN, i64::MAX, 1 << 32 | 2].map(Key::bigint);
        let pairs = [(0, 0), (-1, 1), (i32::MIN, i32::MAX), (1, 2)].map(|(first, second)| Key::pair(first, second));
        for key in bigints.into_iter().chain(pairs) {
            let row = server
                .value(&format!(
            "BEGIN; SELECT pg_catalog.concat_ws(',', classid, objid, objsubid) FROM pg_advisory_xact_lock({}), pg_locks
             WHERE locktype = 'advisory' AND pid = pg_backend_pid(); COMMIT",
            key.to_string().trim_matches(['(', ')'])
        ))
                .await;
            let cells: Vec<u32> = row.split(',').map(|cell| cell.parse().unwrap()).collect();
            assert_eq!(Key::from_pg_locks(cells[0], cells[1], cells[2] as u16), Some(key));
        }
    })
    .await;
}
