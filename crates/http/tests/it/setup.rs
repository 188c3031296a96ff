//! Layers that can't be built say why.

use http::Method;
use onlyonce_core::{Idempotency, MemoryStore, Settings};
use onlyonce_http::{FingerprintOf, IdempotencyLayer, KeyFrom, LayerBuilder, Options, ScopeFrom};
use std::time::Duration;

fn refusal(change: impl FnOnce(LayerBuilder) -> LayerBuilder) -> String {
    let builder = IdempotencyLayer::builder(Idempotency::new(MemoryStore::new()), ScopeFrom::nobody());
    change(builder).build().expect_err("the layer was built").to_string()
}

#[test]
fn patterns_methods_and_limits_that_make_no_sense_are_refused_with_the_reason() {
    let with = |options: Options| refusal(|layer| layer.options(options));
    assert!(refusal(|layer| layer.route("payments", Options::default())).contains("a method and a path"));
    assert!(refusal(|layer| layer.route("POST payments", Options::default())).contains("\"POST payments\""));
    assert!(refusal(|layer| layer.route("GET /x", Options::default())).contains("GET changes nothing"));
    assert!(refusal(|layer| layer.route("POST /orders/:id", Options::default())).contains("{id}"));
    assert!(refusal(|layer| layer.methods([Method::HEAD])).contains("HEAD"));
    let twice =
        refusal(|layer| layer.route("POST /{a}", Options::default()).route("POST /{b}", Options::default()));
    assert!(twice.contains("POST /{b}"), "{twice}");
    assert!(
        with(Options { key: KeyFrom::Json("id".into()), ..Options::default() }).contains("start with '/'")
    );
    assert!(with(Options { key: KeyFrom::Query(String::new()), ..Options::default() }).contains("empty"));
    assert!(
        with(Options { fingerprint: FingerprintOf::Json(vec![]), ..Options::default() })
            .contains("no JSON members")
    );
    assert!(with(Options { max_request: 0, ..Options::default() }).contains("max_request"));
    assert!(with(Options { request_patience: Duration::ZERO, ..Options::default() }).contains("patience"));
    let absurd = Settings { lease: Duration::ZERO, ..Settings::default() };
    assert!(with(Options { settings: Some(absurd.clone()), ..Options::default() }).starts_with("lease"));
    let routed =
        refusal(|layer| layer.route("POST /x", Options { settings: Some(absurd), ..Options::default() }));
    assert!(routed.contains("POST /x") && routed.contains("lease"), "{routed}");
}
