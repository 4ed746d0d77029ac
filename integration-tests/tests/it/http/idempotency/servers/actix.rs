use std::{convert::Infallible, sync::atomic::Ordering};

use actix_web::{
    App, HttpResponse, HttpServer, Responder, Route,
    web::{self, Bytes},
};
use latchwork_actix::{IdempotencyMiddleware, OnDisconnect, key::header};
use latchwork_postgres::transaction::{DeadpoolTx, PooledTx};

use super::{CAP, PATIENT, Server, Service, insert, spawn};
use crate::http::servers::{Served, listener};

type LockedTx = latchwork_actix::LockedTx<PooledTx>;
type Middleware = IdempotencyMiddleware<DeadpoolTx>;

pub(in super::super) enum Actix {}

impl Server for Actix {
    fn serve(service: Service) -> Served {
        let listener = listener();
        let address = listener.local_addr().unwrap();
        let middleware = Middleware::new(service.pool.clone(), header("x-user").optional()).unwrap();
        let usual = middleware.max_request_body(CAP).max_response_body(CAP);
        let leaves = usual.clone().on_disconnect(OnDisconnect::Cancel);
        let external = leaves.clone().external(service.locks.clone());
        let patient = usual.clone().answer_within(PATIENT);
        let waits = usual.clone().wait(PATIENT);
        let optional = usual.clone().optional();
        let app = move || {
            let under = |path: &str, middleware: &Middleware, handler: Route| {
                web::resource(path).wrap(middleware.clone()).route(handler)
            };
            let payments = web::resource("/payments").wrap(usual.clone());
            App::new()
                .app_data(web::Data::new(service.clone()))
                .service(
                    payments
                        .route(web::post().to(pay))
                        .route(web::get().to(|| async { "all of them" })),
                )
                .service(under("/payments/{id}/refund", &usual, web::post().to(pay)))
                .service(under("/slow", &usual, web::post().to(slow)))
                .service(under("/waits", &waits, web::post().to(slow)))
                .service(under("/leaves", &leaves, web::post().to(slow)))
                .service(under("/patient", &patient, web::post().to(pay)))
                .service(under("/hasty", &leaves, web::post().to(pay)))
                .service(under("/panics", &usual, web::post().to(panics)))
                .service(under("/spawned", &usual, web::post().to(spawned)))
                .service(under("/fails", &usual, web::post().to(fails)))
                .service(under("/deferred", &usual, web::post().to(deferred)))
                .service(under("/large", &usual, web::post().to(large)))
                .service(under("/stream", &usual, web::post().to(stream)))
                .service(under("/mails", &external, web::post().to(mails)))
                .service(under("/slow-mails", &external, web::post().to(slow_mails)))
                .service(under("/optional", &optional, web::post().to(|| async { "no key" })))
                .route("/free", web::get().to(|| async { "free" }))
        };
        let server = HttpServer::new(app).workers(2).h1_allow_half_closed(false);
        let server = server.disable_signals().listen(listener).unwrap().run();
        let handle = server.handle();
        tokio::spawn(server);
        let stop = Box::pin(async move { handle.stop(false).await });
        Served { address, stop }
    }
}

/// Stores a payment, and answers with the body that it was sent.
async fn pay(tx: LockedTx, body: Bytes) -> HttpResponse {
    let id = insert(&tx).await;
    HttpResponse::Created()
        .insert_header(("location", format!("/payments/{id}")))
        .insert_header(("set-cookie", "session=1"))
        .content_type("application/x-echo")
        .body(body)
}

async fn slow(service: web::Data<Service>, tx: LockedTx) -> String {
    let id = insert(&tx).await;
    service.stage.play().await;
    format!("payment {id}")
}

async fn panics(tx: LockedTx) -> HttpResponse {
    insert(&tx).await;
    panic!("as the test wants");
}

async fn spawned(service: web::Data<Service>, tx: LockedTx) -> HttpResponse {
    spawn(service.stage.clone(), tx).await;
    HttpResponse::Ok().finish()
}

async fn fails(tx: LockedTx) -> HttpResponse {
    insert(&tx).await;
    HttpResponse::InternalServerError().finish()
}

/// Stores what the server refuses at COMMIT.
async fn deferred(tx: LockedTx) -> impl Responder {
    tx.execute("INSERT INTO refunds VALUES (-1)", &[]).await.unwrap();
    "stored"
}

async fn large(tx: LockedTx) -> String {
    insert(&tx).await;
    "x".repeat(CAP + 1)
}

async fn stream(tx: LockedTx) -> HttpResponse {
    insert(&tx).await;
    let parts = (0..3).map(|part| Ok::<_, Infallible>(Bytes::from(format!("part {part}\n"))));
    HttpResponse::Ok().streaming(futures_util::stream::iter(parts))
}

async fn mails(service: web::Data<Service>, body: Bytes) -> HttpResponse {
    service.mails.fetch_add(1, Ordering::SeqCst);
    if body == "bounces" {
        HttpResponse::BadGateway().finish()
    } else {
        HttpResponse::Accepted().finish()
    }
}

async fn slow_mails(service: web::Data<Service>) -> HttpResponse {
    service.mails.fetch_add(1, Ordering::SeqCst);
    service.stage.play().await;
    HttpResponse::Accepted().finish()
}
