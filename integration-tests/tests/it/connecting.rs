//! Reaching a server, and being sure that its locks can be trusted.

mod poolers;

use std::error::Error;
use std::future::Future;
use std::sync::LazyLock;
use std::task::Poll;
use std::time::{Duration, Instant};

use latchwork_harness::{Cluster, Endpoint, Proxy, wait_until};
use latchwork_postgres::checks::CheckError;
use latchwork_postgres::config::Config;
use latchwork_postgres::connect::{ConnectError, Connected, SessionSettings, connect};
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::SqlState;

use crate::fake_server::{self, Script};

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::builder().tcp().start().unwrap());

async fn try_connect(url: &str) -> Result<Connected, ConnectError> {
    connect(&url.parse::<Config>().unwrap(), &SessionSettings::default(), None).await
}

async fn refused(url: &str) -> CheckError {
    match try_connect(url).await {
        Err(ConnectError::Refused { source, .. }) => source,
        other => panic!("expected a refusal, not {other:?}"),
    }
}

async fn value(connected: &mut Connected, sql: &str) -> String {
    let answered = connected.wire.drive(connected.client.simple_query(sql)).await.unwrap();
    let row = answered.into_iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
        _ => None,
    });
    row.unwrap()
}

async fn falls_asleep(pid: i32) {
    let question = format!("SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = {pid}");
    let asleep = move || wait_until(Duration::from_secs(10), || CLUSTER.psql(&question).unwrap() == "t");
    assert!(tokio::task::spawn_blocking(asleep).await.unwrap());
}

fn chain(error: &dyn Error) -> String {
    let mut text = format!("{error} {error:?}");
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(" / {error} {error:?}"));
        source = error.source();
    }
    text
}

#[track_caller]
fn assert_quiet(cluster: &Cluster) {
    let log = cluster.log();
    let loud = log.lines().find(|line| {
        ["WARNING:", "ERROR:", "FATAL:", "PANIC:"]
            .iter()
            .any(|w| line.contains(w))
    });
    assert_eq!(loud, None, "{log}");
}

#[tokio::test]
async fn a_session_is_checked_set_up_and_holds_nothing() {
    let mut builder = Cluster::builder().setting("max_prepared_transactions", 7);
    let limits = [
        "statement_timeout",
        "lock_timeout",
        "idle_in_transaction_session_timeout",
    ];
    for limit in limits {
        builder = builder.setting(limit, "1h");
    }
    let cluster = builder.start().unwrap();
    let config: Config = cluster.url().parse().unwrap();
    let settings = SessionSettings::default()
        .with_application_name("checked")
        .with_silence(Duration::from_millis(12_345))
        .with_check_interval(Duration::from_millis(1_500));
    let mut connected = connect(&config, &settings, None).await.unwrap();

    assert_eq!(connected.facts.major(), cluster.installation().major());
    assert_eq!(connected.facts.lock_capacity, 64 * 107);
    assert_eq!(connected.facts.database, "postgres");
    assert!(!connected.facts.pooled);
    assert!(connected.facts.started.elapsed().unwrap() < Duration::from_secs(600));
    let pid = value(&mut connected, "SELECT pg_backend_pid()").await;
    assert_eq!(pid, connected.facts.backend_pid.to_string());
    let oid = value(&mut connected, "SELECT oid FROM pg_database WHERE datname = 'postgres'").await;
    assert_eq!(oid, connected.facts.database_oid.to_string());
    assert_eq!(value(&mut connected, "SHOW application_name").await, "checked");
    for limit in limits {
        assert_eq!(value(&mut connected, &format!("SHOW {limit}")).await, "0", "{limit}");
    }
    for (setting, since_14) in [
        ("idle_session_timeout", "12345ms"),
        ("client_connection_check_interval", "1500ms"),
    ] {
        let expected = if connected.facts.major() >= 14 { since_14 } else { "" };
        let shown = value(&mut connected, &format!("SELECT current_setting('{setting}', true)")).await;
        assert_eq!(shown, expected, "{setting}");
    }
    assert_eq!(
        cluster
            .psql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
            .unwrap(),
        "0"
    );
    let alone = || {
        cluster.psql("SELECT count(*) FROM pg_stat_activity WHERE usename = 'postgres' AND pid <> pg_backend_pid() AND backend_type = 'client backend'").unwrap() == "1"
    };
    assert!(
        wait_until(Duration::from_secs(10), alone),
        "the second session of the probe is gone"
    );
    assert_quiet(&cluster);
}

#[tokio::test]
async fn a_known_server_is_checked_in_one_round_trip() {
    let settings = SessionSettings::default();
    let first = connect(&CLUSTER.url().parse().unwrap(), &settings, None).await.unwrap();
    let proxy = Proxy::start(CLUSTER.endpoint()).unwrap();
    let config: Config = proxy.url().parse().unwrap();
    let second = connect(&config, &settings, Some(&first.facts)).await.unwrap();
    assert_eq!(second.facts.product, first.facts.product);
    assert_eq!(proxy.accepted(), 1);
    // One for the login (trust: startup and its answer), one for the checks.
    assert_eq!(proxy.round_trips(), 2);
}

#[tokio::test]
async fn over_tcp_the_server_watches_the_line_too() {
    let mut connected = try_connect(&CLUSTER.tcp_url_for("postgres", "postgres").unwrap())
        .await
        .unwrap();
    assert_eq!(value(&mut connected, "SHOW tcp_user_timeout").await, "15000");
    assert_eq!(value(&mut connected, "SHOW tcp_keepalives_idle").await, "4");
}

#[tokio::test]
async fn a_cancel_request_stops_the_statement_and_never_the_next_one() {
    let mut connected = try_connect(&CLUSTER.tcp_url_for("postgres", "postgres").unwrap())
        .await
        .unwrap();
    for _ in 0..20 {
        let canceller = connected.canceller.clone();
        let pid = connected.facts.backend_pid;
        let cancelling = tokio::spawn(async move {
            falls_asleep(pid).await;
            canceller.cancel().await.unwrap();
        });
        let asleep = connected
            .wire
            .drive(connected.client.simple_query("SELECT pg_sleep(60)"))
            .await;
        assert_eq!(asleep.unwrap_err().code(), Some(&SqlState::QUERY_CANCELED));
        cancelling.await.unwrap();
        connected.canceller.cancel().await.unwrap();
        assert_eq!(value(&mut connected, "SELECT 1").await, "1");
    }
}

#[tokio::test]
async fn no_server_is_unreachable_and_says_where() {
    let folder = std::env::temp_dir();
    let error = try_connect(&format!("host={} port=1", folder.display()))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, ConnectError::Unreachable { server, .. } if server.contains(".s.PGSQL.1")),
        "{error:?}"
    );
    assert!(!error.is_permanent());
    let error = try_connect("host=127.0.0.1 port=1").await.unwrap_err();
    assert!(
        matches!(&error, ConnectError::Unreachable { server, .. } if server == "127.0.0.1:1"),
        "{error:?}"
    );
    let error = try_connect("host=no-such-host.invalid").await.unwrap_err();
    assert!(matches!(&error, ConnectError::UnknownHost { .. }), "{error:?}");
}

#[tokio::test]
async fn wrong_passwords_are_told_apart_from_missing_ones_and_are_never_shown() {
    let hba = "local all postgres trust\nlocal all all scram-sha-256\n";
    let cluster = Cluster::builder()
        .hba(hba)
        .setting("password_encryption", "scram-sha-256")
        .start()
        .unwrap();
    cluster.psql("CREATE ROLE app LOGIN PASSWORD 'right'").unwrap();
    let host = cluster.host();
    let error = try_connect(&format!("host={host} user=app dbname=postgres password=wr0ng-s3cret"))
        .await
        .unwrap_err();
    assert!(matches!(error, ConnectError::Authentication { .. }), "{error:?}");
    assert!(error.is_permanent());
    assert!(!chain(&error).contains("wr0ng-s3cret"));
    let error = try_connect(&format!("host={host} user=app dbname=postgres"))
        .await
        .unwrap_err();
    assert!(matches!(error, ConnectError::PasswordMissing { .. }), "{error:?}");
    try_connect(&format!("host={host} user=app dbname=postgres password=right"))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_password_file_is_read_for_each_host() {
    let hba = "local all postgres trust\nlocal all all scram-sha-256\n";
    let cluster = Cluster::builder()
        .hba(hba)
        .setting("password_encryption", "scram-sha-256")
        .start()
        .unwrap();
    cluster.psql("CREATE ROLE app LOGIN PASSWORD 'r:ight'").unwrap();
    let file = std::env::temp_dir().join(format!("latchwork-pass-{:x}", fastrand::u64(..)));
    std::fs::write(
        &file,
        format!("*:*:*:other:wrong\n{}:5432:postgres:app:r\\:ight\n", cluster.host()),
    )
    .unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let found = try_connect(&format!(
        "host={} user=app dbname=postgres passfile={}",
        cluster.host(),
        file.display()
    ))
    .await;
    std::fs::remove_file(&file).unwrap();
    found.unwrap();
}

#[tokio::test]
async fn a_missing_database_and_a_full_server_have_errors_of_their_own() {
    let error = try_connect(&CLUSTER.url_for("postgres", "nowhere")).await.unwrap_err();
    assert!(matches!(error, ConnectError::NoSuchDatabase { .. }), "{error:?}");
    CLUSTER.psql("CREATE ROLE crowded LOGIN CONNECTION LIMIT 0").unwrap();
    let error = try_connect(&CLUSTER.url_for("crowded", "postgres")).await.unwrap_err();
    assert!(matches!(error, ConnectError::TooManyConnections { .. }), "{error:?}");
    assert!(!error.is_permanent());
}

#[tokio::test]
async fn a_server_that_starts_up_is_worth_another_try() {
    let address = fake_server::start(Script::Refuse("57P03")).await;
    let error = try_connect(&format!("postgres://u@{address}/d")).await.unwrap_err();
    assert!(matches!(error, ConnectError::NotReady { .. }), "{error:?}");
    assert!(!error.is_permanent());
}

#[tokio::test]
async fn a_product_without_real_locks_is_refused_by_name() {
    let address = fake_server::start(Script::Product("CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu)")).await;
    let refusal = refused(&format!("postgres://u@{address}/d")).await;
    assert!(
        matches!(&refusal, CheckError::LookAlike { product } if product.contains("CockroachDB")),
        "{refusal:?}"
    );
    assert!(refusal.is_permanent());
    assert!(
        refusal.to_string().contains("use a PostgreSQL server for the locks"),
        "{refusal}"
    );
    // Nothing that waits would help, so whoever asks is told at once.
    let config: Config = format!("postgres://u@{address}/d").parse().unwrap();
    let locks = latchwork_postgres::Postgres::connect_in_background(config, Default::default()).locks();
    let asked = locks.acquire("job").without_limit();
    let error = tokio::time::timeout(Duration::from_secs(20), asked)
        .await
        .expect("it waits")
        .unwrap_err();
    assert!(
        matches!(error, latchwork_core::AcquireError::Refused { .. }),
        "{error:?}"
    );
    assert!(
        error.is_outage() && !error.is_retryable() && !error.is_timeout(),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_silent_server_is_given_up_within_the_limit() {
    let proxy = Proxy::start(CLUSTER.endpoint()).unwrap();
    proxy.freeze();
    let config: Config = proxy.url().parse().unwrap();
    let begun = Instant::now();
    let limited = config.with_connect_timeout(Duration::from_millis(300));
    let error = connect(&limited, &SessionSettings::default(), None).await.unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn hosts_are_tried_in_turn_and_a_silent_one_leaves_time_for_the_next() {
    let proxy = Proxy::start_tcp(CLUSTER.endpoint()).unwrap();
    proxy.freeze();
    let Endpoint::Tcp(silent) = *proxy.endpoint() else {
        panic!("a TCP proxy")
    };
    let live = CLUSTER.port();
    let url = format!("postgres://postgres@127.0.0.1:1,{silent},127.0.0.1:{live}/postgres?connect_timeout=3");
    let mut connected = try_connect(&url).await.unwrap();
    assert_eq!(
        value(&mut connected, "SELECT inet_server_port()").await,
        live.to_string()
    );
}

#[tokio::test]
async fn a_standby_is_refused_and_skipped_when_asked_to() {
    let primary = Cluster::builder().tcp().start().unwrap();
    let standby = primary.standby().unwrap();
    assert_eq!(refused(&standby.url()).await, CheckError::Standby);
    let both = |attrs: &str| {
        let hosts = format!("{},{}", standby.host(), primary.host());
        let ports = format!("{},{}", standby.port(), primary.port());
        format!("host={hosts} port={ports} user=postgres dbname=postgres target_session_attrs={attrs}")
    };
    for attrs in ["read-write", "primary"] {
        let connected = try_connect(&both(attrs)).await.unwrap();
        assert!(format!("{:?}", connected.canceller).contains(&primary.host()));
    }
    for attrs in ["any", "standby", "read-only", "prefer-standby"] {
        assert_eq!(refused(&both(attrs)).await, CheckError::Standby, "{attrs}");
    }
    let error = try_connect(&format!("{}?target_session_attrs=primary", standby.url()))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, ConnectError::WrongKind { wanted: "primary", .. }),
        "{error:?}"
    );
    let connected = try_connect(&format!("{}?target_session_attrs=prefer-standby", primary.url())).await;
    assert_eq!(connected.unwrap().facts.database, "postgres");
    assert_quiet(&primary);
    assert_quiet(&standby);
}

#[tokio::test]
async fn dropped_at_any_await_nothing_stays_held_and_no_session_stays_open() {
    let cluster = Cluster::start().unwrap();
    let config: Config = cluster.url().parse().unwrap();
    let settings = SessionSettings::default();
    let mut polls = 0;
    loop {
        let mut connecting = Box::pin(connect(&config, &settings, None));
        let mut left = polls;
        let done = std::future::poll_fn(|cx| {
            if left == 0 {
                return Poll::Ready(false);
            }
            left -= 1;
            connecting.as_mut().poll(cx).map(|connected| connected.is_ok())
        })
        .await;
        drop(connecting);
        if done {
            break;
        }
        polls += 1;
        assert!(polls < 10_000, "connecting never completes");
    }
    assert!(polls > 5, "{polls}");
    let count = "SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory') + (SELECT count(*) FROM \
         pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())";
    assert!(wait_until(Duration::from_secs(10), || cluster.psql(count).unwrap() == "0"));
}
