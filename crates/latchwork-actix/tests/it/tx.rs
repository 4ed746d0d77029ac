//! A transaction for each request, with a database that is made up.

mod ends;
mod leaving;
mod lending;

use actix_web::{
    App, HttpRequest, HttpResponse,
    http::StatusCode,
    test::{TestRequest, call_service, init_service, read_body},
    web,
};
use latchwork_actix::{RequestHead, TxLockMiddleware, key::ExtractKey};
use latchwork_core::Key;

use crate::database::Database;

type Middleware = TxLockMiddleware<Database>;

const KEY: Key = Key::bigint(1);

fn middleware(database: &Database) -> Middleware {
    keyed(database, KEY)
}

fn keyed(database: &Database, key: impl ExtractKey<RequestHead>) -> Middleware {
    Middleware::new(database.clone(), key).unwrap()
}

/// The status and the body of an app's answer to a POST.
macro_rules! post {
    ($app:expr) => {{
        let app = actix_web::test::init_service($app).await;
        let request = actix_web::test::TestRequest::post().uri("/").to_request();
        let response = actix_web::test::call_service(&app, request).await;
        let status = response.status().as_u16();
        let body = actix_web::test::read_body(response).await;
        (status, String::from_utf8(body.to_vec()).unwrap())
    }};
}
use post;

/// The status and the body of the answer to a request for a path, `x-answer` being what the handler answers with.
async fn answered(middleware: &Middleware, answer: &'static str, request: TestRequest) -> (u16, String) {
    let app = App::new().wrap(middleware.clone()).default_service(web::to(handle));
    let app = init_service(app).await;
    let response = call_service(&app, request.insert_header(("x-answer", answer)).to_request()).await;
    let status = response.status().as_u16();
    let body = read_body(response).await;
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// Answers with the status that the request asks for, and the `grpc-status` after it.
async fn handle(request: HttpRequest) -> HttpResponse {
    let answer = request.headers().get("x-answer").unwrap().to_str().unwrap();
    let (status, grpc) = match answer.split_once(' ') {
        Some((status, grpc)) => (status, Some(grpc)),
        None => (answer, None),
    };
    let mut response = HttpResponse::build(StatusCode::from_bytes(status.as_bytes()).unwrap());
    if let Some(grpc) = grpc {
        response.insert_header(("grpc-status", grpc));
    }
    response.body("the handler's")
}

fn problem(name: &str) -> String {
    format!("urn:latchwork:problem:{name}")
}
