use actix_web::{
    App, Error, HttpResponse, HttpServer,
    body::MessageBody,
    dev::{ServiceRequest, ServiceResponse},
    http::StatusCode,
    middleware::{Next, from_fn},
    web::{self, ServiceConfig},
};
use latchwork_actix::{OnDisconnect, TxLockMiddleware, key::param};

use super::{HASTY, HURRIED, PATIENT, Server, Service, work};
use crate::http::{
    library::{Library, Tx},
    servers::{Served, listener},
};

type LockedTx<L> = latchwork_actix::LockedTx<Tx<L>>;
type Middleware<L> = TxLockMiddleware<<L as Library>::Provider>;

pub(in super::super) enum Actix {}

impl<L: Library> Server for (Actix, L) {
    type Library = L;

    fn serve(service: Service<L>) -> Served {
        serve(service, false)
    }
}

/// On the framework's own settings: a client that closes its half of the connection is still there.
pub(in super::super) enum ActixByDefault {}

impl<L: Library> Server for (ActixByDefault, L) {
    type Library = L;

    fn serve(service: Service<L>) -> Served {
        serve(service, true)
    }
}

fn serve<L: Library>(service: Service<L>, half_closed: bool) -> Served {
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

fn order<L: Library>(service: &Service<L>) -> Middleware<L> {
    Middleware::<L>::new(service.provider.clone(), ("order", param("id"))).unwrap()
}

fn middleware<L: Library>(service: &Service<L>, key: &'static str) -> Middleware<L> {
    Middleware::<L>::new(service.provider.clone(), key).unwrap()
}

/// A route under a middleware.
macro_rules! under {
    ($path:literal, $middleware:expr, $handler:path) => {
        web::resource($path).wrap($middleware).route(web::post().to($handler))
    };
}

fn orders<L: Library>(routes: &mut ServiceConfig, service: &Service<L>) {
    let order = || order(service);
    let hurried = order().answer_within(HURRIED);
    let complete = order().on_disconnect(OnDisconnect::Complete);
    routes
        .service(under!("/orders/{id}/charge", order(), charge::<L>))
        .service(under!("/orders/{id}/complete", complete, charge::<L>))
        .service(under!("/orders/{id}/hurried", hurried.clone(), charge::<L>))
        .service(under!("/orders/{id}/asleep", hurried, asleep_in_the_server::<L>))
        .service(under!("/orders/{id}/lost", order(), lost::<L>))
        .service(under!("/orders/{id}/spawned", order(), spawned::<L>));
}

fn plain_routes<L: Library>(routes: &mut ServiceConfig, service: &Service<L>) {
    let middleware = |key| middleware(service, key);
    let joined = middleware("joined").join_open().wait(PATIENT);
    // The last one that wraps is outside.
    let by_turns = under!("/by-turns", from_fn(works_before::<L>), insert::<L>).wrap(middleware("by turns"));
    let overlap = under!("/overlap", from_fn(works_meanwhile::<L>), insert::<L>).wrap(middleware("overlap"));
    routes
        .service(under!("/add", middleware("counter").wait(PATIENT), add::<L>))
        .service(under!("/joined/{id}", joined, add::<L>).wrap(order(service)))
        .service(under!("/status/{code}", middleware("status"), status::<L>))
        .service(under!("/orphan", middleware("orphan"), orphan::<L>))
        .service(under!("/swallowed", middleware("swallowed"), swallowed::<L>))
        .service(under!("/savepoint", middleware("savepoint"), savepoint::<L>))
        .service(under!("/ended/{how}", middleware("ended"), ended::<L>))
        .service(under!("/panics", middleware("panics"), panics::<L>))
        .service(by_turns)
        .service(overlap);
}

fn keys<L: Library>(routes: &mut ServiceConfig, service: &Service<L>) {
    let key = || Middleware::<L>::new(service.provider.clone(), ("random", param("key"))).unwrap();
    let random = key().wait(HASTY);
    let all_random = random.clone().on_disconnect(OnDisconnect::Complete);
    let stays = key().wait(PATIENT).answer_within(PATIENT);
    routes
        .service(under!("/random/{key}", random, two_rows::<L>))
        .service(under!("/all-random/{key}", all_random, two_rows::<L>))
        .service(under!("/stays/{key}/{id}", stays, stays_for_two_rows::<L>));
}

async fn charge<L: Library>(service: web::Data<Service<L>>, mut tx: LockedTx<L>) -> HttpResponse {
    work::charge::<L>(&service.stage, &mut tx).await;
    done()
}

async fn asleep_in_the_server<L: Library>(mut tx: LockedTx<L>) -> HttpResponse {
    work::asleep_in_the_server::<L>(&mut tx).await;
    done()
}

async fn lost<L: Library>(service: web::Data<Service<L>>, mut tx: LockedTx<L>) -> HttpResponse {
    work::lost::<L>(&service.stage, &mut tx).await;
    done()
}

async fn spawned<L: Library>(service: web::Data<Service<L>>, tx: LockedTx<L>) -> HttpResponse {
    work::spawned::<L>(service.stage.clone(), tx).await;
    done()
}

async fn add<L: Library>(mut tx: LockedTx<L>) -> HttpResponse {
    work::add::<L>(&mut tx).await;
    done()
}

async fn status<L: Library>(code: web::Path<u16>, mut tx: LockedTx<L>) -> HttpResponse {
    work::insert::<L>(&mut tx).await;
    HttpResponse::new(StatusCode::from_u16(*code).unwrap())
}

async fn orphan<L: Library>(mut tx: LockedTx<L>) -> HttpResponse {
    work::orphan::<L>(&mut tx).await;
    done()
}

async fn swallowed<L: Library>(mut tx: LockedTx<L>) -> HttpResponse {
    work::swallowed::<L>(&mut tx).await;
    done()
}

async fn savepoint<L: Library>(mut tx: LockedTx<L>) -> HttpResponse {
    work::savepoint::<L>(&mut tx).await;
    done()
}

async fn ended<L: Library>(how: web::Path<String>, mut tx: LockedTx<L>) -> HttpResponse {
    work::ended::<L>(&how, &mut tx).await;
    done()
}

async fn panics<L: Library>(mut tx: LockedTx<L>) -> HttpResponse {
    work::panics::<L>(&mut tx).await;
    done()
}

async fn insert<L: Library>(mut tx: LockedTx<L>) -> HttpResponse {
    work::insert::<L>(&mut tx).await;
    done()
}

async fn works_before<L: Library>(
    mut tx: LockedTx<L>,
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    work::insert::<L>(&mut tx).await;
    drop(tx);
    next.call(request).await
}

async fn works_meanwhile<L: Library>(
    mut tx: LockedTx<L>,
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    work::insert::<L>(&mut tx).await;
    let response = next.call(request).await;
    drop(tx);
    response
}

async fn two_rows<L: Library>(mut tx: LockedTx<L>) -> HttpResponse {
    work::two_rows::<L>(work::random_id(), &mut tx).await;
    done()
}

async fn stays_for_two_rows<L: Library>(path: web::Path<(u8, i64)>, mut tx: LockedTx<L>) -> HttpResponse {
    work::two_rows::<L>(path.1, &mut tx).await;
    done()
}

fn done() -> HttpResponse {
    HttpResponse::Ok().finish()
}
