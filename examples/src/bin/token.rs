//! The classic test of one-time tokens: get one, post five times; the first runs, four are told "duplicate".
//!
//! ```text
//! cargo run -p onlyonce-examples --bin token
//! TOKEN=$(curl -s localhost:3000/token)
//! for i in 1 2 3 4 5; do curl -s -X POST -H "token: $TOKEN" localhost:3000/test; echo; done
//! ```

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use onlyonce::token::{TokenError, TokenKeys, Tokens};
use onlyonce::{Classify, Idempotency, MemoryStore, Mode, Refusal};

/// Who asks; a real service takes it from its authentication.
const USER: &str = "mydlq";

#[derive(Debug, Classify)]
enum TestError {
    #[unknown]
    Refused(Refusal),
}

impl From<Refusal> for TestError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

async fn token(State(tokens): State<Tokens>) -> Result<String, StatusCode> {
    let token = tokens.issue_for(USER, "test").await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    Ok(token.as_str().to_owned())
}

async fn test(State(tokens): State<Tokens>, headers: HeaderMap) -> Result<&'static str, StatusCode> {
    let token = headers.get("token").and_then(|value| value.to_str().ok()).ok_or(StatusCode::BAD_REQUEST)?;
    let call = match tokens.redeem(token, USER, "test").await {
        Ok(call) => call,
        Err(TokenError::Gone) => return Ok("重复调用"),
        Err(TokenError::Expired) => return Err(StatusCode::GONE),
        Err(TokenError::Store(_)) => return Err(StatusCode::SERVICE_UNAVAILABLE),
        Err(_) => return Err(StatusCode::FORBIDDEN),
    };
    match call.run(async { Ok(()) }).await {
        Ok(()) => Ok("正常调用"),
        Err(TestError::Refused(Refusal::Duplicate | Refusal::InProgress { .. })) => Ok("重复调用"),
        Err(TestError::Refused(_)) => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

/// The service, on the tokens that it is given.
pub fn app(tokens: Tokens) -> Router {
    Router::new().route("/token", get(token)).route("/test", post(test)).with_state(tokens)
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let once = Idempotency::new(MemoryStore::new());
    let tokens = Tokens::signed(once, TokenKeys::random()).mode(Mode::Reject);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("http://{}/token", listener.local_addr()?);
    axum::serve(listener, app(tokens)).await
}
