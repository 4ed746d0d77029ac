use std::convert::Infallible;

use actix_web::{
    App, HttpResponse, HttpServer,
    web::{self, ServiceConfig},
};
use latchwork_actix::{
    HeldLock, HeldPermit, LockMiddleware, OnDisconnect, SlotMiddleware,
    key::{client, header, param},
};
use latchwork_core::Locks;

use super::{HASTY, HERE, PATIENT, SLOTS, Served, Server, Service, listener};

pub(in super::super) enum Actix {}

impl Server for Actix {
    fn serve(service: Service) -> Served {
        let listener = listener();
        let address = listener.local_addr().unwrap();
        let locks = &service.locks;
        let order = LockMiddleware::new(locks.clone(), ("order", param("id"))).unwrap();
        let patient = LockMiddleware::new(locks.clone(), "patient").unwrap().wait(PATIENT);
        let complete = LockMiddleware::new(locks.clone(), "patient")
            .unwrap()
            .wait(HASTY)
            .on_disconnect(OnDisconnect::Complete);
        let slots = SlotMiddleware::global(locks.slots("streams", SLOTS).unwrap());
        let panic_lock = LockMiddleware::new(locks.clone(), "panics").unwrap();
        let panic_slots = SlotMiddleware::global(locks.slots("panics", SLOTS).unwrap());
        let early = SlotMiddleware::global(locks.slots("early", 1).unwrap()).until_response();
        let keys = keys(locks);
        let app = move || {
            let charge = web::resource("/orders/{id}/charge").wrap(order.clone());
            App::new()
                .app_data(web::Data::new(service.clone()))
                .service(charge.route(web::post().to(self::charge)))
                .service(
                    web::resource("/patient")
                        .wrap(patient.clone())
                        .route(web::post().to(alone)),
                )
                .service(
                    web::resource("/complete")
                        .wrap(complete.clone())
                        .route(web::post().to(alone)),
                )
                .service(
                    web::resource("/stream")
                        .wrap(slots.clone())
                        .route(web::get().to(stream)),
                )
                .service(
                    web::resource("/panics")
                        .wrap(panic_slots.clone())
                        .wrap(panic_lock.clone())
                        .route(web::get().to(panics)),
                )
                .service(web::resource("/early").wrap(early.clone()).route(web::get().to(stream)))
                .configure(&keys)
        };
        let server = HttpServer::new(app).workers(2).h1_allow_half_closed(false);
        let server = server.disable_signals().listen(listener).unwrap().run();
        let handle = server.handle();
        tokio::spawn(server);
        let stop = Box::pin(async move { handle.stop(false).await });
        Served { address, stop }
    }
}

fn keys(locks: &Locks) -> impl Fn(&mut ServiceConfig) + Clone + use<> {
    let by_header = LockMiddleware::new(locks.clone(), ("by header", header("x-key"))).unwrap();
    let pair = (header("x-a"), header("x-b"));
    let by_pair = LockMiddleware::new(locks.clone(), pair).unwrap();
    let by_client = SlotMiddleware::per(locks.clone(), ("client", client()), 1).unwrap();
    let proxied = ("proxied", client().behind(HERE));
    let by_proxied = SlotMiddleware::per(locks.clone(), proxied, 1).unwrap();
    let crowd = SlotMiddleware::global(locks.slots("crowd", SLOTS).unwrap());
    move |routes| {
        let post = |path, lock: &LockMiddleware| web::resource(path).wrap(lock.clone()).route(web::post().to(charge));
        let get = |path, slot: &SlotMiddleware| web::resource(path).wrap(slot.clone()).route(web::get().to(charge));
        routes
            .service(post("/by-header", &by_header))
            .service(post("/by-pair", &by_pair))
            .service(get("/by-client", &by_client))
            .service(get("/by-proxied-client", &by_proxied))
            .service(get("/crowd", &crowd));
    }
}

async fn charge(service: web::Data<Service>) -> HttpResponse {
    service.stage.play().await;
    HttpResponse::Ok().finish()
}

async fn alone(lock: HeldLock, service: web::Data<Service>) -> HttpResponse {
    if service.is_alone().await && lock.is_held() {
        HttpResponse::Ok().finish()
    } else {
        HttpResponse::InternalServerError().finish()
    }
}

async fn panics() -> HttpResponse {
    panic!("as the test wants");
}

async fn stream(held: HeldPermit) -> HttpResponse {
    let chunks = futures_util::stream::repeat_with(|| Ok::<_, Infallible>("more of it\n".into()));
    HttpResponse::Ok()
        .insert_header(("x-slot", held.slot().to_string()))
        .streaming(chunks)
}
