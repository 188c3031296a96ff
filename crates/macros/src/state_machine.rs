//! `#[derive(StateMachine)]`: the moves, checked and put down as a table.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::{Attribute, Data, DeriveInput, Error, Fields, Ident, Lit, Path, Token, Variant, parse_quote};

use crate::suggest::nearest;

/// One state.
struct State {
    name: Ident,
    targets: Vec<Ident>,
    stored: Stored,
}

enum Stored {
    Text(String, Span),
    Integer(i64, Span),
}

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream, Error> {
    let krate = krate(&input.attrs)?;
    let states = states(input)?;
    check(&states)?;
    let name = &input.ident;
    let title = name.unraw().to_string();
    let names: Vec<&Ident> = states.iter().map(|state| &state.name).collect();
    let titles = names.iter().map(|name| name.unraw().to_string());
    let targets = states.iter().map(|State { targets, .. }| quote!(&[#(Self::#targets),*]));
    let stored = states.iter().map(|state| match &state.stored {
        Stored::Text(text, _) => quote!(#krate::Stored::Text(#text)),
        Stored::Integer(number, _) => quote!(#krate::Stored::Integer(#number)),
    });
    Ok(quote_spanned! {Span::mixed_site()=>
        #[automatically_derived]
        impl #krate::StateMachine for #name {
            const NAME: &'static ::core::primitive::str = #title;

            const STATES: &'static [Self] = &[#(Self::#names),*];

            fn targets(self) -> &'static [Self] {
                match self { #(Self::#names => #targets,)* }
            }

            fn name(self) -> &'static ::core::primitive::str {
                match self { #(Self::#names => #titles,)* }
            }

            fn stored(self) -> #krate::Stored {
                match self { #(Self::#names => #stored,)* }
            }
        }
    })
}

fn krate(attributes: &[Attribute]) -> Result<Path, Error> {
    let mut krate = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("machine")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("there is only `crate = some::path`"));
            }
            krate = Some(meta.value()?.call(Path::parse_mod_style)?);
            Ok(())
        })?;
    }
    Ok(krate.unwrap_or_else(|| parse_quote!(::onlyonce)))
}

fn states(input: &DeriveInput) -> Result<Vec<State>, Error> {
    let Data::Enum(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, "the states of a machine are the variants of an enum"));
    };
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &input.generics,
            "a machine has no parameters: its states are all known",
        ));
    }
    if data.variants.is_empty() {
        return Err(Error::new_spanned(
            &input.ident,
            "a machine has at least one state, the first is where all begins",
        ));
    }
    // All that is wrong is said at once.
    let (mut states, mut errors) = (Vec::new(), None::<Error>);
    for variant in &data.variants {
        match (state(variant), &mut errors) {
            (Ok(state), _) => states.push(state),
            (Err(error), Some(errors)) => errors.combine(error),
            (Err(error), errors) => *errors = Some(error),
        }
    }
    errors.map_or(Ok(states), Err)
}

fn state(variant: &Variant) -> Result<State, Error> {
    let name = variant.ident.clone();
    if !matches!(variant.fields, Fields::Unit) {
        return Err(Error::new_spanned(
            &variant.fields,
            format!("the state `{name}` is stored in one column: it can't have fields"),
        ));
    }
    let (mut targets, mut stored) = (None, None);
    for attribute in &variant.attrs {
        if attribute.path().is_ident("to") {
            let moves = attribute.parse_args_with(Punctuated::<Ident, Token![,]>::parse_terminated)?;
            if targets.replace(moves.into_iter().collect::<Vec<_>>()).is_some() {
                return Err(Error::new_spanned(attribute, "all moves of a state are in one `#[to(…)]`"));
            }
        } else if attribute.path().is_ident("stored") {
            let literal = attribute.parse_args::<Lit>()?;
            let value = match &literal {
                Lit::Str(text) => Stored::Text(text.value(), literal.span()),
                Lit::Int(number) => Stored::Integer(number.base10_parse()?, literal.span()),
                other => {
                    return Err(Error::new_spanned(
                        other,
                        "a state is stored as text or as a whole number: `#[stored(\"paid\")]`, `#[stored(2)]`",
                    ));
                }
            };
            if stored.replace(value).is_some() {
                return Err(Error::new_spanned(attribute, format!("`{name}` is stored twice")));
            }
        }
    }
    let stored = stored.unwrap_or_else(|| Stored::Text(snake(&name.unraw().to_string()), name.span()));
    Ok(State { name, targets: targets.unwrap_or_default(), stored })
}

fn check(states: &[State]) -> Result<(), Error> {
    let mut errors: Vec<Error> = Vec::new();
    for (place, state) in states.iter().enumerate() {
        for (other, target) in state.targets.iter().enumerate() {
            if *target == state.name {
                errors.push(Error::new(
                    target.span(),
                    format!("`{target}` may not become itself: every retry would be a move of its own"),
                ));
            } else if !states.iter().any(|state| state.name == *target) {
                errors.push(Error::new(target.span(), unknown(target, states)));
            } else if state.targets[..other].contains(target) {
                errors.push(Error::new(target.span(), format!("the move to `{target}` is there twice")));
            }
        }
        for earlier in &states[..place] {
            match (&earlier.stored, &state.stored) {
                (Stored::Text(one, _), Stored::Text(other, span)) if one == other => {
                    errors.push(Error::new(*span, same(&earlier.name, &state.name)));
                }
                (Stored::Integer(one, _), Stored::Integer(other, span)) if one == other => {
                    errors.push(Error::new(*span, same(&earlier.name, &state.name)));
                }
                (Stored::Text(..), Stored::Integer(_, span))
                | (Stored::Integer(..), Stored::Text(_, span)) => {
                    errors.push(Error::new(
                        *span,
                        format!(
                            "`{}` and `{}` are not stored alike: all states are text, or all have `#[stored(number)]`",
                            earlier.name, state.name
                        ),
                    ));
                    break;
                }
                _ => {}
            }
        }
    }
    errors
        .into_iter()
        .reduce(|mut all, error| {
            all.combine(error);
            all
        })
        .map_or(Ok(()), Err)
}

fn same(one: &Ident, other: &Ident) -> String {
    format!("`{one}` and `{other}` are stored as the same value")
}

fn unknown(target: &Ident, states: &[State]) -> String {
    let names: Vec<String> = states.iter().map(|state| state.name.to_string()).collect();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    match nearest(&target.to_string(), &known) {
        Some(meant) => format!("there is no state `{target}`; did you mean `{meant}`?"),
        None => format!("there is no state `{target}`; there are {}", names.join(", ")),
    }
}

/// `ReadyToShip` as `ready_to_ship`.
fn snake(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 4);
    for (place, letter) in name.char_indices() {
        if letter.is_uppercase() && place > 0 {
            text.push('_');
        }
        text.extend(letter.to_lowercase());
    }
    text
}
