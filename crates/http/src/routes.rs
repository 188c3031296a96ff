//! Which options a request falls under.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use http::Method;
use http::request::Parts;
use matchit::{InsertError, Router};
use onlyonce_core::{Idempotency, InputError, OnLapse, Order};

use crate::options::{MissingKey, Options};
use crate::path;

/// Options together with the engine that follows their settings.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) options: Options,
    pub(crate) once: Idempotency,
    /// How the route is called in records and metrics, if it was declared.
    pub(crate) label: Option<Arc<str>>,
}

impl Route {
    pub(crate) fn new(
        once: &Idempotency,
        options: Options,
        label: Option<Arc<str>>,
    ) -> Result<Self, InputError> {
        options.validate()?;
        if options.order == Order::Increasing {
            once.may_order()?;
        }
        let once = once.with_settings(options.engine_settings(once.settings()))?;
        if matches!(once.settings().on_lapse, OnLapse::Ask { .. }) && options.recover.is_none() {
            tracing::warn!(
                route = label.as_deref().unwrap_or("default"),
                "OnLapse::Ask without Options::recover acts as Hold"
            );
        }
        Ok(Self { options, once, label })
    }

    /// Whether nothing passes without a key or a token.
    fn is_demanding(&self) -> bool {
        self.options.token.is_some() || self.options.missing_key == MissingKey::Reject
    }
}

#[derive(Debug)]
pub(crate) struct Routes {
    declared: HashMap<Method, Router<Arc<Route>>>,
    labelled: HashMap<Arc<str>, Arc<Route>>,
    /// The same by the laxest reading of their patterns; and those of them that demand something.
    lax: HashMap<Method, Router<Arc<Route>>>,
    demanding: HashMap<Method, Router<Arc<Route>>>,
    default: Arc<Route>,
    methods: Vec<Method>,
}

impl Routes {
    pub(crate) fn new(default: Route, methods: Vec<Method>) -> Result<Self, InputError> {
        methods.iter().try_for_each(check_method)?;
        Ok(Self {
            declared: HashMap::new(),
            labelled: HashMap::new(),
            lax: HashMap::new(),
            demanding: HashMap::new(),
            default: Arc::new(default),
            methods,
        })
    }

    /// Declares options for a pattern such as `POST /orders/{id}/payment`.
    pub(crate) fn declare(
        &mut self,
        pattern: &str,
        once: &Idempotency,
        options: Options,
    ) -> Result<(), InputError> {
        let wrong = |why: &str| InputError::new(format!("the route {pattern:?} {why}"));
        let (method, path) = pattern
            .split_once(' ')
            .filter(|(_, path)| path.starts_with('/'))
            .ok_or_else(|| wrong("must be a method and a path, such as \"POST /orders/{id}\""))?;
        let method =
            Method::from_bytes(method.as_bytes()).map_err(|_| wrong("does not start with a method"))?;
        check_method(&method)?;
        if path.split('/').any(|segment| segment.starts_with([':', '*'])) {
            return Err(wrong("must write parameters in braces, as axum does: {id} or {*rest}"));
        }
        let label: Arc<str> = pattern.into();
        let route = Route::new(once, options, Some(Arc::clone(&label)))
            .map_err(|cause| wrong(&format!("is wrong: {cause}")))?;
        let (route, path) = (Arc::new(route), path::spelled_pattern(path));
        // Of two that are read alike the first is found, and one that demands something before all others; by its own spelling
        // each is.
        let lax = path::laxest(&path);
        let read_alike = if route.is_demanding() { &mut self.demanding } else { &mut self.lax };
        let read_alike = read_alike.entry(method.clone()).or_default();
        if read_alike.insert(&*lax, Arc::clone(&route)).is_err()
            && let Ok(twin) = read_alike.at(&lax)
            && twin.value.options.token.is_some() != route.options.token.is_some()
        {
            let twin = twin.value.label.as_deref().unwrap_or_default();
            return Err(wrong(&format!(
                "demands something else than {twin:?}, which some services take for the same path: let both demand a token, or \
                 neither"
            )));
        }
        let routes = self.declared.entry(method.clone()).or_default();
        routes.insert(path, Arc::clone(&route)).map_err(|cause| match cause {
            InsertError::Conflict { with } => {
                wrong(&format!("is declared already, as \"{method} {with}\": take one of them out"))
            }
            InsertError::InvalidParam => wrong("has a parameter without a name; write it as in {id}"),
            cause => wrong(&format!("can't be declared: {cause}")),
        })?;
        self.labelled.insert(label, route);
        Ok(())
    }

    /// The route that calls fall under now whose records have this label. Others may have been declared when they were made.
    pub(crate) fn of_label(&self, label: &str) -> &Arc<Route> {
        let by_path = || {
            let (method, path) = label.split_once(' ')?;
            self.named(&Method::from_bytes(method.as_bytes()).ok()?, path)
        };
        self.labelled.get(label).or_else(by_path).unwrap_or(&self.default)
    }

    /// What holds where no route is declared.
    pub(crate) fn usual(&self) -> &Arc<Route> {
        &self.default
    }

    /// The route of a request, or `None` if it is passed on untouched.
    pub(crate) fn find(&self, parts: &Parts) -> Option<&Arc<Route>> {
        self.named(&parts.method, &path::of(parts))
    }

    /// The route of a call of this method and path, or `None` if such calls are passed on untouched.
    pub(crate) fn named<'a>(&'a self, method: &Method, path: &str) -> Option<&'a Arc<Route>> {
        let found = self.declared.get(method).and_then(|routes| routes.at(path).ok());
        // A service that reads the path more laxly than it is spelled would else be reached past the rules of the route.
        let read_alike = |routes: &'a HashMap<Method, Router<Arc<Route>>>| {
            let routes = routes.get(method)?;
            let mut readings = path::readings(path).into_iter();
            readings.find_map(|reading| routes.at(&reading).ok().map(|found| found.value))
        };
        let of_method = || self.methods.contains(method).then_some(&self.default);
        match found {
            // It is meant for this path, or asks for as much as any other could.
            Some(found) if found.params.is_empty() || found.value.is_demanding() => Some(found.value),
            Some(found) => read_alike(&self.demanding).or(Some(found.value)),
            // A route that asks for less than what holds everywhere is meant for its own spelling alone.
            None => read_alike(&self.demanding)
                .or_else(|| of_method().filter(|default| default.is_demanding()))
                .or_else(|| read_alike(&self.lax))
                .or_else(of_method),
        }
    }
}

fn check_method(method: &Method) -> Result<(), InputError> {
    if [Method::GET, Method::HEAD, Method::OPTIONS, Method::CONNECT, Method::TRACE].contains(method) {
        return Err(InputError::new(format!(
            "{method} changes nothing and can't be made idempotent; name POST, PATCH, PUT or DELETE"
        )));
    }
    Ok(())
}

/// How much of a path that matches no pattern is stored.
const LONGEST_LABEL: usize = 128;

/// How the record of a request is labelled, and whether that is a pattern (and not one of endlessly many paths).
pub(crate) fn label(route: &Route, parts: &Parts) -> (Arc<str>, bool) {
    if let Some(label) = &route.label {
        return (Arc::clone(label), true);
    }
    #[cfg(feature = "axum")]
    if let Some(matched) = parts.extensions.get::<axum::extract::MatchedPath>() {
        return (joined(&parts.method, matched.as_str()), true);
    }
    // There is no end to what a caller may put into a path.
    let path = path::of(parts);
    let end = (0..=path.len().min(LONGEST_LABEL)).rev().find(|end| path.is_char_boundary(*end)).unwrap_or(0);
    (joined(&parts.method, &path[..end]), false)
}

/// How many labels a thread keeps.
const LABELS: usize = 16;

thread_local! {
    /// The labels that this thread used last, and where the next one goes: most requests share them, and so do their records.
    static USED: RefCell<(Vec<Arc<str>>, usize)> = const { RefCell::new((Vec::new(), 0)) };
}

/// Method and path, with a space between.
fn joined(method: &Method, path: &str) -> Arc<str> {
    let method = method.as_str();
    let is_it = |label: &&Arc<str>| {
        label.strip_prefix(method).and_then(|rest| rest.strip_prefix(' ')).is_some_and(|rest| rest == path)
    };
    USED.with_borrow_mut(|(labels, next)| {
        if let Some(label) = labels.iter().find(is_it) {
            return Arc::clone(label);
        }
        let label: Arc<str> = [method, " ", path].concat().into();
        if labels.len() < LABELS {
            labels.push(Arc::clone(&label));
        } else {
            labels[*next % LABELS] = Arc::clone(&label);
            *next += 1;
        }
        label
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_shared_and_never_mixed_up() {
        let orders = joined(&Method::POST, "/orders");
        assert_eq!(&*orders, "POST /orders");
        assert!(Arc::ptr_eq(&orders, &joined(&Method::POST, "/orders")));
        for n in 0..10 * LABELS {
            assert_eq!(*joined(&Method::POST, &format!("/orders/{n}")), *format!("POST /orders/{n}"));
            assert_eq!(&*joined(&Method::PATCH, "/orders"), "PATCH /orders");
            assert_eq!(&*joined(&Method::POST, "/order"), "POST /order");
        }
        USED.with_borrow(|(labels, _)| assert_eq!(labels.len(), LABELS));
    }
}
