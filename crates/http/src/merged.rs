//! Parameters that some services read from query and body alike: PHP's `$_REQUEST` and the `params` of Rails merge both, each with
//! its own idea of which one wins. So what a call is known by must not be said differently in the other place.

use std::borrow::Cow;

use http::header::CONTENT_TYPE;
use http::request::Parts;
use onlyonce_core::InputError;
use onlyonce_core::json::Json;

use crate::key::{KeyFrom, is_form};
use crate::{multipart, pairs};

/// What a place says.
#[derive(Debug, PartialEq, Eq)]
enum Said<'a> {
    Nothing,
    Text(Cow<'a, str>),
    /// Something, and nobody can be sure what.
    Unclear,
}

/// Whether the other place than that of the key says something else by the key's name.
pub(crate) fn check_key(key: &KeyFrom, parts: &Parts, body: &[u8]) -> Result<(), InputError> {
    match key {
        KeyFrom::Query(name) => agree(name, &in_query(parts, name), &in_body(parts, body, name)),
        KeyFrom::Form(name) => agree(name, &in_body(parts, body, name), &in_query(parts, name)),
        KeyFrom::Json(pointer) if parts.uri.query().is_some() => {
            let Ok(document) = Json::parse(body) else { return Ok(()) };
            let Some((name, own, other)) = both(pointer, parts, &document) else { return Ok(()) };
            agree(&name, &own, &other)
        }
        KeyFrom::Header(_) | KeyFrom::Sequence(_) | KeyFrom::Json(_) => Ok(()),
    }
}

/// The same for a member of the JSON body that the fingerprint is made of. One that only the query says is none of it, and to a service
/// that merges both it is there.
pub(crate) fn check_member(pointer: &str, parts: &Parts, document: &Json<'_>) -> Result<(), InputError> {
    match both(pointer, parts, document) {
        None | Some((_, _, Said::Nothing)) => Ok(()),
        Some((name, Said::Nothing, _)) => Err(InputError::new(format!(
            "{name} is in the query and not in the body; some services take it from there: send it in the body"
        ))),
        Some((name, own, other)) => agree(&name, &own, &other),
    }
}

/// The name of a member, and what body and query say by it. What is deeper goes by the name of what it is in: a query names it in several
/// ways (`order[item]`, `order.item`), and may replace all of the member around it, so nobody compares them.
fn both<'a>(pointer: &str, parts: &'a Parts, document: &Json<'a>) -> Option<(String, Said<'a>, Said<'a>)> {
    let (path, query) = (pointer.strip_prefix('/')?, parts.uri.query()?);
    let (first, is_deeper) = path.split_once('/').map_or((path, false), |(first, _)| (first, true));
    let name = first.replace("~1", "/").replace("~0", "~");
    let other = match is_deeper {
        false => in_query(parts, &name),
        true if pairs::names_part_of(query.as_bytes(), &name) => Said::Unclear,
        true => Said::Nothing,
    };
    Some((name, member(document, pointer), other))
}

fn agree(name: &str, own: &Said<'_>, other: &Said<'_>) -> Result<(), InputError> {
    if matches!(own, Said::Nothing) || matches!(other, Said::Nothing) {
        return Ok(());
    }
    if own == other && *own != Said::Unclear {
        return Ok(());
    }
    Err(InputError::new(format!(
        "{name} is in the query and in the body, and they differ or can't be compared; some services take the one, some the other: \
         send one"
    )))
}

fn in_query<'a>(parts: &'a Parts, name: &str) -> Said<'a> {
    in_pairs(parts.uri.query().unwrap_or_default().as_bytes(), name)
}

fn in_pairs<'a>(encoded: &'a [u8], name: &str) -> Said<'a> {
    match pairs::find(encoded, name) {
        Ok(found) => found.map_or(Said::Nothing, Said::Text),
        Err(_) => Said::Unclear,
    }
}

fn in_body<'a>(parts: &Parts, body: &'a [u8], name: &str) -> Said<'a> {
    if is_form(&parts.headers) {
        return in_pairs(body, name);
    }
    let given = parts.headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    match given.to_ascii_lowercase() {
        // Whatever such a part says, nobody compares it.
        kind if contains(&kind, b"multipart/") && multipart::has_field(given, body, name) => Said::Unclear,
        kind if contains(&kind, b"json") => in_json(body, name),
        _ => Said::Nothing,
    }
}

fn in_json<'a>(body: &'a [u8], name: &str) -> Said<'a> {
    // What is no JSON to anybody has no members.
    let Ok(document) = Json::parse(body) else { return Said::Nothing };
    member(&document, &format!("/{}", name.replace('~', "~0").replace('/', "~1")))
}

fn member<'a>(document: &Json<'a>, pointer: &str) -> Said<'a> {
    match document.at(pointer) {
        Ok(None | Some(Json::Null)) => Said::Nothing,
        Ok(Some(Json::Text(text))) => Said::Text(text.clone()),
        Ok(Some(Json::Number(number))) => Said::Text(Cow::Borrowed(number)),
        Ok(Some(_)) | Err(_) => Said::Unclear,
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}
