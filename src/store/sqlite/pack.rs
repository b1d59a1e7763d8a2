//! Numbers and texts one after the other in the bytes of one column. What no statement looks at is kept like
//! this: a row of few columns is written, read and bound in a fraction of the time.

use super::fault::Step;
use super::row::unreadable;
use crate::model::InstanceId;

/// Writes one after the other.
#[derive(Debug, Default)]
pub(super) struct Pack(Vec<u8>);

impl Pack {
    /// Begins, saying in which order things follow.
    pub(super) fn of_form(form: u8) -> Self {
        let mut bytes = Vec::with_capacity(192);
        bytes.push(form);
        Self(bytes)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Small numbers take few bytes.
    pub(super) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    /// Numbers near zero take few bytes.
    pub(super) fn signed(&mut self, number: i64) {
        self.number((number << 1).cast_unsigned() ^ (number >> 63).cast_unsigned());
    }

    /// Eight bytes, for numbers that are drawn.
    pub(super) fn drawn(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn maybe(&mut self, number: Option<i64>) {
        match number {
            None => self.byte(0),
            Some(number) => {
                self.byte(1);
                self.signed(number);
            }
        }
    }

    pub(super) fn instance(&mut self, instance: Option<InstanceId>) {
        match instance {
            None => self.byte(0),
            Some(instance) => {
                self.byte(1);
                self.0.extend_from_slice(&instance.bits().to_be_bytes());
            }
        }
    }

    pub(super) fn text(&mut self, text: Option<&[u8]>) {
        match text {
            None => self.byte(0),
            Some(text) => {
                self.byte(1);
                self.number(text.len() as u64);
                self.0.extend_from_slice(text);
            }
        }
    }
}

/// Reads what [`Pack`] has written, in the same order.
#[derive(Debug)]
pub(super) struct Unpack<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Unpack<'a> {
    pub(super) fn of_form(form: u8, what: &'static str, bytes: &'a [u8]) -> Step<Self> {
        let mut unpack = Self { what, rest: bytes };
        if unpack.byte()? == form { Ok(unpack) } else { Err(unpack.cut()) }
    }

    fn cut(&self) -> super::fault::Fault {
        unreadable(format!("{} cannot be read: its bytes are not in the form of this program", self.what))
    }

    fn take(&mut self, many: usize) -> Step<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(many).ok_or_else(|| self.cut())?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn byte(&mut self) -> Step<u8> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn number(&mut self) -> Step<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(self.cut())
    }

    pub(super) fn small(&mut self) -> Step<u32> {
        u32::try_from(self.number()?).map_err(|_| self.cut())
    }

    pub(super) fn signed(&mut self) -> Step<i64> {
        let number = self.number()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    pub(super) fn drawn(&mut self) -> Step<u64> {
        <[u8; 8]>::try_from(self.take(8)?).map(u64::from_le_bytes).map_err(|_| self.cut())
    }

    /// Whether something follows.
    pub(super) fn some(&mut self) -> Step<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.cut()),
        }
    }

    pub(super) fn maybe(&mut self) -> Step<Option<i64>> {
        if self.some()? { self.signed().map(Some) } else { Ok(None) }
    }

    pub(super) fn instance(&mut self) -> Step<Option<InstanceId>> {
        if !self.some()? {
            return Ok(None);
        }
        let bits = <[u8; 16]>::try_from(self.take(16)?).map_err(|_| self.cut())?;
        Ok(Some(InstanceId::from_bits(u128::from_be_bytes(bits))))
    }

    pub(super) fn bytes(&mut self) -> Step<Option<&'a [u8]>> {
        if !self.some()? {
            return Ok(None);
        }
        let many = usize::try_from(self.number()?).map_err(|_| self.cut())?;
        self.take(many).map(Some)
    }

    pub(super) fn text(&mut self) -> Step<Option<&'a str>> {
        let bytes = self.bytes()?;
        bytes.map(|bytes| std::str::from_utf8(bytes).map_err(|_| self.cut())).transpose()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Pack, Unpack};
    use crate::model::InstanceId;

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(
            number: u64, signed: i64, maybe: Option<i64>, drawn: u64, bits: Option<u128>, text: Option<String>,
        ) {
            let mut pack = Pack::of_form(7);
            pack.number(number);
            pack.signed(signed);
            pack.maybe(maybe);
            pack.drawn(drawn);
            pack.instance(bits.map(InstanceId::from_bits));
            pack.text(text.as_deref().map(str::as_bytes));
            let mut unpack = Unpack::of_form(7, "it", pack.bytes()).unwrap();
            prop_assert_eq!(unpack.number().unwrap(), number);
            prop_assert_eq!(unpack.signed().unwrap(), signed);
            prop_assert_eq!(unpack.maybe().unwrap(), maybe);
            prop_assert_eq!(unpack.drawn().unwrap(), drawn);
            prop_assert_eq!(unpack.instance().unwrap(), bits.map(InstanceId::from_bits));
            prop_assert_eq!(unpack.text().unwrap(), text.as_deref());
            prop_assert!(unpack.byte().is_err());
        }

        #[test]
        fn whatever_the_bytes_are_nothing_panics(bytes: Vec<u8>) {
            if let Ok(mut unpack) = Unpack::of_form(1, "it", &bytes) {
                while unpack.number().is_ok() && unpack.text().is_ok() && unpack.instance().is_ok() {}
            }
        }
    }
}
