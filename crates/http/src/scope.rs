//! On whose behalf a request is made.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::header::HeaderName;
use http::request::Parts;
use onlyonce_core::{InputError, Scope};

use crate::problem::{Problem, ProblemKind};

/// What is known of the caller of a request. Reasons are told to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// The caller, as authenticated.
    Known(Scope),
    /// The request does not say who calls, and this is what is missing or unclear: 400.
    Absent(Cow<'static, str>),
    /// The request shows credentials that do not hold, for this reason: 401, never the same as absent.
    Denied(Cow<'static, str>),
}

impl Caller {
    /// The scope of a caller that is asked for once.
    pub(crate) fn take(&mut self) -> Result<Scope, Problem> {
        std::mem::replace(self, Self::Absent("it was asked for before".into())).scope()
    }

    pub(crate) fn scope(self) -> Result<Scope, Problem> {
        match self {
            Self::Known(scope) => Ok(scope),
            Self::Absent(why) => Err(Problem::new(ProblemKind::ScopeMissing).because(why)),
            Self::Denied(why) => Err(Problem::new(ProblemKind::ScopeDenied).because(why)),
        }
    }
}

impl From<Option<Scope>> for Caller {
    fn from(scope: Option<Scope>) -> Self {
        scope.map_or(Self::Absent("nothing in it does".into()), Self::Known)
    }
}

impl From<Result<Scope, InputError>> for Caller {
    fn from(scope: Result<Scope, InputError>) -> Self {
        scope.map_or_else(|why| Self::Absent(why.to_string().into()), Self::Known)
    }
}

/// How the scope of a request is found: two scopes never share a record.
///
/// There is no default, because a default would either mix tenants or break a retry after a token refresh. Use what
/// your authentication has verified; a header is right only behind a proxy that sets it.
///
/// ```
/// use onlyonce_http::ScopeFrom;
/// #[derive(Clone)]
/// struct User { id: String }
/// let by_user = ScopeFrom::extension(|user: &User| user.id.clone()); // set by a layer outside of this one
/// let by_header = ScopeFrom::header("x-tenant");
/// let one_for_all = ScopeFrom::nobody();
/// ```
#[derive(Clone)]
pub struct ScopeFrom(Arc<dyn Fn(&Parts) -> Caller + Send + Sync>);

impl ScopeFrom {
    /// Finds the scope with a function of yours.
    pub fn with(find: impl Fn(&Parts) -> Caller + Send + Sync + 'static) -> Self {
        Self(Arc::new(find))
    }

    /// Takes the value of a header. Given several times, it counts as absent: nobody knows which one is meant.
    ///
    /// # Panics
    /// If `name` is not a header name in lower case.
    #[must_use]
    pub fn header(name: &'static str) -> Self {
        let name = HeaderName::from_static(name);
        Self::with(move |parts| {
            let mut values = parts.headers.get_all(&name).iter();
            let why = match (values.next(), values.next()) {
                (Some(value), None) => match value.to_str() {
                    Ok("") => "is empty",
                    Ok(text) => return Scope::new(text).into(),
                    Err(_) => "is not visible ASCII; send it percent-encoded, or as an id",
                },
                (Some(_), Some(_)) => "is there more than once",
                (None, _) => "is missing",
            };
            Caller::Absent(format!("the header {name} {why}").into())
        })
    }

    /// Takes it from a request extension that an authentication layer has set.
    pub fn extension<T: Send + Sync + 'static>(name: impl Fn(&T) -> String + Send + Sync + 'static) -> Self {
        Self::with(move |parts| {
            let Some(found) = parts.extensions.get::<T>() else {
                tracing::warn!(
                    wanted = std::any::type_name::<T>(),
                    "the request has no such extension; the layer that sets it must be outside of the idempotency layer"
                );
                return Caller::Absent("the service did not say who calls".into());
            };
            Scope::new(&name(found)).into()
        })
    }

    /// One scope for all: right where keys are unguessable and answers are not personal.
    #[must_use]
    pub fn nobody() -> Self {
        Self::with(|_| Caller::Known(Scope::shared()))
    }

    pub(crate) fn find(&self, parts: &Parts) -> Caller {
        (self.0)(parts)
    }
}

impl fmt::Debug for ScopeFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScopeFrom(..)")
    }
}
