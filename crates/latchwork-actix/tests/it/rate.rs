//! So many requests in so much time.

use std::net::SocketAddr;

use actix_cors::Cors;
use actix_web::{
    App, HttpMessage, HttpRequest, HttpServer,
    body::BoxBody,
    dev::ServiceResponse,
    error::ErrorBadRequest,
    middleware::{Next, from_fn},
    test::{TestRequest, call_service, init_service},
    web,
};
use latchwork_actix::{RateHeaders, RateLimitMiddleware, SetupError, key::header};
use latchwork_core::rate::{Quota, Quotas, RateDecision, RateLimits};
use latchwork_harness::http::{Answer, ask, ask_with};

use crate::support::{serve, start};

/// So rare that nothing comes back during a test.
fn rarely(burst: u32) -> Quota {
    Quota::per_day(1).unwrap().with_burst(burst).unwrap()
}

fn limit(quotas: impl Into<Quotas>) -> RateLimitMiddleware {
    RateLimitMiddleware::new(RateLimits::in_memory(), ("all", header("x-api-key")), quotas).unwrap()
}

/// Tells what the middleware has decided.
async fn told(request: HttpRequest) -> String {
    match request.extensions().get::<RateDecision>() {
        Some(decision) => format!("allowed={} remaining={}", decision.is_allowed(), decision.remaining()),
        None => "undecided".to_owned(),
    }
}

fn served(limit: RateLimitMiddleware) -> SocketAddr {
    serve(move |routes| {
        routes.service(web::resource("/").wrap(limit.clone()).route(web::get().to(told)));
    })
}

async fn get(server: SocketAddr, target: &str, who: &str) -> Answer {
    ask_with(server, &format!("GET {target}"), &format!("x-api-key: {who}\r\n")).await
}

fn is_refused(answer: &Answer) {
    assert_eq!(answer.status(), 429, "{answer:?}");
    assert!(
        answer.body().contains("urn:latchwork:problem:rate-limited"),
        "{answer:?}"
    );
    let after: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=86_400).contains(&after), "{after}");
}

#[actix_web::test]
async fn everybody_has_a_burst_of_their_own_and_is_told_what_is_left() {
    let quotas = Quotas::all([rarely(3), rarely(5)]).unwrap();
    let server = served(limit(quotas).name("both").unwrap());
    for left in [2, 1, 0] {
        let answer = get(server, "/", "ann").await;
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.body(), format!("allowed=true remaining={left}"));
        let told = answer.header("ratelimit").unwrap();
        assert!(told.starts_with(&format!("\"both\";r={left};t=")), "{told}");
        let policy = answer.header("ratelimit-policy").unwrap();
        assert_eq!(policy, "\"both\";q=3;w=259200, \"both-2\";q=5;w=432000");
    }
    let refused = get(server, "/", "ann").await;
    is_refused(&refused);
    assert!(refused.header("ratelimit").unwrap().starts_with("\"both\";r=0;t="));
    assert_eq!(get(server, "/", "bob").await.status(), 200);
    let nobody = ask(server, "GET /").await;
    assert_eq!((nobody.status(), nobody.header("ratelimit")), (400, None));
}

#[actix_web::test]
async fn four_workers_and_two_instances_share_one_burst() {
    let five = limit(rarely(5));
    let servers = [(); 2].map(|()| {
        let five = five.clone();
        let app = move || App::new().service(web::resource("/").wrap(five.clone()).route(web::get().to(told)));
        start!(HttpServer::new(app).workers(4))
    });
    let requests = (0..16).map(|at| get(servers[at % 2], "/", "ann"));
    let answers = futures_util::future::join_all(requests).await;
    let (let_in, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status() == 200);
    assert_eq!(let_in.len(), 5);
    refused.into_iter().for_each(is_refused);
}

#[actix_web::test]
async fn costs_and_quotas_are_those_of_the_request() {
    let costly = limit(rarely(10)).cost_by(|request| request.query_string().parse().unwrap_or(1));
    let server = served(costly);
    assert_eq!(get(server, "/?9", "ann").await.body(), "allowed=true remaining=1");
    is_refused(&get(server, "/?2", "ann").await);
    assert_eq!(get(server, "/", "ann").await.body(), "allowed=true remaining=0");
    assert_eq!(get(server, "/?0", "ann").await.status(), 200);
    let never = get(server, "/?11", "ann").await;
    assert_eq!((never.status(), never.header("retry-after")), (429, None));

    let plans =
        limit(rarely(1)).quotas_by(|request| request.headers().contains_key("x-paid").then(|| rarely(4).into()));
    let server = served(plans);
    assert_eq!(get(server, "/", "ann").await.status(), 200);
    is_refused(&get(server, "/", "ann").await);
    for _ in 0..4 {
        assert_eq!(get(server, "/", "ann\r\nx-paid: yes").await.status(), 200);
    }
    is_refused(&get(server, "/", "ann\r\nx-paid: yes").await);
}

#[actix_web::test]
async fn the_older_headers_none_and_a_limit_in_the_shadow() {
    let server = served(limit(rarely(2)).headers(RateHeaders::XRateLimit));
    let older = get(server, "/", "ann").await;
    assert_eq!(older.header("x-ratelimit-limit"), Some("2"));
    assert_eq!(older.header("x-ratelimit-remaining"), Some("1"));
    assert_eq!(older.header("ratelimit"), None);

    let server = served(limit(rarely(1)).headers(RateHeaders::None));
    assert_eq!(get(server, "/", "ann").await.header("ratelimit"), None);
    is_refused(&get(server, "/", "ann").await);

    let server = served(limit(rarely(1)).shadow());
    for told in ["allowed=true remaining=0", "allowed=false remaining=0"] {
        let answer = get(server, "/", "ann").await;
        assert_eq!((answer.status(), answer.body()), (200, told));
        assert_eq!(answer.header("ratelimit"), None);
    }
}

#[actix_web::test]
async fn preflights_pass_and_refusals_are_decorated_by_cors() {
    let once = limit(rarely(1));
    let server = serve(move |routes| {
        let resource = web::resource("/").wrap(once.clone()).wrap(Cors::permissive());
        routes.service(resource.route(web::get().to(told)));
    });
    let headers = "origin: https://a.example\r\nx-api-key: ann\r\n";
    assert_eq!(ask_with(server, "GET /", headers).await.status(), 200);
    let refused = ask_with(server, "GET /", headers).await;
    is_refused(&refused);
    assert!(refused.header("access-control-allow-origin").is_some(), "{refused:?}");

    let preflight = "origin: https://a.example\r\naccess-control-request-method: POST\r\nx-api-key: ann\r\n";
    let options = |limit: RateLimitMiddleware| {
        serve(move |routes| {
            let told = web::route().method(actix_web::http::Method::OPTIONS).to(told);
            routes.service(web::resource("/").wrap(limit.clone()).route(told));
        })
    };
    let (server, all) = (
        options(limit(rarely(1))),
        options(limit(rarely(1)).include_preflights()),
    );
    for _ in 0..2 {
        assert_eq!(ask_with(server, "OPTIONS /", preflight).await.body(), "undecided");
    }
    assert_eq!(ask_with(all, "OPTIONS /", preflight).await.status(), 200);
    is_refused(&ask_with(all, "OPTIONS /", preflight).await);
}

#[actix_web::test]
async fn several_limits_are_all_told_and_refusals_can_be_replaced() {
    let many = limit(rarely(9)).name("many").unwrap();
    let few = limit(rarely(1))
        .name("few")
        .unwrap()
        .on_reject(|rejection, mut response| {
            assert_eq!(rejection.kind(), latchwork_actix::RejectionKind::RateLimited);
            *response.status_mut() = http::StatusCode::IM_A_TEAPOT;
            response
        });
    let app = App::new().wrap(few).wrap(many).route("/", web::get().to(told));
    let app = init_service(app).await;
    for status in [200, 418] {
        let request = TestRequest::get().insert_header(("x-api-key", "ann")).to_request();
        let response = call_service(&app, request).await;
        assert_eq!(response.status(), status);
        let told = response
            .headers()
            .get_all("ratelimit")
            .map(|value| value.to_str().unwrap());
        let names: Vec<_> = told.map(|value| value.split(';').next().unwrap()).collect();
        assert_eq!(names, ["\"few\"", "\"many\""]);
    }
}

#[actix_web::test]
async fn an_error_of_a_middleware_inside_passes_and_was_charged() {
    let limit = limit(rarely(1));
    let server = serve(move |routes| {
        let fails = from_fn(async |_, _: Next<BoxBody>| Err::<ServiceResponse, _>(ErrorBadRequest("no")));
        let resource = web::resource("/").wrap(fails).wrap(limit.clone());
        routes.service(resource.route(web::get().to(told)));
    });
    assert_eq!(get(server, "/", "ann").await.status(), 400);
    is_refused(&get(server, "/", "ann").await);
}

#[test]
fn a_name_that_no_header_can_hold_is_an_error_at_the_start() {
    let error = limit(rarely(1)).name("a b").unwrap_err();
    assert!(matches!(error, SetupError::LimitName { .. }), "{error:?}");
}
