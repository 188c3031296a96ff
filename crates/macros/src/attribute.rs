//! `#[idempotent]`: wraps the body of a function into a call of the engine.

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Error, Expr, LitStr, parse2};

use crate::arguments::{Arguments, Detached, Options};
use crate::function::Function;

pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    wrap(arguments, item.clone()).unwrap_or_else(|error| {
        // The function stays, so that its callers are not reported as wrong too.
        let error = error.into_compile_error();
        quote!(#item #error)
    })
}

fn wrap(arguments: TokenStream, item: TokenStream) -> Result<TokenStream, Error> {
    let function = parse2(item)?;
    Ok(write(&Arguments::parse(arguments)?, &function))
}

fn write(arguments: &Arguments, function: &Function) -> TokenStream {
    let Function { attributes, visibility, signature, inner, .. } = function;
    // Mixed: our names are invisible to the user's code, and theirs can't shadow ours.
    let begin = call(arguments, function);
    let run = run(arguments, function);
    quote_spanned! {Span::mixed_site()=>
        #(#attributes)*
        #visibility #signature {
            #(#inner)*
            let call = #begin;
            #run
        }
    }
}

/// The call, described: everything that looks at the parameters, before the body takes them.
fn call(arguments: &Arguments, function: &Function) -> TokenStream {
    let Arguments { engine, key, options: Options { operation, scope, input, .. } } = arguments;
    let krate = arguments.krate();
    let name = &function.signature.ident;
    let operation = operation.clone().unwrap_or_else(|| LitStr::new(&name.unraw().to_string(), name.span()));
    let (engine, key) = (borrowed(engine), text(arguments, key));
    let scope = scope.iter().map(|scope| {
        let scope = text(arguments, scope);
        quote_spanned!(Span::mixed_site()=> let call = #krate::Call::scope(call, &#scope);)
    });
    let input = input.iter().map(|input| {
        let input = payload(input);
        quote_spanned!(Span::mixed_site()=> let call = #krate::Call::input(call, #input);)
    });
    quote_spanned! {Span::mixed_site()=>
        {
            let engine: &#krate::Idempotency = #engine;
            let call = #krate::Idempotency::call(engine, #operation, #key);
            #(#scope)*
            #(#input)*
            call
        }
    }
}

/// The body, run. The types are said, so that `?` in the body knows what to convert to.
fn run(arguments: &Arguments, function: &Function) -> TokenStream {
    let Function { signature, returns, body, .. } = function;
    // The compiler reports a type that lacks something once a place: here all places are one. What a detached body may not
    // borrow is no fault of its return type.
    let at = match arguments.options.detached {
        Some(Detached) => signature.ident.span(),
        None => returns.span(),
    };
    let krate = located(arguments.krate().to_token_stream(), at);
    let returns = located(returns.to_token_stream(), at);
    let at = Span::mixed_site().located_at(at);
    let run = match (arguments.options.detached, &arguments.options.permit) {
        (None, None) => "run",
        (None, Some(_)) => "run_with",
        (Some(Detached), None) => "run_detached",
        (Some(Detached), Some(_)) => "run_detached_with",
    };
    let run = Ident::new(run, at);
    let takes_permit =
        arguments.options.permit.iter().map(|name| quote_spanned!(at=> move |#name: #krate::Permit|));
    quote_spanned! {at=>
        #krate::Call::#run::<
            <#returns as #krate::__private::Outcome>::Value,
            <#returns as #krate::__private::Outcome>::Error,
            _,
        >(call, #(#takes_permit)* async move #body)
        .await
    }
}

/// The same tokens with the same meaning, reported elsewhere.
fn located(tokens: TokenStream, at: Span) -> TokenStream {
    let relocated = tokens.into_iter().map(|mut token| {
        if let TokenTree::Group(group) = &token {
            let mut moved = Group::new(group.delimiter(), located(group.stream(), at));
            moved.set_span(group.span());
            token = TokenTree::Group(moved);
        }
        token.set_span(token.span().located_at(at));
        token
    });
    relocated.collect()
}

/// Parentheses, because an expression may bind more loosely than `&` does.
fn borrowed(expression: &Expr) -> TokenStream {
    let span = Span::mixed_site().located_at(expression.span());
    quote_spanned!(span=> &(#expression))
}

fn text(arguments: &Arguments, expression: &Expr) -> TokenStream {
    let (krate, borrowed) = (arguments.krate(), borrowed(expression));
    let span = Span::mixed_site().located_at(expression.span());
    quote_spanned!(span=> #krate::__private::text(#borrowed))
}

/// A tuple of parameters would take them from the body, so that it becomes a tuple of references: the digest is the same.
fn payload(input: &Expr) -> TokenStream {
    let Expr::Tuple(tuple) = input else { return borrowed(input) };
    let parts = tuple.elems.iter().map(payload);
    quote_spanned!(Span::mixed_site()=> &(#(#parts,)*))
}
