//! Problems speak English and Simplified Chinese.

use onlyonce_http::{Language, MissingKey, Options, ProblemKind};

use crate::support::{Setup, post};

#[tokio::test]
async fn problems_are_in_the_language_that_the_client_likes_best() {
    let service = Setup::new()
        .options(Options { missing_key: MissingKey::Reject, ..Options::default() })
        .counting()
        .await;
    let english = service.client.send(post("/pay")).await;
    assert_eq!(english.header("content-language"), Some("en"));
    assert_eq!(english.assert_problem(400, "key-missing")["title"], "An idempotency key is required");
    let chinese =
        service.client.send(post("/pay").header("accept-language", "zh-CN,zh;q=0.9,en;q=0.8")).await;
    assert_eq!(chinese.header("content-language"), Some("zh-CN"));
    assert_eq!(chinese.assert_problem(400, "key-missing")["title"], "缺少幂等键");
    assert!(chinese.header("vary").unwrap().contains("accept-language"));
}

#[test]
fn every_problem_has_a_name_of_its_own_and_a_tag_for_each_language() {
    let mut names: Vec<_> = ProblemKind::ALL.iter().map(|kind| kind.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ProblemKind::ALL.len());
    assert_eq!((Language::English.tag(), Language::Chinese.tag()), ("en", "zh-CN"));
}
