use std::collections::HashMap;
use std::ffi::OsString;

use super::*;

fn config(text: &str) -> Config {
    text.parse().unwrap()
}

fn error(text: &str) -> ConfigError {
    text.parse::<Config>().unwrap_err()
}

fn entry(name: &str, port: u16) -> HostEntry {
    HostEntry {
        name: Some(name.to_owned()),
        address: None,
        port,
    }
}

#[test]
fn a_full_url_is_read() {
    let config = config(
        "postgresql://us%40er:p%2Fw%3A1@db1.example:5433/sh%20op?application_name=my%20app&connect_timeout=7\
         &target_session_attrs=read-write&options=-c%20geqo%3Doff",
    );
    assert_eq!(config.hosts, [entry("db1.example", 5433)]);
    assert_eq!(config.user(), Some("us@er"));
    assert_eq!(config.password.as_ref().map(Secret::expose), Some("p/w:1"));
    assert_eq!(config.dbname(), Some("sh op"));
    assert_eq!(config.application_name(), Some("my app"));
    assert_eq!(config.connect_timeout(), Duration::from_secs(7));
    assert_eq!(config.target_session_attrs(), TargetSessionAttrs::ReadWrite);
    assert_eq!(config.options.as_deref(), Some("-c geqo=off"));
}

#[test]
fn hosts_come_in_every_form_of_libpq() {
    let default = HostEntry {
        name: None,
        address: None,
        port: 5432,
    };
    let cases: &[(&str, &[HostEntry])] = &[
        ("postgres://", std::slice::from_ref(&default)),
        ("postgres:///db", std::slice::from_ref(&default)),
        ("", std::slice::from_ref(&default)),
        (
            "postgres://:6000/db",
            &[HostEntry {
                name: None,
                address: None,
                port: 6000,
            }],
        ),
        (
            "postgres://a,b:2,c",
            &[entry("a", 5432), entry("b", 2), entry("c", 5432)],
        ),
        (
            "postgres://[::1]:7,[fe80::1]",
            &[entry("::1", 7), entry("fe80::1", 5432)],
        ),
        (
            "postgres://%2Fvar%2Frun%2Fpostgresql:5/db",
            &[entry("/var/run/postgresql", 5)],
        ),
        (
            "postgres://u@/db?host=/run/a,/run/b&port=1,2",
            &[entry("/run/a", 1), entry("/run/b", 2)],
        ),
        ("postgres://ignored/db?host=used", &[entry("used", 5432)]),
        ("host=a,b port=9", &[entry("a", 9), entry("b", 9)]),
        ("host='a' port=''", &[entry("a", 5432)]),
        ("host = a\tport = 1\n user=x", &[entry("a", 1)]),
    ];
    for (text, expected) in cases {
        assert_eq!(config(text).hosts, *expected, "{text}");
    }
    let with_address = config("host=a,b hostaddr=10.0.0.1,::1");
    assert_eq!(with_address.hosts[1].address, Some("::1".parse().unwrap()));
    assert!(!with_address.hosts[0].is_socket());
    assert!(config("host=/run/x").hosts[0].is_socket());
}

#[test]
fn keyword_values_are_quoted_and_escaped_as_in_libpq() {
    let config = config(r"password='it\'s a \\ secret' dbname=a\ b user='' application_name='x=y'");
    assert_eq!(config.password.as_ref().map(Secret::expose), Some(r"it's a \ secret"));
    assert_eq!(config.dbname(), Some("a b"));
    assert_eq!(config.user(), None);
    assert_eq!(config.application_name(), Some("x=y"));
}

#[test]
fn every_sslmode_is_read_and_system_roots_mean_verify_full() {
    for (name, mode) in SslMode::NAMES {
        let root = if *mode == SslMode::VerifyCa {
            "&sslrootcert=/r.pem"
        } else {
            ""
        };
        let config = config(&format!("postgres://h/d?sslmode={name}{root}"));
        assert_eq!((config.ssl_mode(), config.ssl_mode().name()), (*mode, *name));
    }
    assert_eq!(config("postgres://h/d").ssl_mode(), SslMode::Prefer);
    assert_eq!(config("postgres://h/d?ssl=true").ssl_mode(), SslMode::Require);
    assert_eq!(
        config("postgres://h/d?sslrootcert=system").ssl_mode(),
        SslMode::VerifyFull
    );
    let weak = error("postgres://h/d?sslrootcert=system&sslmode=require");
    assert!(
        matches!(weak, ConfigError::InvalidValue { key: "sslmode", .. }),
        "{weak}"
    );
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    for (text, expected) in [
        ("sslmode=verify-ca", "sslrootcert"),
        ("sslcert=/a.pem", "sslkey"),
        ("sslkey=/a.pem", "sslcert"),
        ("sslnegotiation=direct", "sslnegotiation"),
        ("sslmode=disable channel_binding=require", "channel_binding"),
    ] {
        let found = error(text);
        assert!(
            matches!(found, ConfigError::InvalidValue { key, .. } if key == expected),
            "{text}: {found}"
        );
    }
    assert!(config("sslmode=require sslnegotiation=direct").ssl_direct());
}

#[test]
fn bad_values_name_the_key_and_what_is_right() {
    for (text, key) in [
        ("port=banana", "port"),
        ("port=0", "port"),
        ("port=70000", "port"),
        ("hostaddr=localhost", "hostaddr"),
        ("sslmode=yes", "sslmode"),
        ("connect_timeout=soon", "connect_timeout"),
        ("target_session_attrs=master", "target_session_attrs"),
        ("load_balance_hosts=true", "load_balance_hosts"),
        ("channel_binding=maybe", "channel_binding"),
        ("keepalives=yes", "keepalives"),
        ("keepalives_idle=1s", "keepalives_idle"),
        ("tcp_user_timeout=1s", "tcp_user_timeout"),
        ("client_encoding=LATIN1", "client_encoding"),
        ("gssencmode=require", "gssencmode"),
        ("sslcompression=1", "sslcompression"),
        ("dbname='a\0b'", "dbname"),
    ] {
        let found = error(text);
        assert!(
            matches!(found, ConfigError::InvalidValue { key: found, .. } if found == key),
            "{text}: {found}"
        );
    }
    assert_eq!(
        error("host=a,b port=1,2,3"),
        ConfigError::ListLength {
            key: "port",
            hosts: 2,
            others: 3
        }
    );
    assert_eq!(
        error("host=a,b hostaddr=::1"),
        ConfigError::ListLength {
            key: "hostaddr",
            hosts: 2,
            others: 1
        }
    );
}

#[test]
fn unknown_and_unsupported_keys_are_named() {
    assert_eq!(
        error("postgres://h/d?sslmod=require"),
        ConfigError::UnknownKey {
            key: "sslmod".to_owned()
        }
    );
    assert_eq!(error("hots=a"), ConfigError::UnknownKey { key: "hots".to_owned() });
    let found = error("postgres://h/d?sslcrl=/x.crl");
    assert!(
        matches!(found, ConfigError::UnsupportedKey { key: "sslcrl", .. }),
        "{found}"
    );
    assert!(found.to_string().contains("revocation"), "{found}");
}

#[test]
fn harmless_keys_of_libpq_are_accepted() {
    config("gssencmode=prefer client_encoding=UTF-8 sslcompression=0 fallback_application_name=x sslsni=0");
    assert_eq!(config("fallback_application_name=x").application_name(), Some("x"));
    assert_eq!(
        config("fallback_application_name=x application_name=y").application_name(),
        Some("y")
    );
}

#[test]
fn no_error_and_no_debug_output_shows_a_password() {
    for text in [
        "postgres://u:s3cret@h:banana/d",
        "postgres://u:s3cret@h:5432:1/d",
        "postgres://u:s3cret@[::1/d",
        "postgres://u:s3cret@h/d?nope",
        "postgres://u:s3cret@h/d?sslmode=maybe",
        "postgres://u:s3cret%zz@h/d",
        "postgres://u:%s3cret@h/d",
        "postgres://u:x@s3cret@h/d",
        "postgres://u:x/s3cret@h/d",
        "postgres://u:x?s3cret=1@h/d",
        "postgres://u:1/s3cret?x@h/d",
        "postgres://u:1/x?s3cret=2@h/d",
        "postgres://u:x:s3cret",
        "postgres://u:s3cret",
        "postgres://u:s3cret@a,b/d?port=1,2,3",
        "mysql://u:s3cret@h/d",
        "jdbc:postgresql://u:s3cret@h/d",
        "host=h password=x s3cret user=u",
        "host=h password=x s3cret=1 user=u",
        "host=h password='s3cret",
        "host=h password=s3cret\\",
        "password=s3cret port=banana",
        "password=s3cret sslcrl=/x",
        "s3cret",
        "u:s3cret@h/d",
        "password=s3cret\0",
        "sslpassword=s3cret",
    ] {
        let found = error(text);
        let shown = format!("{found} {found:?}");
        assert!(!shown.contains("s3cret"), "{text}: {shown}");
    }
    for text in [
        "postgres://u:s3cret@h/d",
        "password=s3cret",
        "postgres://u@h/d?password=s3cret",
    ] {
        let config = config(text);
        assert_eq!(config.password.as_ref().map(Secret::expose), Some("s3cret"), "{text}");
        let shown = format!("{config:?} {:#?} {:?}", config, config.to_tokio_postgres());
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}

#[test]
fn errors_say_what_to_do() {
    for (text, advice) in [
        ("postgres://u:p@w@h/d", "%40"),
        ("nonsense", "postgres://user:password@host:port/database"),
        ("host=a password=x y", "single quotes"),
        ("port=0", "1 to 65535"),
        ("service=x", "write out"),
    ] {
        assert!(error(text).to_string().contains(advice), "{text}: {}", error(text));
    }
}

fn from(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let variables: HashMap<_, _> = variables.iter().copied().collect();
    env::read(&|name| variables.get(name).map(OsString::from))
}

#[test]
fn database_url_comes_before_the_variables_of_libpq() {
    let config = from(&[
        ("DATABASE_URL", "postgres://u@h/d"),
        ("PGHOST", "other"),
        ("HOME", "/home/me"),
    ])
    .unwrap();
    assert_eq!(config.hosts, [entry("h", 5432)]);
    assert_eq!(config.passfile.as_deref(), Some(Path::new("/home/me/.pgpass")));
}

#[test]
fn variables_that_would_make_it_another_connection_are_refused_with_what_to_do() {
    let found = from(&[("PGHOST", "a"), ("PGSERVICE", "shop")]).unwrap_err();
    assert!(matches!(
        found,
        ConfigError::UnsupportedVariable {
            variable: "PGSERVICE",
            ..
        }
    ));
    let text = found.to_string();
    assert!(
        text.contains("PGSERVICE") && text.contains("write out what the service file says"),
        "{text}"
    );
    // Alone it stands for all the others.
    assert!(from(&[("PGSERVICE", "shop")]).is_err());
    for variable in ["PGSSLCRL", "PGREQUIREPEER", "PGREQUIREAUTH", "PGSSLMINPROTOCOLVERSION"] {
        assert!(from(&[("PGHOST", "a"), (variable, "x")]).is_err(), "{variable}");
    }
    assert!(from(&[("PGHOST", "a"), ("PGGSSENCMODE", "require")]).is_err());
    assert!(from(&[("PGHOST", "a"), ("PGGSSENCMODE", "disable"), ("PGSERVICE", "")]).is_ok());
    // Neither is read where a URL says all.
    assert!(from(&[("DATABASE_URL", "postgres://u@h/d"), ("PGSERVICE", "shop")]).is_ok());
}

#[test]
fn variables_of_libpq_are_read() {
    let config = from(&[
        ("PGHOST", "a,b"),
        ("PGPORT", "1,2"),
        ("PGUSER", "u"),
        ("PGPASSWORD", "p"),
        ("PGDATABASE", "d"),
        ("PGSSLMODE", "verify-full"),
        ("PGSSLROOTCERT", "/r.pem"),
        ("PGAPPNAME", "app"),
        ("PGCONNECT_TIMEOUT", "3"),
        ("PGTARGETSESSIONATTRS", "primary"),
        ("PGPASSFILE", "/p"),
        ("HOME", "/home/me"),
    ])
    .unwrap();
    assert_eq!(config.hosts, [entry("a", 1), entry("b", 2)]);
    assert_eq!((config.user(), config.dbname()), (Some("u"), Some("d")));
    assert_eq!(config.ssl_mode(), SslMode::VerifyFull);
    assert_eq!(config.target_session_attrs(), TargetSessionAttrs::Primary);
    assert_eq!(config.connect_timeout(), Duration::from_secs(3));
    assert_eq!(config.application_name(), Some("app"));
    assert_eq!(
        from(&[("PGHOST", "a"), ("PGPASSFILE", "/p")])
            .unwrap()
            .passfile
            .as_deref(),
        Some(Path::new("/p"))
    );
}

#[test]
fn what_a_text_leaves_open_is_in_the_variables_of_libpq() {
    let variables: HashMap<_, _> = [
        ("DATABASE_URL", "postgres://other/other"),
        ("PGHOST", "other"),
        ("PGUSER", "u"),
        ("PGPASSWORD", "p"),
        ("PGDATABASE", "other"),
        ("HOME", "/home/me"),
    ]
    .into();
    let read = |text: &str| env::read_with(text, &|name| variables.get(name).map(OsString::from)).unwrap();
    let config = read("postgres://h/d");
    assert_eq!(config.hosts, [entry("h", 5432)]);
    assert_eq!((config.user(), config.dbname()), (Some("u"), Some("d")));
    assert_eq!(config.password, Some(Secret::new("p".to_owned())));
    assert_eq!(read("host=h password=q").password, Some(Secret::new("q".to_owned())));
    let config = env::read_with("postgres://h/d", &|name| (name == "HOME").then(|| "/home/me".into())).unwrap();
    assert_eq!(config.passfile.as_deref(), Some(Path::new("/home/me/.pgpass")));
}

#[test]
fn an_empty_environment_is_an_error_that_says_what_to_set() {
    for variables in [&[][..], &[("HOME", "/home/me")], &[("DATABASE_URL", "")]] {
        let found = from(variables).unwrap_err();
        assert_eq!(found, ConfigError::NotSet);
        assert!(found.to_string().contains("DATABASE_URL"));
    }
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_utf8_is_named_and_not_shown() {
    use std::os::unix::ffi::OsStringExt as _;
    let read = |name: &str| (name == "PGPASSWORD").then(|| OsString::from_vec(vec![b's', 0xff]));
    assert_eq!(
        env::read(&read),
        Err(ConfigError::NotUnicode { variable: "PGPASSWORD" })
    );
}

#[test]
fn the_time_limit_is_never_infinite() {
    for text in ["connect_timeout=0", "connect_timeout=-1", ""] {
        assert_eq!(
            config(text).connect_timeout(),
            Config::DEFAULT_CONNECT_TIMEOUT,
            "{text}"
        );
    }
}

#[test]
fn the_driver_gets_the_hosts_and_never_tls_on_sockets() {
    use tokio_postgres::config::{Host, SslMode as Driver};
    let driver = config("postgres://u:p@a,b:2/d?sslmode=verify-full").to_tokio_postgres();
    assert_eq!(
        driver.get_hosts(),
        [Host::Tcp("a".to_owned()), Host::Tcp("b".to_owned())]
    );
    assert_eq!(
        (driver.get_ports(), driver.get_ssl_mode()),
        (&[5432, 2][..], Driver::Require)
    );
    let driver = config("host=/run/x sslmode=require").to_tokio_postgres();
    assert_eq!(driver.get_hosts(), [Host::Unix(PathBuf::from("/run/x"))]);
    assert_eq!(driver.get_ssl_mode(), Driver::Disable);
}

#[test]
fn keepalive_never_gives_up_before_the_silence_that_is_allowed() {
    for silence in [1, 4, 15, 61].map(Duration::from_secs) {
        let mut driver = tokio_postgres::Config::new();
        config("").apply_keepalive(&mut driver, silence);
        let probes = driver.get_keepalives_interval().unwrap() * driver.get_keepalives_retries().unwrap();
        assert!(driver.get_keepalives_idle() + probes >= silence);
        assert_eq!(driver.get_tcp_user_timeout(), Some(&silence));
    }
    let mut driver = tokio_postgres::Config::new();
    let own = config("keepalives_idle=9 keepalives_interval=8 keepalives_count=7 tcp_user_timeout=6000");
    own.apply_keepalive(&mut driver, Duration::from_secs(15));
    assert_eq!(driver.get_keepalives_idle(), Duration::from_secs(9));
    assert_eq!(driver.get_keepalives_interval(), Some(Duration::from_secs(8)));
    assert_eq!(driver.get_keepalives_retries(), Some(7));
    assert_eq!(driver.get_tcp_user_timeout(), Some(&Duration::from_secs(6)));
}
