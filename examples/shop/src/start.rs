//! From the command line to a listener and a database.

use std::{
    env,
    future::Future,
    io,
    net::{SocketAddr, TcpListener},
    process::ExitCode,
    time::Duration,
};

use latchwork::Config;
use tokio::{runtime::Runtime, task::JoinError, time::timeout};
use tracing_subscriber::{filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{
    args::{self, Options},
    database::Database,
    failure::Failure,
    instance::Shop,
    stop::{End, Stop},
};

/// Does what the command line asks for.
///
/// `serve` makes a server, which begins when it is polled, on a listener that does not block. The server ends in order
/// when its [`End`] comes, and is left alone when that takes too long.
pub fn main<F>(program: &str, serve: impl FnOnce(TcpListener, &Shop, End) -> Result<F, Failure>) -> ExitCode
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let options = match args::parse(env::args_os().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{}", args::help(program));
            return ExitCode::SUCCESS;
        }
        Err(mistake) => {
            eprintln!("{program}: {mistake}; see --help");
            return ExitCode::from(2);
        }
    };
    match start(&options, serve) {
        Ok(Ended::InOrder) => ExitCode::SUCCESS,
        Ok(Ended::TooLate) => {
            eprintln!("{program}: some requests took too long to end, and are cut off");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{program}: {failure}");
            ExitCode::from(failure.exit_status())
        }
    }
}

/// How the server has come to its end.
enum Ended {
    InOrder,
    TooLate,
}

fn start<F>(
    options: &Options,
    serve: impl FnOnce(TcpListener, &Shop, End) -> Result<F, Failure>,
) -> Result<Ended, Failure>
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    log();
    // First, for a port that is taken is known sooner than a database is there.
    let listener = listen(options.listen)?;
    let database = Database::find(options.database_url.as_deref())?;
    Runtime::new()?.block_on(run(listener, database.config.clone(), serve))
}

async fn run<F>(
    listener: TcpListener,
    config: Config,
    serve: impl FnOnce(TcpListener, &Shop, End) -> Result<F, Failure>,
) -> Result<Ended, Failure>
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let mut stop = Stop::listen()?;
    let shop = tokio::select! {
        shop = Shop::open(config) => shop?,
        () = stop.asked() => return Ok(Ended::InOrder),
    };
    let address = listener.local_addr()?;
    let (ends, end) = End::new();
    let mut server = tokio::spawn(serve(listener, &shop, end)?);
    println!("listening on http://{address}");

    tokio::select! {
        () = stop.asked() => {}
        // Nobody has told it to.
        ended = &mut server => return Err(gone(ended)),
    }
    drop(ends);
    let ended = timeout(GRACE, server).await;
    shop.close(CLOSE_WITHIN).await;
    match ended {
        Ok(ended) => ended?.map(|()| Ended::InOrder).map_err(Failure::from),
        Err(_) => Ok(Ended::TooLate),
    }
}

fn gone(ended: Result<io::Result<()>, JoinError>) -> Failure {
    match ended {
        Ok(Ok(())) => Failure::new("the server has ended"),
        Ok(Err(error)) => Failure::because("the server has ended", &error),
        Err(error) => Failure::because("the server has ended", &error),
    }
}

/// How long requests may take to end when the program is told to.
const GRACE: Duration = Duration::from_secs(5);
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(address)
        .map_err(|error| Failure::because(&format!("cannot listen on {address}; name another --port"), &error))?;
    // As tokio wants it.
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Shows warnings on standard error, or what RUST_LOG asks for.
fn log() {
    let wanted = env::var("RUST_LOG").ok();
    let targets: Option<Targets> = wanted.and_then(|wanted| wanted.parse().ok());
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    tracing_subscriber::registry()
        .with(lines)
        .with(targets.unwrap_or_else(|| Targets::new().with_default(tracing::Level::WARN)))
        .init();
}
