//! Form: the page comes with a token, which is used up by the first submit; a second click finds it used. Bound to the user: the
//! token of somebody else looks like none at all.

use onlyonce::StateMachine;
use onlyonce::sql::guard::{Transition, transition, unique};
use sqlx::Pool;

use super::{Db, Failure, prepare, transaction};

const TABLES: &str = "
    CREATE TABLE form_tokens (token VARCHAR(64) PRIMARY KEY, member BIGINT NOT NULL, state VARCHAR(20) NOT NULL);
    CREATE TABLE posts (token VARCHAR(64) PRIMARY KEY, body VARCHAR(200) NOT NULL);
";

#[derive(Debug, Clone, Copy, PartialEq, Eq, StateMachine)]
enum Token {
    #[to(Used)]
    Issued,
    Used,
}

/// Shows the form: a token, good for one submit of this member.
///
/// # Errors
/// If the database fails.
pub async fn open(pool: &Pool<Db>, member: i64, token: &str) -> Result<(), Failure> {
    transaction(pool, async |tx| {
        let row =
            unique("form_tokens").set("token", token.to_owned()).set("member", member).set("state", "issued");
        row.primary_key(["token"]).run(tx).await.map(drop)
    })
    .await
}

/// Takes the submitted form: the token is used up in the transaction that keeps the form.
///
/// # Errors
/// If the database fails.
pub async fn submit(pool: &Pool<Db>, member: i64, token: &str, body: &str) -> Result<String, Failure> {
    transaction(pool, async |tx| {
        let used = transition("form_tokens", "state", Token::Used);
        Ok(match used.key("token", token.to_owned()).key("member", member).run(tx).await? {
            Transition::Applied => {
                let post = unique("posts").set("token", token.to_owned()).set("body", body.to_owned());
                post.primary_key(["token"]).run(tx).await?;
                format!("{body}: posted")
            }
            Transition::AlreadyInTarget => format!("{body}: was sent before"),
            Transition::NotFound => format!("{body}: unknown token, open the form again"),
            other => format!("{body}: {other:?}"),
        })
    })
    .await
}

/// Tells what happened.
///
/// # Errors
/// If the database fails.
pub async fn story(pool: Pool<Db>) -> Result<Vec<String>, Failure> {
    prepare(&pool, TABLES).await?;
    open(&pool, 7, "t-1").await?;
    let mut told = Vec::new();
    for (member, token, body) in
        [(7, "t-1", "hello"), (7, "t-1", "hello"), (8, "t-1", "not mine"), (7, "t-2", "made up")]
    {
        told.push(submit(&pool, member, token, body).await?);
    }
    Ok(told)
}
