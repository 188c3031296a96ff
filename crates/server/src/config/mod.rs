//! The configuration: flags win over variables, variables over the file, the file over the defaults.
//!
//! Nothing stops at the first mistake: [`Config::load`] reads everything and tells all that is wrong, each with its place.

pub(crate) mod authority;
mod changes;
pub(crate) mod file;
mod forward;
mod print;
mod rules;
mod settings;
mod source;
mod suggest;
mod target;
mod tokens;
pub(crate) mod units;
mod unused;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use onlyonce::http::{IdempotencyLayer, MemoryBudget, Recover};
use onlyonce::{Idempotency, MemoryStore, Recovery};

use crate::admin;
use crate::gateway::scope::ScopeRule;
use crate::gateway::tls;
use crate::stores::{self, Serving};
pub(crate) use changes::Changes;
use file::{Entry, File};
pub(crate) use forward::{Forward, name_of};
pub(crate) use rules::{OF_ONE_CONNECTION, Route, Rules};
pub(crate) use settings::SETTINGS;
use settings::{Kind, LISTS};
use source::Given;
pub(crate) use source::Problems;
pub(crate) use source::Source;
pub(crate) use target::{Speech, Target, TooLong};
pub(crate) use tokens::{ABOUT as ABOUT_TOKENS, Secrets, TokenKind, TokenSettings, read_keys};
use unused::Uses;

/// What was typed: flags by the name of their setting.
#[derive(Debug, Clone, Default)]
pub(crate) struct Typed {
    pub(crate) config: Option<PathBuf>,
    pub(crate) flags: BTreeMap<&'static str, String>,
}

/// Everything that the gateway needs to know.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) store: String,
    /// Whether a store that may lose records is refused.
    pub(crate) strict: bool,
    pub(crate) target: Option<Target>,
    pub(crate) forwards: Arc<[Forward]>,
    pub(crate) scope: Arc<ScopeRule>,
    pub(crate) rules: Rules,
    pub(crate) routes: Vec<Route>,
    pub(crate) methods: Vec<Method>,
    pub(crate) limits: Limits,
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
    pub(crate) upstream_tls: Arc<rustls::ClientConfig>,
    /// The authorities of upstreams that were named, as they are in their file.
    pub(crate) upstream_ca: Option<Vec<u8>>,
    pub(crate) admin_token: Option<String>,
    pub(crate) admin_token_file: Option<PathBuf>,
    pub(crate) audit_log: Option<PathBuf>,
    pub(crate) trust_forwarded: bool,
    pub(crate) tokens: TokenSettings,
    /// As it is shown: with its sources, and without secrets.
    pub(crate) shown: String,
    /// What is valid, and probably not meant.
    pub(crate) warnings: Vec<String>,
    given: Everything,
}

/// All that was given, before it was read.
#[derive(Clone)]
struct Everything {
    settings: BTreeMap<&'static str, Given>,
    routes: Vec<Entry>,
    forwards: Vec<Entry>,
}

impl fmt::Debug for Everything {
    // There are secrets in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Everything(..)")
    }
}

/// Limits and time-outs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) connections: usize,
    pub(crate) header_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    /// For all that is buffered.
    pub(crate) memory: usize,
    pub(crate) max_head: usize,
    pub(crate) max_body: Option<usize>,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) keep_free: usize,
    /// How long a connection may have idled that a call with a key uses; `None` for what was learned.
    pub(crate) upstream_idle: Option<Duration>,
    pub(crate) drain: Duration,
}

/// A configuration that can't be used, as far as it can be shown, and everything that is wrong with it.
#[derive(Debug)]
pub(crate) struct Unusable {
    pub(crate) shown: String,
    pub(crate) problems: Problems,
}

impl Config {
    /// Reads everything.
    ///
    /// # Errors
    /// All that is wrong, at once.
    pub(crate) fn load(
        typed: &Typed,
        variable: impl Fn(&str) -> Result<Option<String>, String>,
    ) -> Result<Self, Box<Unusable>> {
        let mut problems = Problems::default();
        let (given, whole) = Everything::gather(typed, variable, &mut problems);
        if !whole {
            // What is not known to be missing is not told to be.
            let shown = print::show(&given.settings, &given.routes, &given.forwards);
            return Err(Box::new(Unusable { shown, problems }));
        }
        Self::read(given, problems)
    }

    /// Reads everything again, for a gateway that runs with this one: what can't change while it runs stays as it is.
    ///
    /// # Errors
    /// All that is wrong, at once; also with what would count at the next start only.
    pub(crate) fn reload(
        &self,
        typed: &Typed,
        variable: impl Fn(&str) -> Result<Option<String>, String>,
    ) -> Result<(Self, Changes), Box<Unusable>> {
        let wanted = Self::load(typed, variable)?;
        let (given, changes) = self.given.replaced_by(wanted.given);
        Ok((Self::read(given, Problems::default())?, changes))
    }

    fn read(given: Everything, mut problems: Problems) -> Result<Self, Box<Unusable>> {
        let shown = print::show(&given.settings, &given.routes, &given.forwards);
        let mut loader = Loader { settings: &given.settings, problems: &mut problems };
        match loader.load(&given, shown.clone()) {
            Some(config) if problems.0.is_empty() => Ok(config),
            _ => Err(Box::new(Unusable { shown, problems })),
        }
    }
}

impl Config {
    /// What a store is opened with.
    pub(crate) fn serving(&self) -> Serving {
        let rules = self.routes.iter().map(|route| &route.rules).chain([&self.rules]);
        let max_response = rules.map(|rules| rules.options.max_response).max().unwrap_or_default();
        Serving { keep_free: self.limits.keep_free, max_response, strict: self.strict }
    }
}

impl Everything {
    /// All that was given, and whether that is all: a file that can't be read may have said anything.
    fn gather(
        typed: &Typed,
        variable: impl Fn(&str) -> Result<Option<String>, String>,
        problems: &mut Problems,
    ) -> (Self, bool) {
        let variable = |name: &str, problems: &mut Problems| {
            problems.take(&Source::Variable(name.to_owned()), variable(name)).flatten()
        };
        let config = typed.config.clone();
        let config = config.or_else(|| variable("ONLYONCE_CONFIG", problems).map(PathBuf::from));
        let file = config.as_deref().map(|path| file::read(path, problems));
        let whole = !matches!(file, Some(None));
        let file = file.flatten().unwrap_or_default();
        let settings = gather(typed, &file, |name| variable(name, problems));
        (Self { settings, routes: file.routes, forwards: file.forwards }, whole)
    }
}

fn gather(
    typed: &Typed,
    file: &File,
    mut variable: impl FnMut(&str) -> Option<String>,
) -> BTreeMap<&'static str, Given> {
    let mut settings = BTreeMap::new();
    for setting in SETTINGS {
        let split = |text: &str| match setting.kind {
            Kind::List | Kind::Secrets => {
                text.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
            }
            _ => vec![text.to_owned()],
        };
        let flag = typed.flags.get(setting.name).map(|text| (split(text), Source::Flag(setting.flag())));
        let from_variable =
            || variable(&setting.variable()).map(|text| (split(&text), Source::Variable(setting.variable())));
        let default = || (!setting.default.is_empty()).then(|| (split(setting.default), Source::Default));
        let given = match flag.or_else(from_variable) {
            Some((parts, source)) => Some(Given { parts, source }),
            None => file
                .settings
                .get(setting.path)
                .cloned()
                .or_else(|| default().map(|(parts, source)| Given { parts, source })),
        };
        if let Some(given) = given {
            settings.insert(setting.path, given);
        }
    }
    settings
}

struct Loader<'a> {
    settings: &'a BTreeMap<&'static str, Given>,
    problems: &'a mut Problems,
}

impl Loader<'_> {
    fn source(&self, path: &str) -> Source {
        self.settings.get(path).map_or(Source::Nowhere, |given| given.source.clone())
    }

    fn read<T>(&mut self, path: &str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let given = self.settings.get(path)?;
        let parsed = parse(&given.text()).map_err(|why| format!("{path}: {why}"));
        self.problems.take(&given.source, parsed)
    }

    fn parts(&self, path: &str) -> Vec<String> {
        self.settings.get(path).map(|given| given.parts.clone()).unwrap_or_default()
    }

    fn path(&self, path: &str) -> Option<PathBuf> {
        self.settings.get(path).map(|given| PathBuf::from(given.text()))
    }

    /// A list that is given and names nothing would switch off what it is for.
    fn tell_empty_lists(&mut self, routes: &[Entry]) {
        // These two have words of their own for it.
        let told = ["scope.from", "defaults.methods"];
        let lists = SETTINGS.iter().filter(|setting| matches!(setting.kind, Kind::List | Kind::Secrets));
        let paths = lists.map(|setting| setting.path).filter(|path| !told.contains(path));
        let settings = paths.filter_map(|path| Some((path, self.settings.get(path)?)));
        let of_route = |route: &Entry| {
            let values = LISTS.iter().filter_map(|name| Some((*name, route.values.get(name)?.clone())));
            values.collect::<Vec<_>>()
        };
        let of_routes: Vec<(&str, Given)> = routes.iter().flat_map(of_route).collect();
        for (name, given) in settings.chain(of_routes.iter().map(|(name, given)| (*name, given))) {
            if given.names_nothing() {
                self.problems.add(
                    &given.source,
                    format!("{name}: the list is empty, or a name in it is; leave {name} out, or name what is meant"),
                );
            }
        }
    }

    fn tell_empty_files(&mut self) {
        for setting in SETTINGS.iter().filter(|setting| setting.value == "FILE") {
            if let Some(given) =
                self.settings.get(setting.path).filter(|given| given.text().trim().is_empty())
            {
                let why = format!("{}: it is empty; leave it out, or name a file", setting.path);
                self.problems.add(&given.source, why);
            }
        }
    }

    /// `None` only together with a problem.
    fn load(&mut self, file: &Everything, shown: String) -> Option<Config> {
        self.tell_empty_lists(&file.routes);
        self.tell_empty_files();
        let listen = self.read("listen", address);
        let admin = self.read("admin", |text| match text {
            "off" => Ok(None),
            // What was given may be the token.
            text if !text.contains(':') => {
                Err("it is not an address, nor \"off\"; write host and port, for instance \"127.0.0.1:8081\""
                    .into())
            }
            text => address(text).map(Some),
        });
        if let (Some(listen), Some(Some(admin))) = (listen, admin)
            && listen == admin
            && listen.port() != 0
        {
            let source = self.source("admin");
            self.problems.add(
                &source,
                format!("admin: {admin} is the same address as that of listen; choose another port"),
            );
        }
        let store = self.read("store", |url| stores::check(url).map(|()| url.to_owned()));
        let strict = self.read("strict", rules::yes);
        if let (Some(url), Some(true)) = (&store, strict) {
            let source = self.source("strict");
            self.problems.take(&source, stores::check_strict(url).map_err(|why| format!("strict: {why}")));
        }
        let target = self.read("upstream", Target::parse);
        let forwards: Arc<[Forward]> =
            file.forwards.iter().filter_map(|entry| Forward::read(entry, self.problems)).collect();
        forward::tell_hidden(&forwards, self.problems);
        if !self.settings.contains_key("upstream") && file.forwards.is_empty() {
            self.problems.add(
                &Source::Nowhere,
                "there is no upstream: add --upstream http://127.0.0.1:9000, the service to protect",
            );
        }
        let limits = self.limits();
        let scope = self.scope(&forwards);
        let patience = limits.map_or(Duration::from_secs(30), |limits| limits.body_timeout);
        let rules = self.reader(None).rules(patience);
        let routes: Vec<Route> = file.routes.iter().filter_map(|entry| self.route(entry, patience)).collect();
        if let Some(memory) = limits.map(|limits| limits.memory) {
            // A quarter is a reserve, and a body may take no more than the rest: nor may an answer, or it could not be replayed.
            let largest = routes.iter().map(|route| &route.rules).chain([&rules]);
            let larger = |rules: &Rules| rules.options.max_request.max(rules.options.max_response);
            let largest = largest.map(larger).max().unwrap_or_default();
            if largest > memory / 4 * 3 {
                let source = self.source("limits.memory");
                self.problems.add(&source, format!(
                    "limits.memory: {memory} bytes are too few for a body of max_request or max_response ({largest} bytes); a quarter of it is a reserve, so make it at least {}MiB",
                    largest.div_ceil(3).saturating_mul(4).div_ceil(1 << 20)
                ));
            }
        }
        let methods = self.methods();
        self.try_out(&rules, &routes, &methods);
        let tls = self.tls();
        let ca = self.path("upstream_tls.ca");
        let targets = target.iter().chain(forwards.iter().map(|forward| &forward.target));
        let needed = targets.into_iter().any(|target| target.speech == Speech::Tls);
        let source = self.source("upstream_tls.ca");
        let upstream_tls = self.problems.take(&source, tls::client(ca.as_deref(), needed));
        let upstream_ca = ca.and_then(|path| std::fs::read(path).ok());
        let trust_forwarded = self.read("trust_forwarded", rules::yes);
        let tokens = self.tokens();
        let admin_token = self.read("admin_token", |text| admin::check_token(text).map(str::to_owned));
        let admin_token_file = self.path("admin_token_file");
        if let Some(Some(address)) = admin
            && !address.ip().is_loopback()
            && !self.settings.contains_key("admin_token")
            && admin_token_file.is_none()
        {
            let source = self.source("admin");
            self.problems.add(&source, format!(
                "the admin API on {address} can be reached from other machines: set admin_token_file or ONLYONCE_ADMIN_TOKEN first, or listen on 127.0.0.1"
            ));
        }
        // Nobody needs it where there is no admin API.
        if let (None, Some(file), Some(Some(_))) = (&admin_token, &admin_token_file, admin) {
            let source = self.source("admin_token_file");
            self.problems.take(&source, admin::check_token_file(file));
        }
        let scope = scope?;
        let mut warnings = warnings(&scope, &methods, &rules);
        let uses = Uses {
            jwt: scope.reads_tokens(),
            admin: !matches!(admin, Some(None)),
            store: store.as_deref(),
            targets: target.iter().chain(forwards.iter().map(|forward| &forward.target)).collect(),
            rules: routes.iter().map(|route| &route.rules).chain([&rules]).collect(),
        };
        warnings.extend(uses.warnings(self.settings));
        if admin_token.is_some() && admin_token_file.is_some() {
            warnings.push(
                "admin_token and admin_token_file are both given: the token counts, and the file is not read"
                    .into(),
            );
        }
        Some(Config {
            listen: listen?,
            admin: admin?,
            store: store?,
            strict: strict?,
            target,
            forwards,
            scope: Arc::new(scope),
            rules,
            routes,
            methods,
            limits: limits?,
            tls: tls?,
            upstream_tls: upstream_tls?,
            upstream_ca,
            admin_token,
            admin_token_file,
            audit_log: self.path("audit_log"),
            trust_forwarded: trust_forwarded?,
            tokens: tokens?,
            shown,
            warnings,
            given: file.clone(),
        })
    }

    fn reader<'b>(&'b mut self, route: Option<&'b Entry>) -> rules::Reader<'b> {
        rules::Reader { route, settings: self.settings, problems: self.problems }
    }

    fn limits(&mut self) -> Option<Limits> {
        // The body of a call with a key is waited for, for an hour at most.
        let span = |text: &str| units::span(text, Duration::from_millis(1), Duration::from_secs(3600));
        let count = |text: &str| match text.parse() {
            Ok(count) if count > 0 => Ok(count),
            _ => Err(format!("{text:?} is not a number above 0")),
        };
        let max_body = |text: &str| match text {
            "unlimited" => Ok(None),
            text => match units::size(text)? {
                0 => Err("0 would refuse every body; write a size, or \"unlimited\"".to_owned()),
                bytes => Ok(Some(bytes)),
            },
        };
        let (connections, header, body, idle) = (
            self.read("limits.connections", count),
            self.read("limits.header_timeout", span),
            self.read("limits.body_timeout", span),
            self.read("limits.idle_timeout", span),
        );
        let max_head = |text: &str| {
            units::size(text).and_then(|bytes| {
                if bytes < 8 << 10 {
                    Err(format!("{text:?} is below 8KiB, which is less than usual requests need"))
                } else if bytes > 16 << 20 {
                    Err(format!("{text:?} is above 16MiB, and every connection may take as much"))
                } else {
                    Ok(bytes)
                }
            })
        };
        let (max_head, max_body) =
            (self.read("limits.max_head", max_head), self.read("limits.max_body", max_body));
        let keep_free = self.read("limits.keep_free", units::size);
        let memory = self.read("limits.memory", |text| match units::size(text)? {
            bytes if bytes < 8 << 20 => {
                Err(format!("{text:?} is below 8MiB, which is less than a few callers need"))
            }
            bytes => Ok(bytes),
        });
        let upstream_idle = self.read("limits.upstream_idle", |text| match text {
            "auto" => Ok(None),
            span => units::span(span, Duration::ZERO, Duration::from_secs(60)).map(Some),
        });
        let (connect, response, drain) = (
            self.read("limits.connect_timeout", span),
            self.read("limits.response_timeout", span),
            self.read("limits.drain", units::duration),
        );
        Some(Limits {
            connections: connections?,
            header_timeout: header?,
            body_timeout: body?,
            idle_timeout: idle?,
            memory: memory?,
            max_head: max_head?,
            max_body: max_body?,
            connect_timeout: connect?,
            response_timeout: response?,
            keep_free: keep_free?,
            upstream_idle: upstream_idle?,
            drain: drain?,
        })
    }

    /// The methods that are protected everywhere.
    fn methods(&mut self) -> Vec<Method> {
        let (parts, source) = (self.parts("defaults.methods"), self.source("defaults.methods"));
        let names: Vec<&String> = parts.iter().filter(|name| !name.trim().is_empty()).collect();
        if names.is_empty() {
            self.problems.add(
                &source,
                "methods: the list is empty, so that no call would be protected; leave it out for POST and PATCH",
            );
        }
        let read = names.into_iter().map(|name| rules::method(name).map_err(|why| format!("methods: {why}")));
        read.filter_map(|method| self.problems.take(&source, method)).collect()
    }

    fn scope(&mut self, forwards: &Arc<[Forward]>) -> Option<ScopeRule> {
        let Some(given) = self.settings.get("scope.from") else {
            self.problems.add(&Source::Nowhere, ScopeRule::CHOICES);
            return None;
        };
        let jwt = self.jwt();
        let rule = ScopeRule::parse(&given.parts, jwt, forwards);
        let wrong = rule.as_ref().err().into_iter().flatten();
        wrong.for_each(|why| self.problems.add(&given.source, format!("scope: {why}")));
        rule.ok()
    }

    fn tokens(&mut self) -> Option<TokenSettings> {
        let kind = self.read("tokens.kind", TokenKind::parse);
        let ttl = self.read("tokens.ttl", tokens::lifetime);
        let secrets = match (self.settings.get("tokens.secret"), self.path("tokens.secret_file")) {
            (Some(given), Some(_)) => {
                self.problems
                    .add(&given.source, "tokens.secret and tokens.secret_file: one of them is enough");
                None
            }
            (Some(given), None) => {
                let keys = tokens::parse_keys(given.parts.iter().map(String::as_str));
                let keys = keys.map_err(|why| format!("tokens.secret: {why}"));
                self.problems.take(&given.source, keys).map(Secrets::Given)
            }
            (None, Some(file)) => {
                // One that is not there yet is made at the start.
                let known = if file.exists() { read_keys(&file).map(drop) } else { Ok(()) };
                let source = self.source("tokens.secret_file");
                self.problems.take(&source, known).map(|()| Secrets::File(file))
            }
            (None, None) => Some(Secrets::Nowhere),
        };
        Some(TokenSettings { kind: kind?, ttl: ttl?, secrets: secrets? })
    }

    fn jwt(&mut self) -> Option<crate::gateway::jwt::Verifier> {
        let (key, jwks) = (self.path("scope.jwt.key"), self.path("scope.jwt.jwks"));
        let source = match (&key, &jwks) {
            (None, None) => return None,
            (Some(_), _) => self.source("scope.jwt.key"),
            (None, Some(_)) => self.source("scope.jwt.jwks"),
        };
        let files = crate::gateway::jwt::Files {
            key: key.as_deref(),
            jwks: jwks.as_deref(),
            algorithms: &self.parts("scope.jwt.algorithms"),
            issuer: &self.parts("scope.jwt.issuer"),
            audience: &self.parts("scope.jwt.audience"),
        };
        let verifier = crate::gateway::jwt::Verifier::load(&files);
        self.problems.take(&source, verifier)
    }

    fn route(&mut self, entry: &Entry, patience: Duration) -> Option<Route> {
        let rules = self.reader(Some(entry)).rules(patience);
        let Some(pattern) = entry.values.get("match") else {
            self.problems
                .add(&entry.source, "this [[route]] matches nothing: add match = \"POST /payments\"");
            return None;
        };
        let source = pattern.source.clone();
        let pattern = self.problems.take(&source, rules::pattern(&pattern.text()))?;
        Some(Route { pattern, source, rules })
    }

    /// What the layer itself has to say about each route.
    fn try_out(&mut self, rules: &Rules, routes: &[Route], methods: &[Method]) {
        let once = Idempotency::new(MemoryStore::new());
        let layer = || {
            let builder = IdempotencyLayer::builder(once.clone(), onlyonce::http::ScopeFrom::nobody());
            // Whether the memory is enough for them is looked at apart.
            let memory = MemoryBudget::new(usize::MAX);
            builder.options(rules.without_question()).methods(methods.to_vec()).memory(memory)
        };
        // What is asked is of no interest here, only that somebody can be.
        let options = |rules: &Rules| {
            let mut options = rules.without_question();
            options.recover = rules.ask.as_ref().map(|_| Recover::new(async |_| Recovery::Unknown));
            options
        };
        // The usual options are at fault in every route: told once.
        if let Err(error) = layer().build() {
            let said = error.to_string();
            let culprit = said.split([' ', ':']).next().unwrap_or_default().to_owned();
            let source = self.source(&format!("defaults.{culprit}"));
            self.problems.add(&source, said);
            return;
        }
        let mut accepted: Vec<&Route> = Vec::new();
        for route in routes {
            accepted.push(route);
            let declared = accepted
                .iter()
                .fold(layer(), |layer, route| layer.route(&route.pattern, options(&route.rules)));
            if let Err(error) = declared.build() {
                accepted.pop();
                self.problems.add(&route.source, error.to_string());
            }
        }
    }

    fn tls(&mut self) -> Option<Option<Arc<rustls::ServerConfig>>> {
        let (cert, key) = (self.path("tls.cert"), self.path("tls.key"));
        let (cert, key): (&Path, &Path) = match (&cert, &key) {
            (None, None) => return Some(None),
            (Some(cert), Some(key)) => (cert, key),
            (Some(_), None) => {
                let source = self.source("tls.cert");
                self.problems.add(&source, "tls.cert needs tls.key beside it");
                return None;
            }
            (None, Some(_)) => {
                let source = self.source("tls.key");
                self.problems.add(&source, "tls.key needs tls.cert beside it");
                return None;
            }
        };
        let source = self.source("tls.cert");
        self.problems.take(&source, tls::server(cert, key)).map(Some)
    }
}

/// What is valid, and probably not meant.
fn warnings(scope: &ScopeRule, methods: &[Method], rules: &Rules) -> Vec<String> {
    let mut warnings: Vec<String> = scope.warnings().into_iter().map(Into::into).collect();
    if !methods.is_empty() && !methods.contains(&Method::POST) {
        warnings.push(
            "methods leaves out POST: POST requests are not protected, but on routes that say so".into(),
        );
    }
    if rules.asks() {
        warnings.push(
            "on_lapse is \"ask\" in [defaults]: requests that match no [[route]] with an ask of its own are held instead"
                .into(),
        );
    }
    warnings
}

/// Variables with our name that mean nothing, each with a guess. Those that Kubernetes sets for a service called "onlyonce" are no mistake.
pub(crate) fn unknown_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    const OTHERS: [&str; 2] = ["ONLYONCE_CONFIG", "ONLYONCE_ADMIN_URL"];
    const FOREIGN: [&str; 3] = ["ONLYONCE_TEST_", "ONLYONCE_SERVICE_", "ONLYONCE_PORT"];
    let known: Vec<String> =
        SETTINGS.iter().map(settings::Setting::variable).chain(OTHERS.map(String::from)).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let is_strange = |name: &String| {
        name.starts_with("ONLYONCE_")
            && !known.contains(&name.as_str())
            && !FOREIGN.iter().any(|foreign| name.starts_with(foreign))
    };
    names
        .filter(is_strange)
        .map(|name| format!("the variable {name} means nothing; {}", suggest::near(&name, &known)))
        .collect()
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong =
        || format!("{text:?} is not an address; write host and port, for instance \"127.0.0.1:8080\"");
    text.to_socket_addrs().map_err(|_| wrong())?.next().ok_or_else(wrong)
}

#[cfg(test)]
mod tests;
