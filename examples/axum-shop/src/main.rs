//! A small shop on axum. Start as many instances as you like: what each may do at a moment they agree on by one
//! PostgreSQL, which is theirs anyway.
//!
//! `routes.rs` says who may do what and when, `shop.rs` what a service has to make for that, once. The handlers have a
//! file each.

mod ai;
mod args;
mod database;
mod error;
mod failure;
mod orders;
mod payments;
mod routes;
mod search;
mod shop;
mod stats;
mod stop;
mod tables;

use std::{
    env,
    net::{SocketAddr, TcpListener},
    process::ExitCode,
    time::Duration,
};

use latchwork::Config;
use tokio::{sync::oneshot, time::timeout};
use tracing_subscriber::{filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{args::Options, database::Database, failure::Failure, shop::Shop, stop::Stop};

fn main() -> ExitCode {
    let options = match args::parse(env::args_os().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{}", args::HELP);
            return ExitCode::SUCCESS;
        }
        Err(mistake) => {
            eprintln!("axum-shop: {mistake}; see --help");
            return ExitCode::from(2);
        }
    };
    match start(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("axum-shop: {failure}");
            ExitCode::from(failure.exit_status())
        }
    }
}

fn start(options: &Options) -> Result<(), Failure> {
    log();
    // First, for a port that is taken is known sooner than a database is there.
    let listener = listen(options.listen)?;
    let database = Database::find(options.database_url.as_deref())?;
    run(listener, database.config.clone())
}

fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(address)
        .map_err(|error| Failure::because(&format!("cannot listen on {address}; name another --port"), &error))?;
    // As tokio wants it.
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[tokio::main]
async fn run(listener: TcpListener, config: Config) -> Result<(), Failure> {
    let mut stop = Stop::listen()?;
    let shop = tokio::select! {
        shop = Shop::open(config) => shop?,
        () = stop.asked() => return Ok(()),
    };
    let address = listener.local_addr()?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    // The limit of a client without a key needs its address.
    let service = routes::router(&shop)?.into_make_service_with_connect_info::<SocketAddr>();
    let (ends, end) = oneshot::channel::<()>();
    let server = axum::serve(listener, service).with_graceful_shutdown(async { drop(end.await) });
    let server = tokio::spawn(server.into_future());
    println!("listening on http://{address}");

    stop.asked().await;
    drop(ends);
    if timeout(GRACE, server).await.is_err() {
        eprintln!("axum-shop: some requests took too long to end, and are cut off");
    }
    shop.close(CLOSE_WITHIN).await;
    Ok(())
}

/// How long requests may take to end when the program is told to.
const GRACE: Duration = Duration::from_secs(5);
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

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
