//! What stands in the parentheses of `#[idempotent(…)]`.

use proc_macro2::{Span, TokenStream};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Error, Expr, Ident, LitStr, Path, Token, parse_quote};

use crate::suggest;

const KNOWN: &[&str] = &["engine", "operation", "key", "scope", "input", "permit", "detached", "crate"];

pub(crate) struct Arguments {
    pub(crate) engine: Expr,
    pub(crate) key: Expr,
    pub(crate) options: Options,
}

/// What may be left out.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) operation: Option<LitStr>,
    pub(crate) scope: Option<Expr>,
    pub(crate) input: Option<Expr>,
    pub(crate) permit: Option<Ident>,
    pub(crate) detached: Option<Detached>,
    krate: Option<Path>,
}

/// The body goes on when its caller goes away.
#[derive(Clone, Copy)]
pub(crate) struct Detached;

/// The arguments as far as they were read.
#[derive(Default)]
struct Draft {
    engine: Option<Expr>,
    key: Option<Expr>,
    options: Options,
}

impl Arguments {
    pub(crate) fn parse(tokens: TokenStream) -> Result<Self, Error> {
        let missing = |what: &str| Error::new(Span::call_site(), what);
        let no_engine = || {
            missing("`engine = …` is missing: the `Idempotency` that keeps the records, such as `self.once`")
        };
        let no_key =
            || missing("`key = …` is missing: what names this call among its retries, such as `order.id`");
        let Draft { engine, key, options } = Draft::parse.parse2(tokens)?;
        match (engine, key) {
            (Some(engine), Some(key)) => Ok(Self { engine, key, options }),
            (None, Some(_)) => Err(no_engine()),
            (Some(_), None) => Err(no_key()),
            (None, None) => {
                let mut both = no_engine();
                both.combine(no_key());
                Err(both)
            }
        }
    }

    /// Where this framework is found.
    pub(crate) fn krate(&self) -> Path {
        self.options.krate.clone().unwrap_or_else(|| parse_quote!(::onlyonce))
    }
}

impl Draft {
    fn parse(stream: ParseStream<'_>) -> Result<Self, Error> {
        let mut draft = Self::default();
        while !stream.is_empty() {
            let name = stream.call(Ident::parse_any)?;
            draft.argument(&name, stream)?;
            if !stream.is_empty() {
                stream.parse::<Token![,]>()?;
            }
        }
        Ok(draft)
    }

    fn argument(&mut self, name: &Ident, stream: ParseStream<'_>) -> Result<(), Error> {
        let options = &mut self.options;
        match name.to_string().as_str() {
            "engine" => put(&mut self.engine, name, || value(name, stream)),
            "key" => put(&mut self.key, name, || value(name, stream)),
            "operation" => put(&mut options.operation, name, || operation(name, stream)),
            "scope" => put(&mut options.scope, name, || value(name, stream)),
            "input" => put(&mut options.input, name, || value(name, stream)),
            "permit" => put(&mut options.permit, name, || value(name, stream)),
            "detached" => put(&mut options.detached, name, || detached(name, stream)),
            "crate" => put(&mut options.krate, name, || {
                equals(name, stream)?;
                stream.call(Path::parse_mod_style)
            }),
            other => Err(Error::new(name.span(), unknown(other))),
        }
    }
}

fn put<T>(slot: &mut Option<T>, name: &Ident, read: impl FnOnce() -> Result<T, Error>) -> Result<(), Error> {
    if slot.is_some() {
        return Err(Error::new(name.span(), format!("`{name}` is given twice")));
    }
    *slot = Some(read()?);
    Ok(())
}

fn equals(name: &Ident, stream: ParseStream<'_>) -> Result<(), Error> {
    if stream.peek(Token![=]) {
        return stream.parse::<Token![=]>().map(drop);
    }
    Err(Error::new(name.span(), format!("`{name}` needs a value: `{name} = …`")))
}

fn value<T: Parse>(name: &Ident, stream: ParseStream<'_>) -> Result<T, Error> {
    equals(name, stream)?;
    stream.parse()
}

fn detached(name: &Ident, stream: ParseStream<'_>) -> Result<Detached, Error> {
    if stream.peek(Token![=]) {
        return Err(Error::new(name.span(), format!("`{name}` takes no value: it is said or left out")));
    }
    Ok(Detached)
}

fn operation(name: &Ident, stream: ParseStream<'_>) -> Result<LitStr, Error> {
    equals(name, stream)?;
    let text: LitStr = stream.parse()?;
    if text.value().is_empty() {
        return Err(Error::new(text.span(), "an operation has a name"));
    }
    Ok(text)
}

fn unknown(name: &str) -> String {
    match suggest::nearest(name, KNOWN) {
        Some(meant) => format!("there is no argument `{name}`; did you mean `{meant}`?"),
        None => format!("there is no argument `{name}`; there are {}", KNOWN.join(", ")),
    }
}
