//! `#[keep]`, `#[release]` and `#[unknown]`: exactly one of them on every case.

use syn::{Attribute, Error, Ident, Meta};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Annotation {
    Keep,
    Release,
    Unknown,
}

impl Annotation {
    /// The annotation of the case with this name.
    pub(crate) fn of(name: &Ident, attributes: &[Attribute]) -> Result<Self, Error> {
        let mut found = None;
        for attribute in attributes {
            let Some(annotation) = Self::read(attribute)? else { continue };
            if found.replace(annotation).is_some() {
                return Err(Error::new_spanned(
                    attribute,
                    format!("`{name}` has more than one annotation; {CHOICES}"),
                ));
            }
        }
        found.ok_or_else(|| {
            Error::new(
                name.span(),
                format!("say what `{name}` means for a retry, which only you can know; {CHOICES}"),
            )
        })
    }

    fn read(attribute: &Attribute) -> Result<Option<Self>, Error> {
        let path = attribute.path();
        let annotation = if path.is_ident("keep") {
            Self::Keep
        } else if path.is_ident("release") {
            Self::Release
        } else if path.is_ident("unknown") {
            Self::Unknown
        } else {
            return Ok(None);
        };
        match &attribute.meta {
            Meta::Path(_) => Ok(Some(annotation)),
            _ => Err(Error::new_spanned(&attribute.meta, "this annotation has no arguments")),
        }
    }
}

const CHOICES: &str = "choose one:
    #[keep]     it is an answer, such as a business refusal: every retry gets it again
    #[release]  nothing happened: a retry runs the call again
    #[unknown]  nobody can know whether it happened: a retry is told so";
