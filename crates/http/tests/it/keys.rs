//! Keys: syntax, sources, and what happens without one.

use http::Method;
use onlyonce_http::{KeyFrom, MissingKey, Options};

use crate::support::{Setup, post};

#[tokio::test]
async fn quoted_bare_and_parametrised_spellings_are_one_key() {
    let service = Setup::new().counting().await;
    let first = service.client.send(post("/pay").key("k-1")).await;
    assert!(!first.is_replay());
    for spelling in ["\"k-1\"", "\"k-1\";p=1", "k-1"] {
        let again = service.client.send(post("/pay").key(spelling)).await;
        assert!(again.is_replay(), "{spelling}");
        assert_eq!(again.body, first.body);
        assert_eq!(again.header("idempotency-key"), Some(spelling));
    }
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn malformed_and_overlong_keys_are_refused_and_nothing_runs() {
    let service = Setup::new().counting().await;
    let long = "k".repeat(256);
    for key in ["", "\"\"", "a b", "a,b", "k;p=1", "\"open", "\"a\" \"b\"", &long] {
        service.client.send(post("/pay").key(key)).await.assert_problem(400, "key-invalid");
    }
    assert_eq!(service.effects(), 0);
    let longest = service.client.send(post("/pay").key(&"k".repeat(255))).await;
    assert_eq!(longest.status, 201);
}

#[tokio::test]
async fn two_key_headers_are_refused_even_if_they_agree() {
    let service = Setup::new().counting().await;
    let answer = service.client.send(post("/pay").key("same").key("same")).await;
    answer.assert_problem(400, "key-invalid");
    assert_eq!(service.effects(), 0);
}

#[tokio::test]
async fn without_a_key_a_request_passes_by_default() {
    let service = Setup::new().counting().await;
    for _ in 0..2 {
        let answer = service.client.send(post("/pay")).await;
        assert_eq!(answer.status, 201);
        assert!(answer.header("idempotency-key").is_none());
    }
    assert_eq!(service.effects(), 2);
}

#[tokio::test]
async fn without_a_key_a_strict_route_refuses_and_others_do_not() {
    let strict = Options { missing_key: MissingKey::Reject, ..Options::default() };
    let service = Setup::new().layer(|layer| layer.route("POST /payments/{id}", strict)).counting().await;
    let refused = service.client.send(post("/payments/7")).await.assert_problem(400, "key-missing");
    assert_eq!(refused["retryable"], false);
    assert_eq!(service.client.send(post("/notes")).await.status, 201);
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn only_post_and_patch_are_protected_unless_others_opt_in() {
    let service = Setup::new().counting().await;
    for (method, effects) in
        [(Method::POST, 1), (Method::PATCH, 2), (Method::PUT, 4), (Method::DELETE, 6), (Method::GET, 8)]
    {
        for _ in 0..2 {
            service.client.send(post("/x").method(method.clone()).key("k")).await;
        }
        assert_eq!(service.effects(), effects, "{method}");
    }

    let opted = Setup::new()
        .layer(|layer| {
            layer.methods([Method::POST, Method::PUT]).route("DELETE /accounts/{id}", Options::default())
        })
        .counting()
        .await;
    for (method, path, effects) in
        [(Method::PUT, "/x", 1), (Method::DELETE, "/accounts/1", 2), (Method::DELETE, "/x", 4)]
    {
        for _ in 0..2 {
            opted.client.send(post(path).method(method.clone()).key("k")).await;
        }
        assert_eq!(opted.effects(), effects, "{method} {path}");
    }
}

#[tokio::test]
async fn the_key_may_come_from_the_json_body() {
    let options = Options {
        key: KeyFrom::Json("/order/id".into()),
        missing_key: MissingKey::Reject,
        ..Options::default()
    };
    let service = Setup::new().options(options).counting().await;
    let order = |id: &str| post("/orders").body(format!("{{\"order\":{{\"id\":{id}}}}}"));
    assert!(!service.client.send(order("\"a\"")).await.is_replay());
    assert!(service.client.send(order("\"a\"")).await.is_replay());
    assert!(!service.client.send(order("42")).await.is_replay());
    service.client.send(order("[]")).await.assert_problem(400, "key-invalid");
    service.client.send(order("null")).await.assert_problem(400, "key-missing");
    service.client.send(post("/orders").body("not json")).await.assert_problem(400, "key-invalid");
    assert_eq!(service.effects(), 2);
}

#[tokio::test]
async fn the_key_may_come_from_the_query_or_a_form_field() {
    let query = Options { key: KeyFrom::Query("request_id".into()), ..Options::default() };
    let form = Options { key: KeyFrom::Form("_once".into()), ..Options::default() };
    let service =
        Setup::new().layer(|layer| layer.route("POST /q", query).route("POST /f", form)).counting().await;
    for expect_replay in [false, true] {
        assert_eq!(service.client.send(post("/q?request_id=a%20b")).await.is_replay(), expect_replay);
        let form = post("/f").header("content-type", "application/x-www-form-urlencoded; charset=utf-8");
        assert_eq!(service.client.send(form.body("item=1&_once=t-1")).await.is_replay(), expect_replay);
    }
    service.client.send(post("/q?request_id=a&request_id=a")).await.assert_problem(400, "key-invalid");
    assert_eq!(service.effects(), 2);
    // The same bytes without the form's content type hold no form, and so no key: passed on.
    assert_eq!(service.client.send(post("/f").body("_once=t-1")).await.status, 201);
    assert_eq!(service.effects(), 3);
}

#[tokio::test]
async fn an_upgrade_is_passed_on_untouched_but_does_not_switch_protection_off() {
    let service = Setup::new().counting().await;
    let upgrade = |to: &str| post("/chat").key("k").header("connection", "upgrade").header("upgrade", to);
    for _ in 0..2 {
        assert!(!service.client.send(upgrade("websocket").method(Method::GET)).await.is_replay());
    }
    assert_eq!(service.effects(), 2);
    // Some clients offer h2c with every request, also with their POSTs.
    for replayed in [false, true] {
        assert_eq!(service.client.send(upgrade("h2c")).await.is_replay(), replayed);
    }
    assert_eq!(service.effects(), 3);
}

#[tokio::test]
async fn keys_of_query_and_form_that_differ_by_a_byte_are_never_one() {
    for (key, path, body) in
        [(KeyFrom::Query("k".into()), "/pay?k=", ""), (KeyFrom::Form("k".into()), "/pay", "k=")]
    {
        let service = Setup::new().options(Options { key, ..Options::default() }).counting().await;
        let send = |value: &str| {
            let path = if body.is_empty() { format!("{path}{value}") } else { path.to_owned() };
            let body = if body.is_empty() { String::new() } else { format!("{body}{value}") };
            let form = post(&path).body(body).header("content-type", "application/x-www-form-urlencoded");
            service.client.send(form)
        };
        for lossy in ["%ff", "%fe", "a%C3", "%ED%A0%80"] {
            send(lossy).await.assert_problem(400, "key-invalid");
        }
        for doubled in ["1&k=2", "1;k=2", "1&K=2", "1&k[]=2", "1;2", "1&%6b=2"] {
            send(doubled).await.assert_problem(400, "key-invalid");
        }
        assert_eq!(service.effects(), 0);
        assert_eq!(send("caf%C3%A9").await.status, 201);
        send("caf%c3%a9").await;
        assert_eq!(service.effects(), 1);
    }
}

#[tokio::test]
async fn a_key_beyond_ascii_is_not_told_to_use_quotes_which_fail_too() {
    let service = Setup::new().counting().await;
    for key in ["caf\u{e9}", "\"caf\u{e9}\""] {
        let told = service.client.send(post("/pay").key(key)).await.assert_problem(400, "key-invalid");
        let detail = told["detail"].as_str().unwrap();
        assert!(detail.contains("beyond ASCII") && !detail.contains("put it in double quotes"), "{detail}");
    }
    let told = service.client.send(post("/pay").key("a b")).await.assert_problem(400, "key-invalid");
    assert!(told["detail"].as_str().unwrap().contains("put it in double quotes"));
    assert_eq!(service.client.send(post("/pay").key("\"a b\"")).await.status, 201);
}

#[tokio::test]
async fn a_method_in_another_case_does_not_get_past_the_layer() {
    let service = Setup::new().counting().await;
    for method in ["post", "Post", "patch"] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        for ask in [post("/pay").key("k"), post("/pay")] {
            service.client.send(ask.method(method.clone())).await.assert_problem(400, "request-ambiguous");
        }
    }
    let hidden = post("/pay").method(Method::GET).header("x-http-method-override", "POST");
    service.client.send(hidden).await.assert_problem(400, "request-ambiguous");
    assert_eq!(service.effects(), 0);
}

/// PHP's `$_REQUEST` and the `params` of Rails have one place for both.
#[tokio::test]
async fn a_key_that_query_and_body_say_differently_runs_nothing() {
    const FORM: &str = "application/x-www-form-urlencoded";
    let route = |key| Options { key, ..Options::default() };
    let layer = move |layer: onlyonce_http::LayerBuilder| {
        layer
            .route("POST /q", route(KeyFrom::Query("request_id".into())))
            .route("POST /f", route(KeyFrom::Form("request_id".into())))
            .route("POST /j", route(KeyFrom::Json("/request_id".into())))
    };
    let service = Setup::new().layer(layer).counting().await;
    let send = |path: &str, kind: &str, body: &str| {
        service.client.send(post(path).header("content-type", kind).body(body.to_owned()))
    };
    let part = "--b\r\nContent-Disposition: form-data; name=\"request_id\"\r\n\r\nb\r\n--b--\r\n";
    let multipart = "multipart/form-data; boundary=b";
    for (path, kind, body) in [
        ("/q?request_id=a", FORM, "request_id=b"),
        ("/q?request_id=a", FORM, "request.id=a&x=1"),
        ("/q?request_id=a", FORM, "request_id[]=a"),
        ("/q?request_id=a", "application/json", r#"{"request_id":"b"}"#),
        ("/q?request_id=a", "application/vnd.api+json", r#"{"Request_Id":"a"}"#),
        ("/q?request_id=a", multipart, part),
        ("/f?request_id=b", FORM, "request_id=a"),
        ("/f?request_id[]=a", FORM, "request_id=a"),
        ("/f?REQUEST_ID=a", FORM, "request_id=a"),
        ("/j?request_id=b", "application/json", r#"{"request_id":"a"}"#),
        ("/j?request.id=a", "application/json", r#"{"request_id":"a"}"#),
    ] {
        let told = send(path, kind, body).await.assert_problem(400, "key-invalid");
        let detail = told["detail"].as_str().unwrap();
        assert!(detail.contains("in the query and in the body"), "{path} {body}: {detail}");
    }
    assert_eq!(service.effects(), 0);
    // What all of them read alike, or what only one of the places says, is no reason.
    for (path, kind, body) in [
        ("/q?request_id=a", FORM, "request_id=a"),
        ("/q?request_id=b", "application/json", r#"{"request_id":"b","x":1}"#),
        (
            "/q?request_id=c",
            multipart,
            "--b\r\nContent-Disposition: form-data; name=\"x\"; filename=\"request_id\"\r\n\r\n\r\n--b--\r\n",
        ),
        ("/q?request_id=d", "text/plain", "request_id=b"),
        ("/f?x=1", FORM, "request_id=a"),
        ("/j?request_id=42", "application/json", r#"{"request_id":42}"#),
    ] {
        assert_eq!(send(path, kind, body).await.status, 201, "{path} {body}");
    }
    assert_eq!(service.effects(), 6);
}

#[tokio::test]
async fn what_is_in_a_file_of_a_multipart_upload_is_no_field() {
    let options = Options { key: KeyFrom::Query("id".into()), ..Options::default() };
    let service = Setup::new().layer(move |layer| layer.route("POST /q", options.clone())).counting().await;
    let send = |key: &str, kind: &str, body: String| {
        service.client.send(post(&format!("/q?id={key}")).header("content-type", kind).body(body))
    };
    let part = |head: &str, content: &str| format!("--b1\r\n{head}\r\n\r\n{content}\r\n--b1--\r\n");
    let file = "Content-Disposition: form-data; name=\"file\"; filename=\"page.html\"\r\nContent-Type: text/html; name=id";
    for (number, content) in [
        "<input type=\"hidden\" name=\"id\" value=\"1\">",
        "a; name=id\r\n\r\nContent-Disposition: form-data; name=\"id\"\r\n",
        "--other\r\nContent-Disposition: form-data; name=\"id\"\r\n\r\n1\r\n--other--",
    ]
    .into_iter()
    .enumerate()
    {
        for kind in ["multipart/form-data; boundary=b1", "Multipart/Form-Data; charset=x; Boundary=\"b1\""] {
            let key = format!("file{number}{}", kind.len());
            assert_eq!(send(&key, kind, part(file, content)).await.status, 201, "{kind}: {content}");
        }
    }
    assert_eq!(service.effects(), 6);
    for head in [
        "Content-Disposition: form-data; name=\"id\"",
        "content-disposition:form-data;name=id",
        "Content-Disposition: form-data; name = \"id\"",
        "Content-Disposition: form-data; filename=\"a;b\"; NAME=\"id\"",
        "Content-Disposition: form-data; name*=UTF-8''%69d",
        "Content-Disposition: form-data;\r\n name=\"id\"",
        "Content-Disposition: form-data; name='id'",
        "Content-Disposition: form-data; name=\"i\\d\"",
        "Content-Type: text/plain\r\nContent-Disposition : form-data; name=id[]",
    ] {
        let kind = "multipart/form-data; boundary=b1";
        send("a", kind, part(head, "1")).await.assert_problem(400, "key-invalid");
        let second = format!("--b1\r\n{file}\r\n\r\nx\r\n{}", part(head, "1"));
        send("a", kind, second.replace("\r\n", "\n")).await.assert_problem(400, "key-invalid");
    }
    // Nobody can be sure where the parts of these begin.
    for kind in [
        "multipart/form-data",
        "multipart/form-data; boundary=b1; boundary=b2",
        "multipart/form-data; boundary=",
    ] {
        send("a", kind, part("Content-Disposition: form-data; name=\"id\"", "1"))
            .await
            .assert_problem(400, "key-invalid");
    }
    assert_eq!(service.effects(), 6);
}

/// Names with brackets or dots are members of members to Rails, Express, Spring and others.
#[tokio::test]
async fn a_key_within_a_member_that_the_query_names_too_runs_nothing() {
    let route = Options { key: KeyFrom::Json("/order/id".into()), ..Options::default() };
    let service = Setup::new().layer(|layer| layer.route("POST /j", route)).counting().await;
    let send = |query: &str| {
        // Each a call of its own.
        let body = format!(r#"{{"order":{{"id":"{query}"}}}}"#);
        service
            .client
            .send(post(&format!("/j?{query}")).header("content-type", "application/json").body(body))
    };
    for query in ["order[id]=z", "order%5Bid%5D=z", "order=z", "order.id=z", "x=1&Order[id]=a", "x=1;order=z"]
    {
        let answer = send(query).await;
        assert_eq!(answer.status, 400, "{query}");
        let told = answer.assert_problem(400, "key-invalid");
        assert!(told["detail"].as_str().unwrap().contains("in the query and in the body"), "{query}: {told}");
    }
    assert_eq!(service.effects(), 0);
    for query in ["x=order", "order_id=z", "id=z", "orders=z", "x[order]=z"] {
        assert_eq!(send(query).await.status, 201, "{query}");
    }
}
