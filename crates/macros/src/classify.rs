//! `#[derive(Classify)]`: the three methods of the trait, from the annotations.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Error, Field, Fields, Generics, Path, Type, WhereClause, parse_quote,
};

use crate::annotation::Annotation;

/// A variant, or the whole of a struct.
struct Case<'a> {
    name: String,
    /// `Self::Declined`, or `Self`.
    path: TokenStream,
    annotation: Annotation,
    fields: &'a Fields,
}

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream, Error> {
    let krate = krate(&input.attrs)?;
    let cases = cases(input)?;
    let mut generics = input.generics.clone();
    bound_kept_fields(&mut generics, &cases, &krate);
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let name = &input.ident;
    let (classify, save, revive) = (classify(&cases, &krate), save(&cases, &krate), revive(&cases, &krate));
    Ok(quote_spanned! {Span::mixed_site()=>
        #[automatically_derived]
        impl #impl_generics #krate::Classify for #name #type_generics #where_clause {
            fn classify(&self) -> #krate::Class { #classify }

            fn save(&self) -> ::core::result::Result<#krate::Bytes, #krate::codec::CodecError> { #save }

            fn revive(saved: #krate::Bytes) -> ::core::result::Result<Self, #krate::codec::CodecError> { #revive }
        }
    })
}

fn krate(attributes: &[Attribute]) -> Result<Path, Error> {
    let mut krate = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("classify")) {
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

fn cases(input: &DeriveInput) -> Result<Vec<Case<'_>>, Error> {
    let case = |name: &Ident, path, attributes: &[Attribute], fields| {
        let annotation = Annotation::of(name, attributes)?;
        Ok(Case { name: name.unraw().to_string(), path, annotation, fields })
    };
    match &input.data {
        Data::Struct(data) => Ok(vec![case(&input.ident, quote!(Self), &input.attrs, &data.fields)?]),
        Data::Enum(data) => {
            // All that is wrong is said at once.
            let (mut cases, mut errors) = (Vec::new(), None::<Error>);
            for variant in &data.variants {
                let name = &variant.ident;
                match (case(name, quote!(Self::#name), &variant.attrs, &variant.fields), &mut errors) {
                    (Ok(case), _) => cases.push(case),
                    (Err(error), Some(errors)) => errors.combine(error),
                    (Err(error), errors) => *errors = Some(error),
                }
            }
            errors.map_or(Ok(cases), Err)
        }
        Data::Union(data) => {
            Err(Error::new(data.union_token.span, "a union does not know which of its cases it is"))
        }
    }
}

fn classify(cases: &[Case<'_>], krate: &Path) -> TokenStream {
    let arms = cases.iter().map(|Case { path, annotation, .. }| {
        let class = match annotation {
            Annotation::Keep => quote!(Keep),
            Annotation::Release => quote!(Release),
            Annotation::Unknown => quote!(Unknown),
        };
        quote!(#path { .. } => #krate::Class::#class,)
    });
    quote_spanned!(Span::mixed_site()=> match *self { #(#arms)* })
}

fn save(cases: &[Case<'_>], krate: &Path) -> TokenStream {
    let kept = quote!(#krate::__private::Kept);
    let arms = cases.iter().map(|case| {
        let Case { name, path, fields, .. } = case;
        if case.annotation != Annotation::Keep {
            return quote! { #path { .. } => ::core::result::Result::Err(#kept::not_kept(#name)), };
        }
        let members = fields.members();
        let values = values(fields);
        let mut saved = quote!(#kept::new(#name));
        for ((field, value), name) in fields.iter().zip(&values).zip(names(fields)) {
            let ty = &field.ty;
            let span = Span::mixed_site().located_at(ty.span());
            saved = quote_spanned!(span=> #kept::with::<#ty>(#saved, #name, #value)?);
        }
        quote! { #path { #(#members: ref #values),* } => #kept::save(#saved), }
    });
    quote_spanned!(Span::mixed_site()=> match *self { #(#arms)* })
}

fn revive(cases: &[Case<'_>], krate: &Path) -> TokenStream {
    let kept = quote!(#krate::__private::Kept);
    let arms = cases.iter().filter(|case| case.annotation == Annotation::Keep).map(|case| {
        let Case { name, path, fields, .. } = case;
        let values = fields.iter().zip(fields.members()).zip(names(fields)).map(|((field, member), name)| {
            let ty = &field.ty;
            let span = Span::mixed_site().located_at(ty.span());
            quote_spanned!(span=> #member: #kept::field::<#ty>(&kept, #name)?)
        });
        quote!(#name => ::core::result::Result::Ok(#path { #(#values),* }),)
    });
    quote_spanned! {Span::mixed_site()=>
        let kept = #kept::read(&saved)?;
        match #kept::name(&kept) {
            #(#arms)*
            stranger => ::core::result::Result::Err(#kept::not_kept(stranger)),
        }
    }
}

fn names(fields: &Fields) -> impl Iterator<Item = String> + '_ {
    fields.members().map(|member| match member {
        syn::Member::Named(name) => name.unraw().to_string(),
        syn::Member::Unnamed(index) => index.index.to_string(),
    })
}

fn values(fields: &Fields) -> Vec<Ident> {
    (0..fields.len()).map(|place| format_ident!("field_{place}", span = Span::mixed_site())).collect()
}

/// Only fields whose type depends on a parameter need a bound; the others are judged where they are stored, which makes
/// the better message.
fn bound_kept_fields(generics: &mut Generics, cases: &[Case<'_>], krate: &Path) {
    let parameters: Vec<Ident> = generics.type_params().map(|parameter| parameter.ident.clone()).collect();
    let kept = cases.iter().filter(|case| case.annotation == Annotation::Keep);
    let generic = kept
        .flat_map(|case| case.fields)
        .map(|Field { ty, .. }| ty)
        .filter(|ty| mentions(&ty.to_token_stream(), &parameters));
    let types: Vec<&Type> = generic.collect();
    if !types.is_empty() {
        let WhereClause { predicates, .. } = generics.make_where_clause();
        for ty in types {
            predicates.push(parse_quote! {
                #ty: #krate::__private::Serialize + #krate::__private::DeserializeOwned
            });
        }
    }
}

fn mentions(tokens: &TokenStream, parameters: &[Ident]) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Ident(ident) => parameters.contains(&ident),
        TokenTree::Group(group) => mentions(&group.stream(), parameters),
        _ => false,
    })
}
