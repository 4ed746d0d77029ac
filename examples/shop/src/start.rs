//! From the command line to a listener and a database.

use std::{
    env,
    net::{SocketAddr, TcpListener},
    process::ExitCode,
};

use latchwork::Config;
use tracing_subscriber::{filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{
    args::{self, Options},
    database::Database,
    failure::Failure,
};

/// Does what the command line asks for. `serve` is given a listener, which does not block, and the database to use.
pub fn main(program: &str, serve: impl FnOnce(TcpListener, Config) -> Result<(), Failure>) -> ExitCode {
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
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{program}: {failure}");
            ExitCode::from(failure.exit_status())
        }
    }
}

fn start(options: &Options, serve: impl FnOnce(TcpListener, Config) -> Result<(), Failure>) -> Result<(), Failure> {
    log();
    // First, for a port that is taken is known sooner than a database is there.
    let listener = listen(options.listen)?;
    let database = Database::find(options.database_url.as_deref())?;
    serve(listener, database.config.clone())
}

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
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    tracing_subscriber::registry()
        .with(lines)
        .with(targets.unwrap_or_else(|| Targets::new().with_default(tracing::Level::WARN)))
        .init();
}
