//! Tokens and payloads in JSON: a token as text, since readers of JSON round large numbers; a payload as the text
//! that it is, or in base 16.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::model::Token;

pub(crate) fn serialize<S: Serializer>(token: &Token, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{}.{:016x}", token.fence, token.nonce))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Token, D::Error> {
    let text = String::deserialize(deserializer)?;
    // What was shown is not repeated: it may be somebody's token with a letter too many.
    parse(&text).ok_or_else(|| de::Error::custom("expected a token as it was granted, found another text"))
}

fn parse(text: &str) -> Option<Token> {
    let (fence, nonce) = text.split_once('.')?;
    Some(Token { fence: fence.parse().ok()?, nonce: u64::from_str_radix(nonce, 16).ok()? })
}

/// A payload that may be missing.
pub(crate) mod payload {
    use std::sync::Arc;

    use super::{Deserialize, Deserializer, Serialize, Serializer, de};
    use crate::model::Payload;

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        #[serde(default = "text")]
        media_type: Arc<str>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hex: Option<String>,
    }

    fn text() -> Arc<str> {
        Payload::text("").media_type
    }

    pub(crate) fn serialize<S: Serializer>(
        payload: &Option<Payload>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let fields = payload.as_ref().map(|Payload { media_type, bytes }| {
            let text = std::str::from_utf8(bytes).ok().map(str::to_owned);
            let hex = || bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let hex = if text.is_none() { Some(hex()) } else { None };
            Fields { media_type: Arc::clone(media_type), text, hex }
        });
        fields.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Payload>, D::Error> {
        let Some(Fields { media_type, text, hex }) = Option::deserialize(deserializer)? else {
            return Ok(None);
        };
        let bytes = match (text, hex) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(hex)) => bytes(&hex)
                .ok_or_else(|| de::Error::custom("\"hex\": expected an even number of hexadecimal digits"))?,
            _ => return Err(de::Error::custom("expected one of \"text\" and \"hex\" beside \"media_type\"")),
        };
        Ok(Some(Payload { media_type, bytes: bytes.into() }))
    }

    fn bytes(hex: &str) -> Option<Vec<u8>> {
        let digits: Option<Vec<u8>> =
            hex.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
        let digits = digits?;
        let pairs = digits.chunks_exact(2);
        pairs.remainder().is_empty().then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
    }
}
