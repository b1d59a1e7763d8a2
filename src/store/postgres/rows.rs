//! Rows of a table as one value: an array of a type that the schema has for them (`run_row` for `runs`).
//!
//! The server is done sooner with a row as a whole than with one array for each column, each of which it takes apart
//! for itself and keeps until the last row is written.

use std::error::Error;

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{IsNull, Kind, ToSql, Type, to_sql_checked};
use uuid::Uuid;

/// Rows that are written by one statement.
#[derive(Debug, Default)]
pub(super) struct Rows {
    many: i32,
    /// Each with its length before it, as the server reads them.
    bytes: Vec<u8>,
}

impl Rows {
    pub(super) fn is_empty(&self) -> bool {
        self.many == 0
    }

    /// Takes a row with all columns of its type, in their order.
    pub(super) fn push(&mut self, columns: &[&dyn Column]) {
        self.many += 1;
        let start = self.bytes.len();
        let size = columns.iter().fold(4, |size, column| size + HEAD + column.size());
        self.bytes.resize(start + 4 + size, 0);
        let mut rest = &mut self.bytes[start..];
        rest = put(rest, length(size));
        rest = put(rest, length(columns.len()));
        for column in columns {
            rest = column.put(rest);
        }
    }
}

impl ToSql for Rows {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let Kind::Array(row) = ty.kind() else {
            return Err("rows are given where no array is wanted".into());
        };
        let (dimensions, has_nulls, first) = (1, 0, 1);
        out.reserve(20 + self.bytes.len());
        out.put_i32(dimensions);
        out.put_i32(has_nulls);
        out.put_u32(row.oid());
        out.put_i32(self.many);
        out.put_i32(first);
        out.extend_from_slice(&self.bytes);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        matches!(ty.kind(), Kind::Array(row) if matches!(row.kind(), Kind::Composite(_)))
    }

    to_sql_checked!();
}

/// What has more than the server takes is refused by it.
fn length(of: usize) -> [u8; 4] {
    i32::try_from(of).unwrap_or(i32::MAX).to_be_bytes()
}

/// The length of a value that there is not.
const NULL: [u8; 4] = (-1_i32).to_be_bytes();

/// What stands before a value: its type and its length.
const HEAD: usize = 8;

/// A value of a row.
pub(super) trait Column {
    /// How many bytes it has, without its head.
    fn size(&self) -> usize;

    /// Writes its head and itself, and gives the room back that is left.
    fn put<'o>(&self, out: &'o mut [u8]) -> &'o mut [u8];
}

#[inline]
fn put<const N: usize>(out: &mut [u8], bytes: [u8; N]) -> &mut [u8] {
    let (room, rest) = out.split_at_mut(N);
    room.copy_from_slice(&bytes);
    rest
}

macro_rules! columns {
    ($($value:ty, $kind:expr, $size:expr, $put:expr;)*) => {$(
        impl Column for $value {
            #[inline]
            fn size(&self) -> usize {
                let size: fn(&$value) -> usize = $size;
                size(self)
            }

            #[inline]
            fn put<'o>(&self, out: &'o mut [u8]) -> &'o mut [u8] {
                let out = put(out, u32::to_be_bytes($kind));
                let out = put(out, length(self.size()));
                let write: fn(&$value, &'o mut [u8]) -> &'o mut [u8] = $put;
                write(self, out)
            }
        }

        impl Column for Option<$value> {
            #[inline]
            fn size(&self) -> usize {
                self.as_ref().map_or(0, Column::size)
            }

            #[inline]
            fn put<'o>(&self, out: &'o mut [u8]) -> &'o mut [u8] {
                match self {
                    Some(value) => value.put(out),
                    None => put(put(out, u32::to_be_bytes($kind)), NULL),
                }
            }
        }
    )*};
}

columns! {
    i16, INT2, |_| 2, |number, out| put(out, number.to_be_bytes());
    i32, INT4, |_| 4, |number, out| put(out, number.to_be_bytes());
    i64, INT8, |_| 8, |number, out| put(out, number.to_be_bytes());
    Uuid, UUID, |_| 16, |id, out| put(out, *id.as_bytes());
    &str, TEXT, |text| text.len(), |text, out| put_all(out, text.as_bytes());
    &[u8], BYTEA, |bytes| bytes.len(), |bytes, out| put_all(out, bytes);
}

fn put_all<'o>(out: &'o mut [u8], bytes: &[u8]) -> &'o mut [u8] {
    let (room, rest) = out.split_at_mut(bytes.len());
    room.copy_from_slice(bytes);
    rest
}

// The numbers of the types, which are the same on every server.
const BYTEA: u32 = 17;
const INT8: u32 = 20;
const INT2: u32 = 21;
const INT4: u32 = 23;
const TEXT: u32 = 25;
const UUID: u32 = 2950;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_the_numbers_that_the_driver_knows_them_by() {
        let ours = [BYTEA, INT8, INT2, INT4, TEXT, UUID];
        let known = [Type::BYTEA, Type::INT8, Type::INT2, Type::INT4, Type::TEXT, Type::UUID];
        assert_eq!(ours, known.map(|known| known.oid()));
    }

    #[test]
    fn a_row_is_its_columns_with_type_and_length_before_each() {
        let mut rows = Rows::default();
        assert!(rows.is_empty());
        rows.push(&[&7_i16, &None::<i64>, &"ab"]);
        let mut expected = Vec::new();
        expected.extend_from_slice(&32_i32.to_be_bytes());
        expected.extend_from_slice(&3_i32.to_be_bytes());
        expected.extend_from_slice(&[0, 0, 0, 21, 0, 0, 0, 2, 0, 7]);
        expected.extend_from_slice(&[0, 0, 0, 20, 255, 255, 255, 255]);
        expected.extend_from_slice(&[0, 0, 0, 25, 0, 0, 0, 2, b'a', b'b']);
        assert_eq!((rows.many, rows.bytes), (1, expected));
    }
}
