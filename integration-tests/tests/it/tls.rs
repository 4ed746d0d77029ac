//! TLS against a real server: each `sslmode`, certificates of many kinds, client certificates, channel binding.

mod der;

use std::error::Error as _;
use std::path::{Path, PathBuf};

use latchwork_harness::Cluster;
use latchwork_postgres::config::Config;
use latchwork_postgres::connect::{ConnectError, Connected, SessionSettings, connect};
use latchwork_postgres::tls::TlsError;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    date_time_ymd,
};
use tokio_postgres::SimpleQueryMessage;

use self::der::{pem, sec1, version_one};

type Authority = CertifiedIssuer<'static, KeyPair>;

/// A folder for certificate files, removed at the end of the test.
struct Files(PathBuf);

impl Files {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("latchwork-tls-{:016x}", fastrand::u64(..)));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn authority(name: &str) -> Authority {
    let mut params = params(name, &[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn params(common_name: &str, hosts: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::new(hosts.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

fn issue(authority: &Authority, params: &CertificateParams) -> (Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, authority).unwrap(), key)
}

fn serve(certificate: &str, key: &KeyPair) -> Cluster {
    Cluster::builder()
        .tls(certificate, &key.serialize_pem())
        .start()
        .unwrap()
}

/// Connects by the name `localhost`, whatever address that is.
async fn attempt(cluster: &Cluster, settings: &str) -> Result<Connected, ConnectError> {
    let port = cluster.port();
    let text = format!("host=localhost hostaddr=127.0.0.1 port={port} user=postgres dbname=postgres {settings}");
    connect(&text.parse::<Config>().unwrap(), &SessionSettings::default(), None).await
}

async fn encrypted(cluster: &Cluster, settings: &str) -> bool {
    let connected = attempt(cluster, settings)
        .await
        .unwrap_or_else(|error| panic!("{settings}: {error:?}"));
    answer(connected, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").await == "t"
}

async fn answer(mut connected: Connected, sql: &str) -> String {
    let answered = connected.wire.drive(connected.client.simple_query(sql)).await.unwrap();
    let row = answered.into_iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
        _ => None,
    });
    row.unwrap()
}

async fn tls_error(cluster: &Cluster, settings: &str) -> TlsError {
    match attempt(cluster, settings).await {
        Err(ConnectError::Tls { source, .. }) => source,
        other => panic!("{settings}: expected a TLS error, not {other:?}"),
    }
}

#[tokio::test]
async fn each_sslmode_asks_as_much_of_the_certificate_as_libpq_does() {
    let files = Files::new();
    let (ours, others) = (authority("ours"), authority("others"));
    let (certificate, key) = issue(&ours, &params("server", &["localhost"]));
    let cluster = serve(&certificate.pem(), &key);
    let root = files.write("root.pem", &ours.pem());
    let wrong = files.write("wrong.pem", &others.pem());
    let both = files.write("both.pem", &format!("{}{}", others.pem(), ours.pem()));

    assert!(!encrypted(&cluster, "sslmode=disable").await);
    assert!(!encrypted(&cluster, "sslmode=allow").await);
    for settings in ["", "sslmode=prefer", "sslmode=require", "sslmode=require sslsni=0"] {
        assert!(encrypted(&cluster, settings).await, "{settings}");
    }
    for mode in ["require", "verify-ca", "verify-full"] {
        for root in [&root, &both] {
            assert!(
                encrypted(&cluster, &format!("sslmode={mode} sslrootcert={root}")).await,
                "{mode}"
            );
        }
        let error = tls_error(&cluster, &format!("sslmode={mode} sslrootcert={wrong}")).await;
        assert!(matches!(error, TlsError::Untrusted { .. }), "{mode}: {error:?}");
        assert!(error.is_permanent());
        assert!(error.to_string().contains("sslrootcert"), "{error}");
    }
    let system = tls_error(&cluster, "sslmode=verify-full").await;
    assert!(
        matches!(system, TlsError::Untrusted { .. } | TlsError::NoSystemRoots),
        "{system:?}"
    );
}

#[tokio::test]
async fn only_verify_full_looks_at_the_host_name() {
    let files = Files::new();
    let ours = authority("ours");
    let root = files.write("root.pem", &ours.pem());
    let (certificate, key) = issue(&ours, &params("localhost", &["db.example.org"]));
    let cluster = serve(&certificate.pem(), &key);
    assert!(encrypted(&cluster, &format!("sslmode=verify-ca sslrootcert={root}")).await);
    let error = tls_error(&cluster, &format!("sslmode=verify-full sslrootcert={root}")).await;
    assert!(
        matches!(&error, TlsError::WrongHost { host, .. } if host == "localhost"),
        "{error:?}"
    );
    assert!(error.to_string().contains("verify-ca"), "{error}");
    let right = format!("sslmode=verify-full sslrootcert={root} host=db.example.org");
    assert!(encrypted(&cluster, &right).await);
}

#[tokio::test]
async fn an_ip_address_and_a_common_name_without_alternatives_are_host_names_too() {
    let files = Files::new();
    let ours = authority("ours");
    let root = files.write("root.pem", &ours.pem());
    let (certificate, key) = issue(&ours, &params("whatever", &["127.0.0.1"]));
    let by_address = serve(&certificate.pem(), &key);
    assert!(
        encrypted(
            &by_address,
            &format!("sslmode=verify-full sslrootcert={root} host=127.0.0.1")
        )
        .await
    );
    let error = tls_error(&by_address, &format!("sslmode=verify-full sslrootcert={root}")).await;
    assert!(matches!(error, TlsError::WrongHost { .. }), "{error:?}");
    let (certificate, key) = issue(&ours, &params("localhost", &[]));
    let by_common_name = serve(&certificate.pem(), &key);
    assert!(encrypted(&by_common_name, &format!("sslmode=verify-full sslrootcert={root}")).await);
}

#[tokio::test]
async fn a_self_signed_certificate_that_is_its_own_root_is_accepted() {
    let files = Files::new();
    for (is_ca, hosts) in [
        (IsCa::Ca(BasicConstraints::Unconstrained), &["localhost"][..]),
        (IsCa::NoCa, &["localhost"]),
        (IsCa::Ca(BasicConstraints::Unconstrained), &[]),
    ] {
        let key = KeyPair::generate().unwrap();
        let mut params = params("localhost", hosts);
        params.is_ca = is_ca;
        let certificate = params.self_signed(&key).unwrap();
        let cluster = serve(&certificate.pem(), &key);
        let root = files.write("own.pem", &certificate.pem());
        for mode in ["require", "verify-ca", "verify-full"] {
            assert!(
                encrypted(&cluster, &format!("sslmode={mode} sslrootcert={root}")).await,
                "{mode}"
            );
        }
        // The same names and another key: nobody may pass for it.
        let other_key = KeyPair::generate().unwrap();
        let forged = serve(&params.self_signed(&other_key).unwrap().pem(), &other_key);
        let error = tls_error(&forged, &format!("sslmode=verify-ca sslrootcert={root}")).await;
        assert!(
            matches!(error, TlsError::Untrusted { .. } | TlsError::Handshake { .. }),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn an_expired_certificate_is_refused_even_as_its_own_root() {
    let files = Files::new();
    let ours = authority("ours");
    let mut past = params("localhost", &["localhost"]);
    (past.not_before, past.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
    let key = KeyPair::generate().unwrap();
    let own = past.self_signed(&key).unwrap();
    let signed = past.signed_by(&key, &ours).unwrap();
    for (certificate, root) in [(own.pem(), own.pem()), (signed.pem(), ours.pem())] {
        let cluster = serve(&certificate, &key);
        let root = files.write("root.pem", &root);
        let error = tls_error(&cluster, &format!("sslmode=verify-ca sslrootcert={root}")).await;
        assert!(matches!(error, TlsError::Expired { .. }), "{error:?}");
        assert!(encrypted(&cluster, "sslmode=require").await);
    }
}

#[tokio::test]
async fn certificates_of_version_one_are_verified_when_a_root_has_issued_them_itself() {
    let files = Files::new();
    let (ours, others) = (authority("ours"), authority("ours"));
    let (certificate, key) = issue(&ours, &params("localhost", &[]));
    let old = version_one(certificate.der(), &ours);
    let cluster = serve(&old, &key);
    assert!(encrypted(&cluster, "sslmode=require").await);
    let root = files.write("root.pem", &ours.pem());
    let own = files.write("own.pem", &old);
    for root in [&root, &own] {
        assert!(encrypted(&cluster, &format!("sslmode=verify-full sslrootcert={root}")).await);
    }
    // The same name of the authority, another key.
    let forged = files.write("forged.pem", &others.pem());
    let error = tls_error(&cluster, &format!("sslmode=verify-ca sslrootcert={forged}")).await;
    assert!(matches!(error, TlsError::Untrusted { .. }), "{error:?}");
    let elsewhere = format!("sslmode=verify-full sslrootcert={root} host=db.example.org");
    let error = tls_error(&cluster, &elsewhere).await;
    assert!(matches!(error, TlsError::WrongHost { .. }), "{error:?}");
}

#[tokio::test]
async fn client_certificates_are_sent_in_every_form_of_key() {
    let files = Files::new();
    let ours = authority("ours");
    let (certificate, key) = issue(&ours, &params("server", &["localhost"]));
    let hba = "local all all trust\nhostssl all app all cert\nhostssl all postgres all trust\n";
    let builder = Cluster::builder()
        .tls(&certificate.pem(), &key.serialize_pem())
        .client_ca(&ours.pem());
    let cluster = builder.hba(hba).start().unwrap();
    cluster.psql("CREATE ROLE app LOGIN").unwrap();
    let (certificate, key) = issue(&ours, &params("app", &[]));
    let cert = files.write("client.pem", &certificate.pem());
    let pkcs8 = files.write("pkcs8.pem", &key.serialize_pem());
    let sec1 = files.write("sec1.pem", &pem("EC PRIVATE KEY", sec1(key.serialized_der())));
    for key in [&pkcs8, &sec1] {
        let settings = format!("sslmode=require user=app sslcert={cert} sslkey={key}");
        let connected = attempt(&cluster, &settings).await.unwrap();
        assert_eq!(answer(connected, "SELECT current_user").await, "app");
    }

    let old = files.write("old.pem", &version_one(certificate.der(), &ours));
    let connected = attempt(
        &cluster,
        &format!("sslmode=require user=app sslcert={old} sslkey={pkcs8}"),
    )
    .await
    .unwrap();
    assert_eq!(answer(connected, "SELECT current_user").await, "app");

    let error = attempt(&cluster, "sslmode=require user=app").await.unwrap_err();
    assert!(matches!(error, ConnectError::Authentication { .. }), "{error:?}");
    let strange = files.write("strange.pem", &KeyPair::generate().unwrap().serialize_pem());
    let error = tls_error(
        &cluster,
        &format!("sslmode=require user=app sslcert={cert} sslkey={strange}"),
    )
    .await;
    assert!(matches!(error, TlsError::ClientCertificate { .. }), "{error:?}");
    let missing = tls_error(
        &cluster,
        &format!("sslmode=require sslcert={cert} sslkey=/no/such/key.pem"),
    )
    .await;
    assert!(
        matches!(&missing, TlsError::ReadFile { key: "sslkey", path, .. } if path == Path::new("/no/such/key.pem"))
    );
    assert!(missing.source().is_some());
    let locked = files.write("locked.pem", &pem("ENCRYPTED PRIVATE KEY", vec![0; 64]));
    let error = tls_error(&cluster, &format!("sslmode=require sslcert={cert} sslkey={locked}")).await;
    assert!(error.to_string().contains("not encrypted"), "{error}");
    let empty = files.write("empty.pem", "");
    let error = tls_error(&cluster, &format!("sslmode=verify-ca sslrootcert={empty}")).await;
    assert!(
        matches!(error, TlsError::BadFile { key: "sslrootcert", .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn channel_binding_holds_over_tls_and_is_refused_without() {
    let ours = authority("ours");
    let (certificate, key) = issue(&ours, &params("server", &["localhost"]));
    let hba = "local all all trust\nhost all all all scram-sha-256\n";
    let cluster = Cluster::builder()
        .tls(&certificate.pem(), &key.serialize_pem())
        .hba(hba)
        .setting("password_encryption", "scram-sha-256")
        .start()
        .unwrap();
    cluster.psql("CREATE ROLE app LOGIN PASSWORD 'pw'").unwrap();
    for binding in ["require", "prefer", "disable"] {
        let settings = format!("sslmode=require user=app password=pw channel_binding={binding}");
        assert!(encrypted(&cluster, &settings).await, "{binding}");
    }
    let plain = attempt(&cluster, "sslmode=allow user=app password=pw channel_binding=require")
        .await
        .unwrap_err();
    assert!(matches!(plain, ConnectError::Authentication { .. }), "{plain:?}");
    let wrong = attempt(&cluster, "sslmode=require user=app password=no channel_binding=require")
        .await
        .unwrap_err();
    assert!(matches!(wrong, ConnectError::Authentication { .. }), "{wrong:?}");
}

#[tokio::test]
async fn prefer_and_allow_try_the_other_way_when_the_rules_of_the_server_want_it() {
    let ours = authority("ours");
    let (certificate, key) = issue(&ours, &params("server", &["localhost"]));
    let start = |rule: &str| {
        let hba = format!("local all all trust\n{rule} all all all trust\n");
        Cluster::builder()
            .tls(&certificate.pem(), &key.serialize_pem())
            .hba(&hba)
            .start()
            .unwrap()
    };
    let plain_only = start("hostnossl");
    assert!(!encrypted(&plain_only, "sslmode=prefer").await);
    assert!(!encrypted(&plain_only, "sslmode=allow").await);
    let error = attempt(&plain_only, "sslmode=require").await.unwrap_err();
    assert!(matches!(error, ConnectError::Authentication { .. }), "{error:?}");
    let tls_only = start("hostssl");
    assert!(encrypted(&tls_only, "sslmode=prefer").await);
    assert!(encrypted(&tls_only, "sslmode=allow").await);
    let error = attempt(&tls_only, "sslmode=disable").await.unwrap_err();
    assert!(matches!(error, ConnectError::Authentication { .. }), "{error:?}");
}

#[tokio::test]
async fn a_server_without_tls_is_refused_when_tls_is_required_except_on_its_socket() {
    let cluster = Cluster::builder().tcp().start().unwrap();
    for mode in ["prefer", "allow", "disable"] {
        assert!(!encrypted(&cluster, &format!("sslmode={mode}")).await, "{mode}");
    }
    for mode in ["require", "verify-full"] {
        let error = tls_error(&cluster, &format!("sslmode={mode}")).await;
        assert!(
            matches!(error, TlsError::NotOffered | TlsError::NoSystemRoots),
            "{mode}: {error:?}"
        );
    }
    for mode in ["require", "verify-full"] {
        let config: Config = format!("{}?sslmode={mode}", cluster.url()).parse().unwrap();
        let connected = connect(&config, &SessionSettings::default(), None).await.unwrap();
        assert_eq!(answer(connected, "SELECT 1").await, "1");
    }
}

#[tokio::test]
async fn a_cancel_request_goes_over_tls_as_well() {
    let ours = authority("ours");
    let (certificate, key) = issue(&ours, &params("server", &["localhost"]));
    let cluster = serve(&certificate.pem(), &key);
    let mut connected = attempt(&cluster, "sslmode=require").await.unwrap();
    assert!(!connected.facts.pooled);
    let canceller = connected.canceller.clone();
    let sleeping = connected.client.simple_query("SELECT pg_sleep(60)");
    let (slept, cancelled) = tokio::join!(connected.wire.drive(sleeping), async move {
        let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        while cluster.psql(asleep).unwrap() != "1" {
            tokio::task::yield_now().await;
        }
        canceller.cancel().await
    });
    cancelled.unwrap();
    assert_eq!(
        slept.unwrap_err().code(),
        Some(&tokio_postgres::error::SqlState::QUERY_CANCELED)
    );
}

#[tokio::test]
async fn tls_without_the_usual_preface_is_spoken_with_servers_that_know_it() {
    let ours = authority("ours");
    let (certificate, key) = issue(&ours, &params("server", &["localhost"]));
    let cluster = serve(&certificate.pem(), &key);
    let direct = "sslmode=require sslnegotiation=direct";
    if cluster.installation().major() >= 17 {
        assert!(encrypted(&cluster, direct).await);
        return;
    }
    let error = attempt(&cluster, direct).await.unwrap_err();
    assert!(
        matches!(error, ConnectError::Tls { .. } | ConnectError::Unreachable { .. }),
        "{error:?}"
    );
}
