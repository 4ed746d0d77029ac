use actix_web::{
    App, Error, HttpResponse, HttpServer,
    body::MessageBody,
    dev::{ServiceRequest, ServiceResponse},
    http::StatusCode,
    middleware::{Next, from_fn},
    web::{self, ServiceConfig},
};
use latchwork_actix::{OnDisconnect, TxLockMiddleware, key::param};
use latchwork_postgres::transaction::{DeadpoolTx, PooledTx};

use super::{HASTY, HURRIED, PATIENT, Server, Service, work};
use crate::http::servers::{Served, listener};

type LockedTx = latchwork_actix::LockedTx<PooledTx>;
type Middleware = TxLockMiddleware<DeadpoolTx>;

pub(in super::super) enum Actix {}

impl Server for Actix {
    fn serve(service: Service) -> Served {
        serve(service, false)
    }
}

/// On the framework's own settings: a client that closes its half of the connection is still there.
pub(in super::super) enum ActixByDefault {}

impl Server for ActixByDefault {
    fn serve(service: Service) -> Served {
        serve(service, true)
    }
}

fn serve(service: Service, half_closed: bool) -> Served {
    let listener = listener();
    let address = listener.local_addr().unwrap();
    let app = move || {
        App::new()
            .app_data(web::Data::new(service.clone()))
            .configure(|routes| orders(routes, &service))
            .configure(|routes| plain_routes(routes, &service))
            .configure(|routes| keys(routes, &service))
    };
    let server = HttpServer::new(app).workers(2).h1_allow_half_closed(half_closed);
    let server = server.disable_signals().listen(listener).unwrap().run();
    let handle = server.handle();
    tokio::spawn(server);
    let stop = Box::pin(async move { handle.stop(false).await });
    Served { address, stop }
}

fn order(service: &Service) -> Middleware {
    Middleware::new(service.pool.clone(), ("order", param("id"))).unwrap()
}

fn middleware(service: &Service, key: &'static str) -> Middleware {
    Middleware::new(service.pool.clone(), key).unwrap()
}

/// A route under a middleware.
macro_rules! under {
    ($path:literal, $middleware:expr, $handler:path) => {
        web::resource($path).wrap($middleware).route(web::post().to($handler))
    };
}

fn orders(routes: &mut ServiceConfig, service: &Service) {
    let order = || order(service);
    let hurried = order().answer_within(HURRIED);
    let complete = order().on_disconnect(OnDisconnect::Complete);
    routes
        .service(under!("/orders/{id}/charge", order(), charge))
        .service(under!("/orders/{id}/complete", complete, charge))
        .service(under!("/orders/{id}/hurried", hurried.clone(), charge))
        .service(under!("/orders/{id}/asleep", hurried, asleep_in_the_server))
        .service(under!("/orders/{id}/lost", order(), lost))
        .service(under!("/orders/{id}/spawned", order(), spawned));
}

fn plain_routes(routes: &mut ServiceConfig, service: &Service) {
    let middleware = |key| middleware(service, key);
    let joined = middleware("joined").join_open().wait(PATIENT);
    // The last one that wraps is outside.
    let by_turns = under!("/by-turns", from_fn(works_before), insert).wrap(middleware("by turns"));
    let overlap = under!("/overlap", from_fn(works_meanwhile), insert).wrap(middleware("overlap"));
    routes
        .service(under!("/add", middleware("counter").wait(PATIENT), add))
        .service(under!("/joined/{id}", joined, add).wrap(order(service)))
        .service(under!("/status/{code}", middleware("status"), status))
        .service(under!("/orphan", middleware("orphan"), orphan))
        .service(under!("/swallowed", middleware("swallowed"), swallowed))
        .service(under!("/savepoint", middleware("savepoint"), savepoint))
        .service(under!("/ended/{how}", middleware("ended"), ended))
        .service(under!("/panics", middleware("panics"), panics))
        .service(by_turns)
        .service(overlap);
}

fn keys(routes: &mut ServiceConfig, service: &Service) {
    let key = || Middleware::new(service.pool.clone(), ("random", param("key"))).unwrap();
    let random = key().wait(HASTY);
    let all_random = random.clone().on_disconnect(OnDisconnect::Complete);
    let stays = key().wait(PATIENT).answer_within(PATIENT);
    routes
        .service(under!("/random/{key}", random, two_rows))
        .service(under!("/all-random/{key}", all_random, two_rows))
        .service(under!("/stays/{key}/{id}", stays, stays_for_two_rows));
}

async fn charge(service: web::Data<Service>, tx: LockedTx) -> HttpResponse {
    work::charge(&service.stage, &tx).await;
    done()
}

async fn asleep_in_the_server(tx: LockedTx) -> HttpResponse {
    work::asleep_in_the_server(&tx).await;
    done()
}

async fn lost(service: web::Data<Service>, tx: LockedTx) -> HttpResponse {
    work::lost(&service.stage, &tx).await;
    done()
}

async fn spawned(service: web::Data<Service>, tx: LockedTx) -> HttpResponse {
    work::spawned(service.stage.clone(), tx).await;
    done()
}

async fn add(tx: LockedTx) -> HttpResponse {
    work::add(&tx).await;
    done()
}

async fn status(code: web::Path<u16>, tx: LockedTx) -> HttpResponse {
    work::insert(&tx).await;
    HttpResponse::new(StatusCode::from_u16(*code).unwrap())
}

async fn orphan(tx: LockedTx) -> HttpResponse {
    work::orphan(&tx).await;
    done()
}

async fn swallowed(tx: LockedTx) -> HttpResponse {
    work::swallowed(&tx).await;
    done()
}

async fn savepoint(tx: LockedTx) -> HttpResponse {
    work::savepoint(&tx).await;
    done()
}

async fn ended(how: web::Path<String>, tx: LockedTx) -> HttpResponse {
    work::ended(&how, &tx).await;
    done()
}

async fn panics(tx: LockedTx) -> HttpResponse {
    work::panics(&tx).await;
    done()
}

async fn insert(tx: LockedTx) -> HttpResponse {
    work::insert(&tx).await;
    done()
}

async fn works_before(
    tx: LockedTx,
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    work::insert(&tx).await;
    drop(tx);
    next.call(request).await
}

async fn works_meanwhile(
    tx: LockedTx,
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    work::insert(&tx).await;
    let response = next.call(request).await;
    drop(tx);
    response
}

async fn two_rows(tx: LockedTx) -> HttpResponse {
    work::two_rows(work::random_id(), &tx).await;
    done()
}

async fn stays_for_two_rows(path: web::Path<(u8, i64)>, tx: LockedTx) -> HttpResponse {
    work::two_rows(path.1, &tx).await;
    done()
}

fn done() -> HttpResponse {
    HttpResponse::Ok().finish()
}
