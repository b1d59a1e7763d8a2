//! Bytes as records and messages are made of: numbers with the highest byte first, texts behind their length.
//!
//! The scripts take the same apart with `struct.unpack`; what they never look at has lengths of its own choice.

use super::fault::{Step, unreadable};

/// Writes.
#[derive(Debug, Default)]
pub(super) struct Put(pub(super) Vec<u8>);

impl Put {
    pub(super) fn u8(&mut self, number: u8) -> &mut Self {
        self.0.push(number);
        self
    }

    pub(super) fn u16(&mut self, number: u16) -> &mut Self {
        self.raw(&number.to_be_bytes())
    }

    pub(super) fn u32(&mut self, number: u32) -> &mut Self {
        self.raw(&number.to_be_bytes())
    }

    pub(super) fn u64(&mut self, number: u64) -> &mut Self {
        self.raw(&number.to_be_bytes())
    }

    /// With its sign turned, so that it sorts as bytes.
    pub(super) fn i64(&mut self, number: i64) -> &mut Self {
        self.u64(turned(number))
    }

    /// As few bytes as the number needs.
    pub(super) fn short(&mut self, mut number: u64) -> &mut Self {
        while number >= 0x80 {
            self.0.push((number & 0x7F) as u8 | 0x80);
            number >>= 7;
        }
        self.u8(number as u8)
    }

    /// The distance between two numbers: few bytes if they are near.
    pub(super) fn distance(&mut self, from: i64, to: i64) -> &mut Self {
        let distance = to.wrapping_sub(from);
        self.short(((distance << 1) ^ (distance >> 63)).cast_unsigned())
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// What is written behind a length of two bytes; the caller knows that it fits.
    pub(super) fn part16<R>(&mut self, write: impl FnOnce(&mut Self) -> R) -> R {
        let start = self.0.len() + 2;
        let written = write(self.u16(0));
        let length = u16::try_from(self.0.len() - start).unwrap_or(u16::MAX);
        self.0[start - 2..start].copy_from_slice(&length.to_be_bytes());
        written
    }

    /// Behind a length of four bytes; nothing is longer, since no value of a server may be.
    pub(super) fn text32(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX)).raw(bytes)
    }

    /// What is written behind a length of four bytes.
    pub(super) fn part32<R>(&mut self, write: impl FnOnce(&mut Self) -> R) -> R {
        let start = self.0.len() + 4;
        let written = write(self.u32(0));
        let length = u32::try_from(self.0.len() - start).unwrap_or(u32::MAX);
        self.0[start - 4..start].copy_from_slice(&length.to_be_bytes());
        written
    }

    /// Behind a length of one byte; an id fits.
    pub(super) fn id(&mut self, id: &str) -> &mut Self {
        self.u8(u8::try_from(id.len()).unwrap_or(u8::MAX)).raw(id.as_bytes())
    }
}

/// Texts of bytes one behind the other.
#[derive(Debug, Default)]
pub(super) struct Parts {
    all: Put,
    ends: Vec<usize>,
}

impl Parts {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// How many bytes they have.
    pub(super) fn bytes(&self) -> usize {
        self.ends.last().copied().unwrap_or_default()
    }

    /// Adds what is written.
    pub(super) fn write<R>(&mut self, write: impl FnOnce(&mut Put) -> R) -> R {
        let written = write(&mut self.all);
        self.ends.push(self.all.0.len());
        written
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.write(|put| {
            put.raw(bytes);
        });
    }

    /// Keeps the first so many.
    pub(super) fn truncate(&mut self, count: usize) {
        self.ends.truncate(count);
        self.all.0.truncate(self.bytes());
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.all.0[start..*end])
    }
}

/// Reads; what is not there is [`Unreadable`](super::fault::Fault::Unreadable).
#[derive(Debug, Clone, Copy)]
pub(super) struct Get<'a>(pub(super) &'a [u8]);

impl<'a> Get<'a> {
    pub(super) fn take(&mut self, count: usize) -> Step<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(|| unreadable("it is cut off"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Step<[u8; N]> {
        <[u8; N]>::try_from(self.take(N)?).map_err(|_| unreadable("it is cut off"))
    }

    pub(super) fn u8(&mut self) -> Step<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u16(&mut self) -> Step<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Step<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Step<u64> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(super) fn u128(&mut self) -> Step<u128> {
        Ok(u128::from_be_bytes(self.array()?))
    }

    pub(super) fn i64(&mut self) -> Step<i64> {
        Ok((self.u64()? ^ SIGN).cast_signed())
    }

    pub(super) fn short(&mut self) -> Step<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            number |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(unreadable("a number in it is too long"))
    }

    pub(super) fn short32(&mut self) -> Step<u32> {
        u32::try_from(self.short()?).map_err(|_| unreadable("a number in it is too large"))
    }

    pub(super) fn distance(&mut self, from: i64) -> Step<i64> {
        let folded = self.short()?;
        let distance = (folded >> 1).cast_signed() ^ -(folded & 1).cast_signed();
        Ok(from.wrapping_add(distance))
    }

    pub(super) fn text16(&mut self) -> Step<&'a [u8]> {
        let count = self.u16()?;
        self.take(usize::from(count))
    }

    pub(super) fn text32(&mut self) -> Step<&'a [u8]> {
        let count = self.u32()?;
        self.take(usize::try_from(count).unwrap_or(usize::MAX))
    }

    pub(super) fn id(&mut self) -> Step<&'a str> {
        let count = self.u8()?;
        text(self.take(usize::from(count))?)
    }
}

pub(super) fn text(bytes: &[u8]) -> Step<&str> {
    std::str::from_utf8(bytes).map_err(|_| unreadable("a text in it is not UTF-8"))
}

const SIGN: u64 = 1 << 63;

const fn turned(number: i64) -> u64 {
    number.cast_unsigned() ^ SIGN
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test says so by panicking")]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let numbers = [0, 1, -1, 63, 64, -64, -65, i64::MAX, i64::MIN, 1_769_850_000_123];
        let mut put = Put::default();
        for number in numbers {
            put.i64(number).short(number.cast_unsigned()).distance(7, number).distance(number, 7);
        }
        put.part16(|put| put.raw(b"ab").0.len());
        put.text32(b"").id("id").u32(9);
        let mut get = Get(&put.0);
        for number in numbers {
            assert_eq!(get.i64().unwrap(), number);
            assert_eq!(get.short().unwrap(), number.cast_unsigned());
            assert_eq!(get.distance(7).unwrap(), number);
            assert_eq!(get.distance(number).unwrap(), 7);
        }
        assert_eq!(
            (get.text16().unwrap(), get.text32().unwrap(), get.id().unwrap()),
            (&b"ab"[..], &b""[..], "id")
        );
        assert_eq!((get.u32().unwrap(), get.0.len()), (9, 0));
        assert!(get.u8().is_err(), "nothing is left");
    }

    #[test]
    fn instants_sort_as_bytes() {
        let sorted =
            [i64::MIN, -1, 0, 1, i64::MAX].map(|number| std::mem::take(&mut Put::default().i64(number).0));
        assert!(sorted.is_sorted());
    }

    #[test]
    fn parts_are_given_back_one_by_one() {
        let mut parts = Parts::default();
        parts.push(b"ab");
        parts.write(|put| put.part32(|put| put.u8(7).id("x").0.len()));
        parts.push(b"");
        assert_eq!(parts.iter().collect::<Vec<_>>(), [&b"ab"[..], &[0, 0, 0, 3, 7, 1, b'x'], b""]);
        parts.truncate(1);
        parts.push(b"c");
        assert_eq!((parts.iter().collect::<Vec<_>>(), parts.bytes()), (vec![&b"ab"[..], b"c"], 3));
    }

    #[test]
    fn a_number_without_an_end_is_unreadable() {
        assert!(Get(&[0xFF; 16]).short().is_err());
    }
}
