use actix_web::{App, HttpMessage, HttpRequest, HttpServer, web};
use latchwork_actix::{
    RateHeaders, RateLimitMiddleware,
    key::{client, header},
};
use latchwork_core::rate::{Quotas, RateDecision};

use super::{Server, Service, both, cost, rarely};
use crate::http::servers::{HERE, Served, listener};

pub(in super::super) enum Actix {}

impl Server for Actix {
    fn serve(service: &Service) -> Served {
        let listener = listener();
        let address = listener.local_addr().unwrap();
        let limits = limits(service);
        let app = move || {
            let mut app = App::new();
            for (path, limit) in &limits {
                let resource = web::resource(*path).wrap(limit.clone());
                app = app.service(resource.route(web::get().to(told)).route(web::post().to(told)));
            }
            app
        };
        let server = HttpServer::new(app).workers(2);
        let server = server.disable_signals().listen(listener).unwrap().run();
        let handle = server.handle();
        tokio::spawn(server);
        let stop = Box::pin(async move { handle.stop(false).await });
        Served { address, stop }
    }
}

fn limits(service: &Service) -> [(&'static str, RateLimitMiddleware); 9] {
    let limit = |name: &str, quotas: Quotas| {
        let key = (name.to_owned(), header("x-api-key"));
        let limit = RateLimitMiddleware::new(service.open.clone(), key, quotas).unwrap();
        limit.name(name).unwrap()
    };
    let costly = limit("costly", rarely(10).into()).cost_by(|request| cost(request.uri().query()));
    let plans = limit("plans", rarely(1).into())
        .quotas_by(|request| request.headers().contains_key("x-paid").then(|| rarely(4).into()));
    let by_client = RateLimitMiddleware::new(service.open.clone(), ("by client", client()), rarely(2)).unwrap();
    let proxied = ("proxied", client().behind(HERE));
    let by_proxied = RateLimitMiddleware::new(service.open.clone(), proxied, rarely(2)).unwrap();
    [
        ("/both", limit("both", both())),
        ("/one", limit("one", rarely(1).into())),
        ("/costly", costly),
        ("/plans", plans),
        (
            "/older",
            limit("older", rarely(2).into()).headers(RateHeaders::XRateLimit),
        ),
        ("/shadow", limit("shadow", rarely(1).into()).shadow()),
        ("/by-client", by_client),
        ("/by-proxied-client", by_proxied),
        (
            "/shut",
            RateLimitMiddleware::new(service.closed.clone(), "shut", rarely(100)).unwrap(),
        ),
    ]
}

async fn told(request: HttpRequest) -> String {
    super::told(request.extensions().get::<RateDecision>().unwrap())
}
