//! Status, headers and body survive every nesting.

use actix_cors::Cors;
use actix_web::{
    App, Error, HttpResponse, HttpServer,
    dev::{ServiceRequest, ServiceResponse},
    http::Method,
    middleware::{Compat, DefaultHeaders, Logger, Next, NormalizePath, from_fn},
    test::{TestRequest, call_service, init_service, read_body},
    web,
};
use latchwork_actix::{
    ExtractError, HeldLock, LockMiddleware, SlotMiddleware,
    key::{by, param, route, segment},
};
use latchwork_core::{Guard, Key, Locks};
use latchwork_harness::http::{Client, ask, ask_with};

use crate::support::{serve, start};

const KEY: Key = Key::bigint(1);

async fn busy() -> (LockMiddleware, Guard) {
    let locks = Locks::in_memory();
    let guard = locks.try_acquire(KEY).await.unwrap().unwrap();
    (LockMiddleware::new(locks, KEY).unwrap(), guard)
}

/// Answers one request by each of these apps, whose types differ.
macro_rules! answers {
    ($request:expr; $($app:expr),+ $(,)?) => {
        vec![$({
            let app = init_service($app).await;
            let response = call_service(&app, $request.to_request()).await;
            let header = |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
            let (status, kind, retry) = (response.status().as_u16(), header("content-type"), header("retry-after"));
            let body = read_body(response).await;
            (status, kind, retry, String::from_utf8(body.to_vec()).unwrap())
        }),+]
    };
}

async fn passes<B: 'static>(request: ServiceRequest, next: Next<B>) -> Result<ServiceResponse<B>, Error> {
    next.call(request).await
}

#[actix_web::test]
async fn a_refusal_survives_every_nesting() {
    let (lock, _guard) = busy().await;
    let slot = || SlotMiddleware::global(Locks::in_memory().slots("all", 1).unwrap());
    let ends = || web::post().to(|| async { "never" });
    let resource = || web::resource("/a").route(ends());
    let answers = answers!(
        TestRequest::post().uri("/a");
        App::new().wrap(lock.clone()).service(resource()),
        App::new().service(web::scope("").wrap(lock.clone()).service(resource())),
        App::new().service(resource().wrap(lock.clone())),
        App::new().service(web::resource("/a").route(ends().wrap(lock.clone()))),
        App::new().wrap(slot()).service(resource().wrap(lock.clone())),
        App::new().wrap(lock.clone()).wrap(slot()).wrap(slot()).service(resource()),
        App::new().wrap(lock.clone()).wrap(from_fn(passes)).wrap(Cors::permissive()).wrap(Logger::default()).service(resource()),
        App::new().service(web::scope("").wrap(slot()).service(resource().wrap(from_fn(passes)).wrap(lock.clone()))),
        App::new().wrap(Compat::new(lock.clone())).wrap(NormalizePath::trim()).service(resource()),
        App::new().default_service(ends().wrap(lock.clone())),
    );
    for (number, (status, kind, retry, body)) in answers.into_iter().enumerate() {
        assert_eq!(status, 409, "{number}");
        assert_eq!(kind.unwrap(), "application/problem+json", "{number}");
        assert_eq!(retry.unwrap(), "1", "{number}");
        assert!(
            body.starts_with('{') && body.contains("urn:latchwork:problem:lock-busy"),
            "{number}: {body}"
        );
    }
}

#[actix_web::test]
async fn a_response_passes_unchanged() {
    let locks = Locks::in_memory();
    let lock = LockMiddleware::new(locks.clone(), KEY).unwrap();
    let slot = SlotMiddleware::global(locks.slots("all", 1).unwrap());
    let address = serve(move |routes| {
        let echo = |body: String| async move { HttpResponse::Created().insert_header(("x-a", "1")).body(body) };
        routes.service(
            web::scope("")
                .wrap(slot.clone())
                .service(web::resource("/a").wrap(lock.clone()).route(web::post().to(echo))),
        );
    });
    let answer = ask_with(address, "POST /a?q", "content-length: 0\r\n").await;
    assert_eq!((answer.status(), answer.header("content-length")), (201, Some("0")));
    let mut client = Client::connect(address).await;
    client
        .send(b"POST /a HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-length: 8\r\n\r\nthe body")
        .await;
    let answer = client.answer().await;
    assert_eq!(
        (answer.status(), answer.header("x-a"), answer.body()),
        (201, Some("1"), "the body")
    );
    assert_eq!(answer.header("content-length"), Some("8"));
}

#[actix_web::test]
async fn cors_outside_decorates_refusals_and_preflights_pass() {
    let (lock, _guard) = busy().await;
    let cors = || {
        Cors::default()
            .allowed_origin("https://shop.example")
            .allowed_methods([Method::POST])
    };
    let (inside, outside) = (lock.clone(), lock);
    let inside = start!(
        HttpServer::new(move || {
            let app = App::new()
                .wrap(inside.clone())
                .wrap(cors())
                .wrap(DefaultHeaders::new().add(("x-a", "1")));
            app.route("/", web::post().to(|| async { "never" }))
        })
        .workers(1)
    );
    let origin = "origin: https://shop.example\r\n";
    let refused = ask_with(inside, "POST /", origin).await;
    assert_eq!(refused.status(), 409);
    assert_eq!(
        refused.header("access-control-allow-origin"),
        Some("https://shop.example")
    );
    assert_eq!(refused.header("x-a"), Some("1"));

    // Where the lock is outside of CORS, preflights still reach it.
    let outside = start!(
        HttpServer::new(move || {
            App::new()
                .wrap(cors())
                .wrap(outside.clone())
                .route("/", web::post().to(|| async { "never" }))
        })
        .workers(1)
    );
    let preflight = format!("{origin}access-control-request-method: POST\r\n");
    for address in [inside, outside] {
        let passed = ask_with(address, "OPTIONS /", &preflight).await;
        assert_eq!(
            (passed.status(), passed.header("access-control-allow-methods")),
            (200, Some("POST"))
        );
    }
    assert_eq!(
        ask_with(outside, "OPTIONS /", origin).await.status(),
        409,
        "no preflight"
    );
}

#[actix_web::test]
async fn keys_from_route_and_path_do_not_depend_on_nesting() {
    async fn key(lock: HeldLock) -> String {
        lock.key().to_string()
    }
    let locks = Locks::in_memory();
    let names = locks.namespace().clone();
    let by_route = || LockMiddleware::new(locks.clone(), (route(), "x")).unwrap();
    let by_param = || LockMiddleware::new(locks.clone(), ("id", param("id"))).unwrap();
    let by_segment = || LockMiddleware::new(locks.clone(), ("segment", segment(2))).unwrap();
    for (middleware, expected) in [
        (by_route(), names.key_of(&["/api/orders/{id}", "x"]).unwrap()),
        (by_param(), names.key_of(&["id", "4 2"]).unwrap()),
        (by_segment(), names.key_of(&["segment", "4 2"]).unwrap()),
    ] {
        let resource = || web::resource("/orders/{id}").route(web::get().to(key));
        let answers = answers!(
            TestRequest::get().uri("/api/orders/%34%202");
            App::new().wrap(middleware.clone()).service(web::scope("/api").service(resource())),
            App::new().service(web::scope("/api").wrap(middleware.clone()).service(resource())),
            App::new().service(web::scope("/api").service(resource().wrap(middleware.clone()))),
            App::new().service(
                web::scope("/api").service(
                    web::resource("/orders/{id}").route(web::get().to(key).wrap(middleware.clone()))
                )
            ),
        );
        for (status, .., body) in answers {
            assert_eq!((status, body), (200, expected.to_string()));
        }
    }
}

#[actix_web::test]
async fn parameters_are_found_in_every_form_that_actix_has_for_them() {
    async fn key(lock: HeldLock) -> String {
        lock.key().to_string()
    }
    let locks = Locks::in_memory();
    let names = locks.namespace().clone();
    let lock = LockMiddleware::new(locks, ("id", param("id"))).unwrap();
    for (pattern, path, expected) in [
        ("/files/{id:.*}", "/files/a/b%2Fc%25", "a/b/c%"),
        ("/files/{id}*", "/files/a/b", "a/b"),
        (r"/days/{id:\d{4}}/x", "/days/2026/x", "2026"),
        ("/{shop}/{id}.json", "/x/7.json", "7"),
    ] {
        let resource = || web::resource(pattern).route(web::get().to(key));
        let answers = answers!(
            TestRequest::get().uri(path);
            App::new().wrap(lock.clone()).service(resource()),
            App::new().service(resource().wrap(lock.clone())),
        );
        for (status, .., body) in answers {
            let expected = names.key_of(&["id", expected]).unwrap().to_string();
            assert_eq!((status, body), (200, expected), "{pattern}");
        }
    }
    // These only the router can read, which has done so when the resource's own middleware runs.
    for (pattern, path) in [("/{shop}-{id}", "/x-7"), ("/a/{x}", "/b/7")] {
        let resource = web::resource([pattern, "/b/{id}"]).route(web::get().to(key));
        let answers = answers!(TestRequest::get().uri(path); App::new().service(resource.wrap(lock.clone())));
        let expected = names.key_of(&["id", "7"]).unwrap().to_string();
        assert_eq!((answers[0].0, &answers[0].3), (200, &expected), "{pattern}");
    }
    for path in ["/orders/%FF", "/orders/"] {
        let resource = web::resource("/orders/{id:.*}").route(web::get().to(key));
        let answers = answers!(TestRequest::get().uri(path); App::new().service(resource.wrap(lock.clone())));
        assert_eq!(answers[0].0, 400, "{path}");
    }
}

#[actix_web::test]
async fn an_unknown_path_stays_404_when_the_resource_is_locked() {
    let lock = LockMiddleware::new(Locks::in_memory(), ("order", param("id"))).unwrap();
    let resource = || web::resource("/orders/{id}").route(web::post().to(|| async { "done" }));
    let answers = answers!(
        TestRequest::post().uri("/nowhere");
        App::new().service(resource().wrap(lock.clone())),
        App::new().wrap(lock.clone()).service(resource()),
    );
    assert_eq!(answers.iter().map(|answer| answer.0).collect::<Vec<_>>(), [404, 400]);
}

#[actix_web::test]
async fn the_callback_replaces_refusals() {
    let (lock, _guard) = busy().await;
    let lock = lock.on_reject(|rejection, mut response| {
        assert_eq!(rejection.status(), response.status());
        for value in ["1", "2"] {
            response.headers_mut().append("x-a", value.parse().unwrap());
        }
        response.map(|_| "try later".into())
    });
    let address = serve(move |routes| {
        routes.service(
            web::resource("/")
                .wrap(lock.clone())
                .route(web::post().to(|| async { "never" })),
        );
    });
    let answer = ask(address, "POST /").await;
    assert_eq!((answer.status(), answer.body()), (409, "try later"));
    assert_eq!(answer.0.matches("x-a: ").count(), 2, "{answer:?}");
}

#[actix_web::test]
async fn a_grpc_call_is_refused_with_a_grpc_status() {
    let (lock, _guard) = busy().await;
    let address = serve(move |routes| {
        routes.service(
            web::resource("/")
                .wrap(lock.clone())
                .route(web::post().to(|| async { "never" })),
        );
    });
    let answer = ask_with(address, "POST /", "content-type: application/grpc\r\n").await;
    assert_eq!((answer.status(), answer.body()), (200, ""));
    assert_eq!(answer.header("grpc-status"), Some("10"));
    assert_eq!(answer.header("content-type"), Some("application/grpc"));
}

#[actix_web::test]
async fn requests_without_a_usable_key_are_400() {
    let lock = LockMiddleware::new(
        Locks::in_memory(),
        by(|_| Err::<String, _>(ExtractError::bad_request("no"))),
    );
    let answers = answers!(
        TestRequest::post().uri("/");
        App::new().wrap(lock.unwrap()).route("/", web::post().to(|| async { "never" })),
    );
    assert_eq!(answers[0].0, 400);
    assert!(answers[0].3.contains("urn:latchwork:problem:bad-key"), "{answers:?}");
}
