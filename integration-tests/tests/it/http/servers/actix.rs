use std::convert::Infallible;

use actix_web::{App, HttpResponse, HttpServer, web};
use latchwork_actix::{HeldLock, HeldPermit, LockMiddleware, OnDisconnect, SlotMiddleware, key::param};

use super::{HASTY, PATIENT, SLOTS, Served, Server, Service, listener};

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
        };
        let server = HttpServer::new(app).workers(2).h1_allow_half_closed(false);
        let server = server.disable_signals().listen(listener).unwrap().run();
        let handle = server.handle();
        tokio::spawn(server);
        let stop = Box::pin(async move { handle.stop(false).await });
        Served { address, stop }
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

async fn stream(held: HeldPermit) -> HttpResponse {
    let chunks = futures_util::stream::repeat_with(|| Ok::<_, Infallible>("more of it\n".into()));
    HttpResponse::Ok()
        .insert_header(("x-slot", held.slot().to_string()))
        .streaming(chunks)
}
