//! One way to write any value as bytes, so that two values are the same if, and only if, their bytes are.
//!
//! ```text
//!  n null │ t f │ # number, as text │ " text │ [ items │ { members, in the order of their names │ s "something" around a null
//! ```
//! Text and numbers have their length before them, items and members their count. What JSON can say is written as fingerprints
//! always were, because they are stored; what it can't (an infinity, an integer beyond 64 bits, a member that is there
//! twice, `Some(None)`) gets bytes of its own.

use std::fmt::{self, Display};

use serde::Serialize;
use serde::ser::{self, Error as _};

/// Whether the order of items matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Items {
    /// It does: a list.
    InOrder,
    /// It does not: sets are lists to serde, and come out in any order.
    InAnyOrder,
}

/// The bytes of a value.
pub(crate) fn encode<T: Serialize + ?Sized>(value: &T, items: Items) -> Result<Vec<u8>, Unwritable> {
    let mut writer = Writer { bytes: Vec::new(), items };
    value.serialize(&mut writer)?;
    Ok(writer.bytes)
}

/// Why a value can't be written.
#[derive(Debug)]
pub(crate) struct Unwritable(String);

impl Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unwritable {}

impl ser::Error for Unwritable {
    fn custom<T: Display>(why: T) -> Self {
        Self(why.to_string())
    }
}

const COUNT: usize = size_of::<u64>();

pub(crate) struct Writer {
    bytes: Vec<u8>,
    items: Items,
}

impl Writer {
    /// For what is written piece by piece.
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::new(), items: Items::InOrder }
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn mark(&mut self, tag: u8) {
        self.bytes.push(tag);
    }

    pub(crate) fn count(&mut self, tag: u8, count: usize) {
        self.bytes.push(tag);
        self.bytes.extend_from_slice(&(count as u64).to_be_bytes());
    }

    pub(crate) fn text(&mut self, tag: u8, text: &str) {
        self.count(tag, text.len());
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, number: impl Display) -> Result<(), Unwritable> {
        self.text(b'#', &number.to_string());
        Ok(())
    }

    fn float(&mut self, number: f64) -> Result<(), Unwritable> {
        match serde_json::Number::from_f64(number) {
            Some(finite) => self.number(finite),
            None => self.number(number),
        }
    }

    /// Begins an enum's case that has something in it: an object with one member.
    fn case(&mut self, name: &str) {
        self.count(b'{', 1);
        self.text(b'"', name);
    }

    fn parts(&mut self, tag: u8) -> Parts<'_> {
        let start = self.bytes.len();
        self.count(tag, 0);
        let in_order = tag == b'[' && self.items == Items::InOrder;
        Parts { writer: self, start, places: Vec::new(), count: 0, in_order }
    }
}

/// A list or an object on its way.
pub(crate) struct Parts<'a> {
    writer: &'a mut Writer,
    start: usize,
    /// Where each part begins, if they are to be sorted.
    places: Vec<usize>,
    count: u64,
    in_order: bool,
}

impl Parts<'_> {
    fn next(&mut self) {
        self.count += 1;
        if !self.in_order {
            self.places.push(self.writer.bytes.len());
        }
    }

    fn item<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), Unwritable> {
        self.next();
        item.serialize(&mut *self.writer)
    }

    fn member<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), Unwritable> {
        self.next();
        self.writer.text(b'"', name);
        value.serialize(&mut *self.writer)
    }

    fn finish(self) {
        let Self { writer, start, places, count, .. } = self;
        let bytes = &mut writer.bytes;
        bytes[start + 1..=start + COUNT].copy_from_slice(&count.to_be_bytes());
        let Some(&first) = places.first() else { return };
        let ends = places.iter().skip(1).copied().chain([bytes.len()]);
        let mut parts: Vec<&[u8]> = places.iter().zip(ends).map(|(&from, to)| &bytes[from..to]).collect();
        if !parts.is_sorted_by(|one, next| order(one) <= order(next)) {
            parts.sort_by(|one, other| order(one).cmp(&order(other)));
            let sorted = parts.concat();
            bytes[first..].copy_from_slice(&sorted);
        }
    }
}

/// By what a part is sorted: its name, as text, and then the rest.
fn order(part: &[u8]) -> (&[u8], &[u8]) {
    let name = part.get(1..=COUNT).filter(|_| part.first() == Some(&b'"'));
    let length = name.and_then(|name| name.try_into().ok()).map(u64::from_be_bytes);
    let end = length.and_then(|length| usize::try_from(length).ok()).map_or(0, |length| 1 + COUNT + length);
    let (name, rest) = part.split_at(end.min(part.len()));
    (name.get(1 + COUNT..).unwrap_or_default(), rest)
}

type Done = Result<(), Unwritable>;

impl<'a> ser::Serializer for &'a mut Writer {
    type Ok = ();
    type Error = Unwritable;
    type SerializeSeq = Parts<'a>;
    type SerializeTuple = Parts<'a>;
    type SerializeTupleStruct = Parts<'a>;
    type SerializeTupleVariant = Parts<'a>;
    type SerializeMap = Parts<'a>;
    type SerializeStruct = Parts<'a>;
    type SerializeStructVariant = Parts<'a>;

    fn serialize_bool(self, yes: bool) -> Done {
        self.mark(if yes { b't' } else { b'f' });
        Ok(())
    }

    fn serialize_i8(self, number: i8) -> Done {
        self.number(number)
    }

    fn serialize_i16(self, number: i16) -> Done {
        self.number(number)
    }

    fn serialize_i32(self, number: i32) -> Done {
        self.number(number)
    }

    fn serialize_i64(self, number: i64) -> Done {
        self.number(number)
    }

    fn serialize_i128(self, number: i128) -> Done {
        self.number(number)
    }

    fn serialize_u8(self, number: u8) -> Done {
        self.number(number)
    }

    fn serialize_u16(self, number: u16) -> Done {
        self.number(number)
    }

    fn serialize_u32(self, number: u32) -> Done {
        self.number(number)
    }

    fn serialize_u64(self, number: u64) -> Done {
        self.number(number)
    }

    fn serialize_u128(self, number: u128) -> Done {
        self.number(number)
    }

    fn serialize_f32(self, number: f32) -> Done {
        self.float(number.into())
    }

    fn serialize_f64(self, number: f64) -> Done {
        self.float(number)
    }

    fn serialize_char(self, letter: char) -> Done {
        self.serialize_str(letter.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, text: &str) -> Done {
        self.text(b'"', text);
        Ok(())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Done {
        bytes.serialize(self)
    }

    fn serialize_none(self) -> Done {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Done {
        let start = self.bytes.len();
        value.serialize(&mut *self)?;
        // Only where it would else pass for nothing: a field that becomes an `Option` keeps its bytes.
        if matches!(self.bytes.get(start), Some(b'n' | b's')) {
            self.bytes.insert(start, b's');
        }
        Ok(())
    }

    fn serialize_unit(self) -> Done {
        self.mark(b'n');
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Done {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, case: &'static str) -> Done {
        self.serialize_str(case)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Done {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        case: &'static str,
        value: &T,
    ) -> Done {
        self.case(case);
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Parts<'a>, Unwritable> {
        Ok(self.parts(b'['))
    }

    fn serialize_tuple(self, _: usize) -> Result<Parts<'a>, Unwritable> {
        Ok(self.parts(b'['))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Parts<'a>, Unwritable> {
        Ok(self.parts(b'['))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        case: &'static str,
        _: usize,
    ) -> Result<Parts<'a>, Unwritable> {
        self.case(case);
        Ok(self.parts(b'['))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Parts<'a>, Unwritable> {
        Ok(self.parts(b'{'))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Parts<'a>, Unwritable> {
        Ok(self.parts(b'{'))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        case: &'static str,
        _: usize,
    ) -> Result<Parts<'a>, Unwritable> {
        self.case(case);
        Ok(self.parts(b'{'))
    }
}

macro_rules! items {
    ($($of:ident $method:ident),*) => {$(
        impl ser::$of for Parts<'_> {
            type Ok = ();
            type Error = Unwritable;

            fn $method<T: Serialize + ?Sized>(&mut self, item: &T) -> Done {
                self.item(item)
            }

            fn end(self) -> Done {
                self.finish();
                Ok(())
            }
        }
    )*};
}

items!(
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field
);

macro_rules! members {
    ($($of:ident),*) => {$(
        impl ser::$of for Parts<'_> {
            type Ok = ();
            type Error = Unwritable;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Done {
                self.member(name, value)
            }

            fn end(self) -> Done {
                self.finish();
                Ok(())
            }
        }
    )*};
}

members!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for Parts<'_> {
    type Ok = ();
    type Error = Unwritable;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Done {
        self.next();
        let start = self.writer.bytes.len();
        key.serialize(&mut *self.writer)?;
        if self.writer.bytes.get(start) == Some(&b'"') {
            return Ok(());
        }
        // As JSON has it: what can be written as text.
        self.writer.bytes.truncate(start);
        let name = match serde_json::to_value(Named(key)).map_err(Unwritable::custom)? {
            serde_json::Value::Object(one) => one.into_iter().next().map(|(name, _)| name),
            _ => None,
        };
        let name = name.ok_or_else(|| Unwritable("a member has no name".into()))?;
        self.writer.text(b'"', &name);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        value.serialize(&mut *self.writer)
    }

    fn end(self) -> Done {
        self.finish();
        Ok(())
    }
}

/// An object with one member of this name.
struct Named<'a, T: ?Sized>(&'a T);

impl<T: Serialize + ?Sized> Serialize for Named<'_, T> {
    fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(self.0, ())])
    }
}
