//! The function under the attribute. Its body is carried through unread: what the compiler accepts there is its affair.

use proc_macro2::{Delimiter, Group, Span, TokenStream};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Attribute, Error, Ident, ReturnType, Signature, Token, Type, Visibility};

pub(crate) struct Function {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) signature: Signature,
    pub(crate) returns: Type,
    /// `#![…]` at the head of the body; they hold for the expressions in the arguments too.
    pub(crate) inner: Vec<Attribute>,
    pub(crate) body: Group,
}

impl Parse for Function {
    fn parse(stream: ParseStream<'_>) -> Result<Self, Error> {
        let attributes = stream.call(Attribute::parse_outer)?;
        let visibility = stream.parse()?;
        let signature: Signature = stream.parse().map_err(|error| {
            Error::new(error.span(), format!("`#[idempotent]` is for async functions and methods: {error}"))
        })?;
        let returns = returns(&signature)?;
        if signature.asyncness.is_none() {
            return Err(Error::new(
                signature.fn_token.span,
                "`#[idempotent]` is for `async fn`: the record is written before and after the body runs \
                 (under `#[async_trait]`, put it on a method outside of the trait)",
            ));
        }
        if stream.peek(Token![;]) {
            return Err(Error::new(
                signature.ident.span(),
                "`#[idempotent]` needs a body: put it on the implementation",
            ));
        }
        let block;
        let brace = syn::braced!(block in stream);
        let inner = block.call(Attribute::parse_inner)?;
        let mut body = Group::new(Delimiter::Brace, block.parse::<TokenStream>()?);
        body.set_span(brace.span.join());
        Ok(Self { attributes, visibility, signature, returns, inner, body })
    }
}

/// Refuses what can be no `Result` by its looks; the compiler sees through aliases and refuses the rest.
fn returns(signature: &Signature) -> Result<Type, Error> {
    let refused = |span: Span| {
        let why =
            "an idempotent function returns a `Result`: a caller must be told when the call did not run";
        Err(Error::new(span, why))
    };
    match &signature.output {
        ReturnType::Default => refused(signature.ident.span()),
        ReturnType::Type(_, returns) => match &**returns {
            Type::Path(path) if path.path.segments.last().is_some_and(|last| no_result(&last.ident)) => {
                refused(path.span())
            }
            Type::Path(_) | Type::Group(_) | Type::Paren(_) | Type::Macro(_) => Ok((**returns).clone()),
            other => refused(other.span()),
        },
    }
}

fn no_result(name: &Ident) -> bool {
    const USUAL: &[&str] = &[
        "Option", "Vec", "String", "Box", "Arc", "Pin", "bool", "char", "str", "u8", "u16", "u32", "u64",
        "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32", "f64",
    ];
    USUAL.iter().any(|usual| name == usual)
}
