//! From a request to a key.

use std::net::IpAddr;

use http::{HeaderValue, Request};
use latchwork_core::{Key, Namespace, slots::SlotsError};
use latchwork_http::{
    ExtractError, ExtractKey, MatchedRoute, Peer, SetupError, SlotPolicy,
    key::{ForwardedHeader, KeyParts, by, client, header, param, route, segment},
};

type Head = Request<()>;

fn get(path: &str) -> Head {
    Request::get(path).body(()).unwrap()
}

fn with_header(mut request: Head, name: &'static str, value: &[u8]) -> Head {
    let value = HeaderValue::from_bytes(value).unwrap();
    request.headers_mut().append(name, value);
    request
}

fn on_route(template: &str, path: &str) -> Head {
    let mut request = get(path);
    request.extensions_mut().insert(MatchedRoute(template.into()));
    request
}

fn from_peer(peer: &str) -> Head {
    let mut request = get("/");
    request.extensions_mut().insert(Peer(peer.parse::<IpAddr>().unwrap()));
    request
}

/// The parts that are extracted; `None` if the request passes without a key.
fn parts(key: impl ExtractKey<Head>, request: &Head) -> Result<Option<Vec<String>>, ExtractError> {
    key.validate().unwrap();
    let mut parts = KeyParts::default();
    let found = key.extract(request, &mut parts)?;
    Ok(found.map(|()| parts.iter().map(str::to_owned).collect()))
}

fn part(key: impl ExtractKey<Head>, request: &Head) -> String {
    let parts = parts(key, request).unwrap().expect("a key");
    assert_eq!(parts.len(), 1);
    parts[0].clone()
}

/// The status that a request without a usable key is answered with.
fn refused(key: impl ExtractKey<Head>, request: &Head) -> u16 {
    let error = parts(key, request).unwrap_err();
    latchwork_http::Rejection::from(error).status().as_u16()
}

#[test]
fn two_spellings_of_one_path_are_one_key() {
    for path in [
        "/orders/42",
        "/orders/%34%32",
        "/orders/42?force=1",
        "/orders/42/charge",
    ] {
        assert_eq!(part(segment(1), &get(path)), "42", "{path}");
    }
    assert_eq!(part(param("id"), &on_route("/orders/{id}", "/orders/%34%32")), "42");
    assert_eq!(part(segment(0), &get("/a%2Fb/c")), "a/b");
}

#[test]
fn a_path_without_the_segment_is_refused_unless_that_is_optional() {
    for path in ["/", "/orders", "/orders/", "/orders//charge"] {
        assert_eq!(refused(segment(1), &get(path)), 400, "{path}");
        assert_eq!(parts(segment(1).optional(), &get(path)), Ok(None), "{path}");
    }
    assert_eq!(refused(segment(0), &get("/%ff")), 400);
    assert_eq!(refused(segment(0).optional(), &get("/%ff")), 400);
}

#[test]
fn routes_give_their_template_and_their_parameters() {
    let request = on_route("/orders/{id}/items/{item}", "/orders/4/items/2");
    assert_eq!(part(route(), &request), "/orders/{id}/items/{item}");
    assert_eq!(
        parts((param("item"), param("id")), &request),
        Ok(Some(vec!["2".into(), "4".into()]))
    );
    // The service's mistake, not the client's.
    assert_eq!(refused(param("order"), &request), 500);
    assert_eq!(parts(param("order").optional(), &request), Ok(None));

    let request = get("/orders/4");
    assert_eq!(refused(route(), &request), 400);
    assert_eq!(refused(param("id"), &request), 400);
    assert_eq!(parts(route().optional(), &request), Ok(None));
    assert_eq!(parts(param("id").optional(), &request), Ok(None));
}

#[test]
fn headers_are_taken_once_and_whole() {
    let key = || header("X-Api-Key");
    assert_eq!(part(key(), &with_header(get("/"), "x-api-key", b"k 1")), "k 1");
    assert_eq!(refused(key(), &get("/")), 400);
    assert_eq!(parts(key().optional(), &get("/")), Ok(None));
    for bad in [&b""[..], b"\xff"] {
        assert_eq!(refused(key().optional(), &with_header(get("/"), "x-api-key", bad)), 400);
    }
    let twice = with_header(with_header(get("/"), "x-api-key", b"a"), "x-api-key", b"a");
    assert_eq!(refused(key().optional(), &twice), 400);
}

#[test]
fn what_is_told_to_a_client_never_repeats_what_it_sent() {
    let request = with_header(get("/"), "x-api-key", b"s3cret\xff");
    let error = parts(header("x-api-key"), &request).unwrap_err();
    assert!(!error.to_string().contains("s3cret"), "{error}");
}

#[test]
fn parts_of_a_tuple_keep_their_borders() {
    let namespace = Namespace::unnamed();
    let key = |request: &Head| {
        let mut parts = KeyParts::default();
        (segment(0), segment(1)).extract(request, &mut parts).unwrap();
        parts.key(&namespace).unwrap()
    };
    assert_ne!(key(&get("/a/bc")), key(&get("/ab/c")));
    assert_ne!(key(&get("/a%2Fb/c")), key(&get("/a/b%2Fc")));
    assert_eq!(key(&get("/a/bc")), namespace.key_of(&["a", "bc"]).unwrap());
}

#[test]
fn one_part_that_skips_lets_the_request_pass() {
    assert_eq!(
        parts(("order", header("x-a").optional(), segment(0)), &get("/1")),
        Ok(None)
    );
    assert_eq!(
        refused(("order", segment(7), header("x-a").optional()), &get("/1")),
        400
    );
}

#[test]
fn closures_return_texts_keys_lists_options_and_errors() {
    let request = get("/a/b");
    assert_eq!(part(by(|head: &Head| head.uri().path().to_owned()), &request), "/a/b");
    assert_eq!(part(by(|_: &Head| Some("x")), &request), "x");
    assert_eq!(parts(by(|_: &Head| None::<String>), &request), Ok(None));
    assert_eq!(parts(by(|_: &Head| vec![Some("x"), None]), &request), Ok(None));
    assert_eq!(parts(by(|_: &Head| ["x", "y"]), &request), parts(("x", "y"), &request));
    assert_eq!(parts(by(|_: &Head| ("x", "y")), &request), parts(("x", "y"), &request));
    assert_eq!(
        refused(
            by(|_: &Head| Err::<String, _>(ExtractError::bad_request("no"))),
            &request
        ),
        400
    );
    assert_eq!(
        refused(by(|_: &Head| Err::<String, _>(ExtractError::setup("no"))), &request),
        500
    );

    let mut whole = KeyParts::default();
    by(|_: &Head| Key::pair(1, 2)).extract(&request, &mut whole).unwrap();
    assert_eq!(whole.key(&Namespace::new("shop").unwrap()), Ok(Key::pair(1, 2)));
}

#[test]
fn forged_headers_do_not_change_the_key_of_a_peer() {
    for forged in ["1.1.1.1", "2.2.2.2, 3.3.3.3", "10.0.0.1", "127.0.0.1", "nonsense"] {
        let request = with_header(from_peer("203.0.113.9"), "x-forwarded-for", forged.as_bytes());
        let request = with_header(request, "forwarded", format!("for={forged}").as_bytes());
        assert_eq!(part(client(), &request), "203.0.113.9");
        // Nor where proxies are trusted, as long as the peer is none of them.
        assert_eq!(part(client().behind(["10.0.0.0/8"]), &request), "203.0.113.9");
    }
}

#[test]
fn behind_trusted_proxies_the_rightmost_other_hop_is_the_client() {
    let key = || client().behind(["10.0.0.0/8", "fd00::/8", "192.0.2.7"]);
    for (peer, hops, expected) in [
        ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "198.51.100.2", "198.51.100.2"),
        ("10.0.0.1", "1.1.1.1, 198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "1.1.1.1, 198.51.100.1, 10.9.9.9, 192.0.2.7", "198.51.100.1"),
        ("fd00::1", "198.51.100.1:4711", "198.51.100.1"),
        ("::ffff:10.0.0.1", "::ffff:198.51.100.1", "198.51.100.1"),
        // Nothing but proxies: the first of them.
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        // A hop that is no address: the proxy that passed it on.
        ("10.0.0.1", "1.1.1.1, unknown", "10.0.0.1"),
        ("10.0.0.1", "1.1.1.1, unknown, 10.0.0.2", "10.0.0.2"),
        ("10.0.0.1", "", "10.0.0.1"),
    ] {
        let request = with_header(from_peer(peer), "x-forwarded-for", hops.as_bytes());
        assert_eq!(part(key(), &request), expected, "{peer} {hops}");
    }
    assert_eq!(part(key(), &from_peer("10.0.0.1")), "10.0.0.1");
}

#[test]
fn hops_over_several_header_lines_are_one_list() {
    let request = with_header(from_peer("10.0.0.1"), "x-forwarded-for", b"1.1.1.1");
    let request = with_header(request, "x-forwarded-for", b"198.51.100.1");
    assert_eq!(part(client().behind(["10.0.0.1"]), &request), "198.51.100.1");
}

#[test]
fn the_standard_header_is_read_where_it_was_chosen() {
    let request = with_header(
        from_peer("10.0.0.1"),
        "forwarded",
        b"for=\"evil, for=198.51.100.1;proto=https",
    );
    let request = with_header(request, "x-forwarded-for", b"1.1.1.1");
    let key = client().behind(["10.0.0.1"]).forwarded_by(ForwardedHeader::Forwarded);
    assert_eq!(part(key, &request), "198.51.100.1");
}

#[test]
fn ipv6_counts_by_its_network_and_mapped_addresses_as_ipv4() {
    assert_eq!(part(client(), &from_peer("2001:db8:1:2:3:4:5:6")), "2001:db8:1:2::/64");
    assert_eq!(part(client(), &from_peer("2001:db8:1:2:ffff::1")), "2001:db8:1:2::/64");
    assert_ne!(part(client(), &from_peer("2001:db8:1:3::1")), "2001:db8:1:2::/64");
    assert_eq!(
        part(client().ipv6_prefix(48), &from_peer("2001:db8:1:3::1")),
        "2001:db8:1::/48"
    );
    assert_eq!(part(client(), &from_peer("::ffff:203.0.113.9")), "203.0.113.9");
    // A range of mapped addresses is one of IPv4.
    let request = with_header(from_peer("10.1.1.1"), "x-forwarded-for", b"198.51.100.1");
    assert_eq!(part(client().behind(["::ffff:10.0.0.0/104"]), &request), "198.51.100.1");
}

#[test]
fn a_server_that_does_not_tell_the_peer_is_a_mistake_of_the_service() {
    assert_eq!(refused(client(), &get("/")), 500);
    let forged = with_header(get("/"), "x-forwarded-for", b"1.1.1.1");
    assert_eq!(refused(client().behind(["10.0.0.0/8"]), &forged), 500);
}

#[test]
fn what_can_never_work_is_refused_when_it_is_made() {
    fn error(key: impl ExtractKey<Head>) -> SetupError {
        key.validate().unwrap_err()
    }
    let name = |name: &str| name.to_owned();
    assert_eq!(error(""), SetupError::EmptyText);
    assert_eq!(error(("order", String::new())), SetupError::EmptyText);
    assert!(matches!(error("a\0b"), SetupError::Text(_)));
    for bad in ["", "x api", "x:", "ö"] {
        assert_eq!(error(header(bad)), SetupError::HeaderName { name: name(bad) });
    }
    for bad in ["", "{id}", "*rest", ":id", "a/b"] {
        assert_eq!(error(param(bad)), SetupError::ParamName { name: name(bad) });
    }
    for bad in ["", "10.0.0.0/33", "10.0.0", "example.org", "10.0.0.0/8,fd00::/8"] {
        assert_eq!(error(client().behind([bad])), SetupError::Cidr { text: name(bad) });
    }
    for bad in ["0.0.0.0/0", "::/0", "10.1.2.3/0", "::ffff:0:0/96"] {
        assert_eq!(
            error(client().behind([bad])),
            SetupError::TrustsEverybody { text: name(bad) }
        );
    }
    assert_eq!(error(client().behind([] as [&str; 0])), SetupError::NoProxies);
    assert_eq!(error(client().ipv6_prefix(0)), SetupError::Ipv6Prefix { prefix: 0 });
    assert_eq!(
        error((segment(0), client().ipv6_prefix(129))),
        SetupError::Ipv6Prefix { prefix: 129 }
    );

    let locks = latchwork_core::Locks::in_memory();
    let slots = SlotPolicy::per(locks.clone(), "a", 0)
        .map(|_: SlotPolicy<Head>| ())
        .unwrap_err();
    assert_eq!(slots, SetupError::Slots(SlotsError::NoSlots));
    let slots = SlotPolicy::per(locks, "a", u32::MAX)
        .map(|_: SlotPolicy<Head>| ())
        .unwrap_err();
    assert_eq!(slots, SetupError::Slots(SlotsError::TooManySlots { limit: u32::MAX }));
}
