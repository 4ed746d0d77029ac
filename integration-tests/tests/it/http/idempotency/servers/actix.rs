use std::{convert::Infallible, sync::atomic::Ordering};

use actix_web::{
    App, HttpResponse, HttpServer, Responder, Route,
    web::{self, Bytes},
};
use latchwork_actix::{IdempotencyMiddleware, OnDisconnect, key::header};

use super::{CAP, PATIENT, Server, Service, insert, spawn};
use crate::http::{
    library::{Library, Tx},
    servers::{Served, listener},
};

type LockedTx<L> = latchwork_actix::LockedTx<Tx<L>>;
type Middleware<L> = IdempotencyMiddleware<<L as Library>::Provider>;

pub(in super::super) enum Actix {}

impl<L: Library> Server for (Actix, L) {
    type Library = L;

    fn serve(service: Service<L>) -> Served {
        let listener = listener();
        let address = listener.local_addr().unwrap();
        let middleware = Middleware::<L>::new(service.provider.clone(), header("x-user").optional()).unwrap();
        let usual = middleware.max_request_body(CAP).max_response_body(CAP);
        let leaves = usual.clone().on_disconnect(OnDisconnect::Cancel);
        let external = leaves.clone().external(service.locks.clone());
        let patient = usual.clone().answer_within(PATIENT);
        let waits = usual.clone().wait(PATIENT);
        let optional = usual.clone().optional();
        let app = move || {
            let under = |path: &str, middleware: &Middleware<L>, handler: Route| {
                web::resource(path).wrap(middleware.clone()).route(handler)
            };
            let payments = web::resource("/payments").wrap(usual.clone());
            App::new()
                .app_data(web::Data::new(service.clone()))
                .service(
                    payments
                        .route(web::post().to(pay::<L>))
                        .route(web::get().to(|| async { "all of them" })),
                )
                .service(under("/payments/{id}/refund", &usual, web::post().to(pay::<L>)))
                .service(under("/slow", &usual, web::post().to(slow::<L>)))
                .service(under("/waits", &waits, web::post().to(slow::<L>)))
                .service(under("/leaves", &leaves, web::post().to(slow::<L>)))
                .service(under("/patient", &patient, web::post().to(pay::<L>)))
                .service(under("/hasty", &leaves, web::post().to(pay::<L>)))
                .service(under("/panics", &usual, web::post().to(panics::<L>)))
                .service(under("/spawned", &usual, web::post().to(spawned::<L>)))
                .service(under("/fails", &usual, web::post().to(fails::<L>)))
                .service(under("/deferred", &usual, web::post().to(deferred::<L>)))
                .service(under("/large", &usual, web::post().to(large::<L>)))
                .service(under("/stream", &usual, web::post().to(stream::<L>)))
                .service(under("/mails", &external, web::post().to(mails::<L>)))
                .service(under("/slow-mails", &external, web::post().to(slow_mails::<L>)))
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
async fn pay<L: Library>(mut tx: LockedTx<L>, body: Bytes) -> HttpResponse {
    let id = insert::<L>(&mut tx).await;
    HttpResponse::Created()
        .insert_header(("location", format!("/payments/{id}")))
        .insert_header(("set-cookie", "session=1"))
        .content_type("application/x-echo")
        .body(body)
}

async fn slow<L: Library>(service: web::Data<Service<L>>, mut tx: LockedTx<L>) -> String {
    let id = insert::<L>(&mut tx).await;
    service.stage.play().await;
    format!("payment {id}")
}

async fn panics<L: Library>(mut tx: LockedTx<L>) -> HttpResponse {
    insert::<L>(&mut tx).await;
    panic!("as the test wants");
}

async fn spawned<L: Library>(service: web::Data<Service<L>>, tx: LockedTx<L>) -> HttpResponse {
    spawn::<L>(service.stage.clone(), tx).await;
    HttpResponse::Ok().finish()
}

async fn fails<L: Library>(mut tx: LockedTx<L>) -> HttpResponse {
    insert::<L>(&mut tx).await;
    HttpResponse::InternalServerError().finish()
}

/// Stores what the server refuses at COMMIT.
async fn deferred<L: Library>(mut tx: LockedTx<L>) -> impl Responder {
    L::run(&mut tx, "INSERT INTO refunds VALUES (-1)").await.unwrap();
    "stored"
}

async fn large<L: Library>(mut tx: LockedTx<L>) -> String {
    insert::<L>(&mut tx).await;
    "x".repeat(CAP + 1)
}

async fn stream<L: Library>(mut tx: LockedTx<L>) -> HttpResponse {
    insert::<L>(&mut tx).await;
    let parts = (0..3).map(|part| Ok::<_, Infallible>(Bytes::from(format!("part {part}\n"))));
    HttpResponse::Ok().streaming(futures_util::stream::iter(parts))
}

async fn mails<L: Library>(service: web::Data<Service<L>>, body: Bytes) -> HttpResponse {
    service.mails.fetch_add(1, Ordering::SeqCst);
    if body == "bounces" {
        HttpResponse::BadGateway().finish()
    } else {
        HttpResponse::Accepted().finish()
    }
}

async fn slow_mails<L: Library>(service: web::Data<Service<L>>) -> HttpResponse {
    service.mails.fetch_add(1, Ordering::SeqCst);
    service.stage.play().await;
    HttpResponse::Accepted().finish()
}
