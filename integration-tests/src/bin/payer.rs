//! A process of its own that takes payments on one framework, for tests that kill it midway: it says where it listens,
//! and when a handler has stored its payment. No handler ever answers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail, helpers included")]

use std::net::TcpListener;

use deadpool_postgres::{Manager, Pool};
use latchwork_postgres::transaction::{DeadpoolTx, PooledTx};
use tokio_postgres::NoTls;

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let (framework, url) = (arguments.next().unwrap(), arguments.next().unwrap());
    let pool = Pool::builder(Manager::new(url.parse().unwrap(), NoTls))
        .build()
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    println!("listens {}", listener.local_addr().unwrap());
    match &*framework {
        "axum" => on_axum::serve(listener, pool).await,
        "actix" => on_actix::serve(listener, pool).await,
        other => panic!("no framework {other:?}"),
    }
}

async fn pay(tx: &PooledTx) {
    tx.execute("INSERT INTO payments DEFAULT VALUES", &[]).await.unwrap();
    println!("paid");
    std::future::pending::<()>().await;
}

mod on_axum {
    use axum::{Router, routing::post};
    use latchwork_tower::{IdempotencyLayer, LockedTx, key::header};

    use super::{DeadpoolTx, Pool, PooledTx, TcpListener};

    pub(super) async fn serve(listener: TcpListener, pool: Pool) {
        let layer = IdempotencyLayer::<DeadpoolTx>::new(pool, header("x-user").optional()).unwrap();
        let pay = async |tx: LockedTx<PooledTx>| super::pay(&tx).await;
        let app = Router::new().route("/slow", post(pay).layer(layer));
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        axum::serve(listener, app).await.unwrap();
    }
}

mod on_actix {
    use actix_web::{App, HttpResponse, HttpServer, web};
    use latchwork_actix::{IdempotencyMiddleware, LockedTx, key::header};

    use super::{DeadpoolTx, Pool, PooledTx, TcpListener};

    pub(super) async fn serve(listener: TcpListener, pool: Pool) {
        let layer = IdempotencyMiddleware::<DeadpoolTx>::new(pool, header("x-user").optional()).unwrap();
        let app = move || {
            let slow = web::resource("/slow").wrap(layer.clone());
            App::new().service(slow.route(web::post().to(pay)))
        };
        let server = HttpServer::new(app).workers(1).disable_signals();
        server.listen(listener).unwrap().run().await.unwrap();
    }

    async fn pay(tx: LockedTx<PooledTx>) -> HttpResponse {
        super::pay(&tx).await;
        HttpResponse::Ok().finish()
    }
}
