//! The rules of a route hold for every spelling of its path that some service takes for it, and for every method or path in a header.

use http::Method;
use onlyonce_core::{Idempotency, MemoryStore, token::TokenKeys, token::Tokens};
use onlyonce_http::{IdempotencyLayer, MissingKey, Options, ScopeFrom, TokenRule};

use crate::support::{Setup, post};

fn demanding() -> Options {
    Options { missing_key: MissingKey::Reject, ..Options::default() }
}

#[tokio::test]
async fn the_rules_of_a_route_hold_for_the_plain_spelling_of_its_path() {
    let patterns = ["/Pay", "/Orders/{id}", "/slash/", "/v1.0/Img-{id}", "/report.csv", "/files/{name}"];
    let service = Setup::new()
        .layer(move |layer| {
            patterns.iter().fold(layer, |layer, path| layer.route(format!("POST {path}"), demanding()))
        })
        .counting()
        .await;
    for path in [
        "/pay",
        "/PAY",
        "/Pay/",
        "/orders/7",
        "/ORDERS/7/",
        "/slash",
        "/slash//",
        "/v1.0/img-7",
        "/V1.0/IMG-7/",
        "/report",
        "/REPORT.csv",
        "/report.json",
        "/Files/A",
        "/files/a;x",
    ] {
        service.client.send(post(path)).await.assert_problem(400, "key-missing");
    }
    assert_eq!(service.effects(), 0);
    assert_eq!(service.client.send(post("/other")).await.status, 201);
}

#[tokio::test]
async fn a_route_that_asks_for_less_is_meant_for_its_own_spelling_alone() {
    let service = Setup::new()
        .layer(|layer| layer.options(demanding()).route("POST /hook", Options::default()))
        .counting()
        .await;
    assert_eq!(service.client.send(post("/hook")).await.status, 201);
    for path in ["/HOOK", "/hook/", "/hook.php", "//hook", "/hook;x", "/other"] {
        service.client.send(post(path)).await.assert_problem(400, "key-missing");
    }
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn of_routes_that_are_read_alike_the_one_that_demands_a_key_counts() {
    let service = Setup::new()
        .layer(|layer| layer.route("POST /report.csv", Options::default()).route("POST /report", demanding()))
        .counting()
        .await;
    assert_eq!(service.client.send(post("/report.csv")).await.status, 201);
    for path in ["/report", "/REPORT", "/report/", "/report;x", "//report", "/report.CSV"] {
        service.client.send(post(path)).await.assert_problem(400, "key-missing");
    }
    assert_eq!(service.effects(), 1);
}

#[test]
fn routes_that_are_read_alike_do_not_demand_a_token_here_and_a_key_there() {
    let once = Idempotency::new(MemoryStore::new());
    let tokens = Tokens::signed(once.clone(), TokenKeys::random());
    let token = Options { token: Some(TokenRule::new(tokens)), ..Options::default() };
    let built = IdempotencyLayer::builder(once, ScopeFrom::nobody())
        .route("POST /orders", token)
        .route("POST /Orders", demanding())
        .build();
    let why = built.unwrap_err().to_string();
    assert!(why.contains("POST /Orders") && why.contains("token"), "{why}");
}

#[tokio::test]
async fn a_method_or_path_in_a_list_or_without_its_slash_gets_past_no_rule() {
    let service = Setup::new()
        .layer(|layer| layer.route("PUT /account", demanding()).route("POST /plain", demanding()))
        .counting()
        .await;
    for method in ["PUT", "put", "PUT, x", "PUT,", "x, PUT", " PUT ;q=1"] {
        let sent = post("/account").header("x-http-method-override", method);
        service.client.send(sent).await.assert_problem(400, "request-ambiguous");
    }
    for path in ["plain", "/plain", "plain?x=1", "/x, /plain", "http://shop/plain"] {
        let sent = post("/account").header("x-rewrite-url", path);
        service.client.send(sent).await.assert_problem(400, "request-ambiguous");
    }
    for path in ["/account?_method=PUT", "/account?x=1&_method=put", "/account?_method=POST&_method=PUT"] {
        service.client.send(post(path)).await.assert_problem(400, "request-ambiguous");
    }
    for pair in [
        "%5fmethod=PUT",
        "_%6dethod=PUT",
        ".method=PUT",
        "%2emethod=PUT",
        "[method=PUT",
        "+_METHOD=PUT",
        "%00_method=PUT",
        "_method%00=PUT",
        "_method[]=PUT",
        "_method[x]=PUT",
        "a=1;_method=PUT",
        "_method=%20PUT",
        "_method=PUT%0a",
        "_method=P%55T%00x",
        "_method=PUT,POST",
    ] {
        let said = service.client.send(post(&format!("/account?{pair}"))).await;
        assert_eq!(said.status, 400, "{pair}");
        said.assert_problem(400, "request-ambiguous");
    }
    let hidden = post("/account").header("x-original-url", "/other/..;/plain");
    service.client.send(hidden).await.assert_problem(400, "request-ambiguous");
    assert_eq!(service.effects(), 0);
    for pair in
        ["_method=POST&my_methods=PUT", "method=PUT", ".method=POST", "_method=PUTS", "x=_method%3DPUT"]
    {
        assert_eq!(service.client.send(post(&format!("/account?{pair}"))).await.status, 201, "{pair}");
    }
    let harmless = post("/account").header("x-http-method-override", Method::POST.as_str());
    assert_eq!(service.client.send(harmless).await.status, 201);
}

#[tokio::test]
async fn readings_of_lax_services_are_combined() {
    let service = Setup::new()
        .layer(|layer| {
            let patterns = ["/pay", "/orders/{id}/refund", "/café"];
            patterns.iter().fold(layer, |layer, path| layer.route(format!("POST {path}"), demanding()))
        })
        .counting()
        .await;
    for path in [
        "//x/pay",
        "//x:80/pay",
        "//x@y/pay",
        "///x/pay",
        "/y/..//x/pay",
        "/.//x/pay",
        "/%5Cx/pay",
        "//x/PAY;v",
        "/pay%0A",
        "/pay%1f",
        "/p%80ay",
        "/pay%80",
        "/orders/;1/REFUND",
        "/ordeRs/%3b1/refund",
        "/orders//;1/refund",
        "/orders//refund",
        "/orders/1/refund%0a",
        "/CAF%C3%89",
        "/caf%C3%89",
        "/Caf%c3%a9/",
    ] {
        service.client.send(post(path)).await.assert_problem(400, "key-missing");
    }
    assert_eq!(service.effects(), 0);
    for path in ["/payments", "/x/pay", "/orders/refund/1", "/other"] {
        assert_eq!(service.client.send(post(path)).await.status, 201, "{path}");
    }
}
