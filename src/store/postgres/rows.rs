//! Rows of a table as one value: an array of the table's own row type, in the order of its columns.
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

    /// Takes a row with all columns of its table.
    pub(super) fn push(&mut self, columns: &[&dyn Column]) {
        self.many += 1;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&length(columns.len()));
        for column in columns {
            column.put(&mut self.bytes);
        }
        let written = length(self.bytes.len() - start - 4);
        self.bytes[start..start + 4].copy_from_slice(&written);
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
const NULL: i32 = -1;

/// A value of a row: its type, its length, and itself.
pub(super) trait Column {
    fn put(&self, out: &mut Vec<u8>);
}

/// What begins a value.
fn head(kind: u32, length: [u8; 4]) -> [u8; 8] {
    let [a, b, c, d] = kind.to_be_bytes();
    let [e, f, g, h] = length;
    [a, b, c, d, e, f, g, h]
}

// Nearly all values are of a few bytes, and there are millions: each is put together before it is added at once.
macro_rules! columns {
    ($($value:ty, $kind:expr, $size:literal, $bytes:expr;)*) => {$(
        impl Column for $value {
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                let mut field = [0; 8 + $size];
                field[..8].copy_from_slice(&head($kind, length($size)));
                let bytes: fn(&$value) -> [u8; $size] = $bytes;
                field[8..].copy_from_slice(&bytes(self));
                out.extend_from_slice(&field);
            }
        }

        impl Column for Option<$value> {
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    Some(value) => value.put(out),
                    None => out.extend_from_slice(&head($kind, NULL.to_be_bytes())),
                }
            }
        }
    )*};
}

columns! {
    i16, INT2, 2, |number| number.to_be_bytes();
    i32, INT4, 4, |number| number.to_be_bytes();
    i64, INT8, 8, |number| number.to_be_bytes();
    Uuid, UUID, 16, |id| *id.as_bytes();
}

macro_rules! texts {
    ($($value:ty, $kind:expr;)*) => {$(
        impl Column for $value {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&head($kind, length(self.len())));
                out.extend_from_slice(self.as_ref());
            }
        }

        impl Column for Option<$value> {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    Some(value) => value.put(out),
                    None => out.extend_from_slice(&head($kind, NULL.to_be_bytes())),
                }
            }
        }
    )*};
}

texts! {
    &str, TEXT;
    &[u8], BYTEA;
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
