//! What one-time tokens are signed with, and the routes that need them.

use std::path::{Path, PathBuf};

use onlyonce::http::TokenRule;
use onlyonce::token::{TokenKeys, Tokens};
use onlyonce::{Idempotency, Mode};

use crate::config::{Config, Rules, Secrets, TokenKind, TokenSettings, read_keys};
use crate::failure::Failure;
use crate::{secret, stores};

/// Issues and checks the tokens of all routes.
#[derive(Debug)]
pub(crate) struct Issuer {
    keys: TokenKeys,
    settings: TokenSettings,
    once: Idempotency,
}

impl Issuer {
    /// Without a secret of the configuration, the keys of `before` go on where nothing is kept, so that a reload costs no token.
    pub(crate) fn new(config: &Config, once: &Idempotency, before: Option<&Self>) -> Result<Self, Failure> {
        let settings = config.tokens.clone();
        let are_checked = settings.kind == TokenKind::Signed && config.routes.iter().any(needs_token);
        let keys = match &settings.secrets {
            Secrets::Given(keys) => keys.clone(),
            Secrets::File(file) => in_file(file)?,
            Secrets::Nowhere if are_checked => {
                warn_if_shared(&config.store);
                in_file(&usual_file(&config.store))?
            }
            // As long as no route asks for a token, they are keys that the server chose: any secret will do.
            Secrets::Nowhere => before.map_or_else(TokenKeys::random, |before| before.keys.clone()),
        };
        Ok(Self { keys, settings, once: once.clone() })
    }

    /// Tokens whose duplicates are treated in this way.
    pub(crate) fn tokens(&self, mode: Mode) -> Tokens {
        let once = self.once.clone();
        let tokens = match self.settings.kind {
            TokenKind::Signed => Tokens::signed(once, self.keys.clone()),
            TokenKind::Stored => Tokens::stored(once),
            TokenKind::DeleteFirst => Tokens::delete_first(once),
        };
        tokens.ttl(self.settings.ttl).mode(mode)
    }

    /// How a route that needs tokens finds and judges them.
    pub(crate) fn rule(&self, rules: &Rules) -> Option<TokenRule> {
        let place = rules.token.as_ref()?;
        let mode = rules.options.settings.as_ref().map_or(Mode::Replay, |settings| settings.mode);
        let rule = TokenRule::new(self.tokens(mode));
        Some(match &place.field {
            Some(field) => rule.field(field.as_str()),
            None => rule,
        })
    }
}

fn needs_token(route: &crate::config::Route) -> bool {
    route.rules.token.is_some()
}

fn in_file(file: &Path) -> Result<TokenKeys, Failure> {
    secret::in_file(file, crate::config::ABOUT_TOKENS, |random| format!("1:{random}"))?;
    read_keys(file).map_err(Failure::usage)
}

fn usual_file(store: &str) -> PathBuf {
    stores::beside(store, "token.secret")
}

fn warn_if_shared(store: &str) {
    if !stores::is_of_one_process(store) {
        tracing::warn!(
            "tokens are signed with a secret of this gateway alone: others on the same store refuse them; give all the same tokens.secret"
        );
    }
}
