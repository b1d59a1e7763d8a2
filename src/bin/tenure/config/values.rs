//! The values that settings have, as people write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};

use crate::when;

/// A length of time: a number of seconds, or words: `90`, `0.5`, `"5m"`, `"2h 30m"`, `"30d"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Length(pub(crate) Duration);

impl Length {
    pub(crate) const fn secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }
}

impl FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        when::length(text)
            .map(Self)
            .map_err(|_| format!("seconds or a length of time such as \"5m\" or \"2h 30m\", found {text:?}"))
    }
}

/// The shortest words that are read as the same length.
impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (secs, nanos) = (self.0.as_secs(), self.0.subsec_nanos());
        match (secs, nanos) {
            (0, 1..) => write!(f, "{}ms", self.0.as_secs_f64() * 1000.0),
            (_, 1..) => write!(f, "{}s", self.0.as_secs_f64()),
            (86_400.., 0) if secs % 86_400 == 0 => write!(f, "{}d", secs / 86_400),
            (3_600.., 0) if secs % 3_600 == 0 => write!(f, "{}h", secs / 3_600),
            (60.., 0) if secs % 60 == 0 => write!(f, "{}m", secs / 60),
            _ => write!(f, "{secs}s"),
        }
    }
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Seen;

        impl Visitor<'_> for Seen {
            type Value = Length;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("seconds, or a length of time such as \"5m\"")
            }

            fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Length, E> {
                self.visit_str(&seconds.to_string())
            }

            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Length, E> {
                self.visit_str(&seconds.to_string())
            }

            fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Length, E> {
                self.visit_str(&seconds.to_string())
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Length, E> {
                text.parse().map_err(|expected| E::custom(format!("expected {expected}")))
            }
        }

        deserializer.deserialize_any(Seen)
    }
}

/// A secret: never shown, never in a log.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

/// Whatever it is instead of a text is not shown either.
impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            toml::Value::String(secret) => Ok(Self(secret)),
            _ => Err(de::Error::custom("expected a text in quotes")),
        }
    }
}

impl Secret {
    pub(crate) fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// What must not be shown.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Words of which a setting is one.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $first:ident = $first_word:literal, $($other:ident = $word:literal),+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
        pub(crate) enum $name {
            #[default]
            #[serde(rename = $first_word)]
            $first,
            $(#[serde(rename = $word)] $other,)+
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $first_word => Ok(Self::$first),
                    $($word => Ok(Self::$other),)+
                    _ => Err(format!(
                        "{:?}{}, found {text:?}", $first_word, concat!($(" or \"", $word, "\""),+)
                    )),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    Self::$first => $first_word,
                    $(Self::$other => $word,)+
                })
            }
        }
    };
}

words!(
    /// What an answered write survives.
    Sync { Full = "full", Normal = "normal" }
);
words!(
    /// How a line of the log looks.
    LogFormat { Text = "text", Json = "json" }
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_as_people_write_them() {
        let read = |text: &str| text.parse::<Length>().map(|length| length.0);
        assert_eq!(read("90"), Ok(Duration::from_secs(90)));
        assert_eq!(read("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(read("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(read("2h 30m"), Ok(Duration::from_secs(9_000)));
        assert_eq!(read("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(read("500ms"), Ok(Duration::from_millis(500)));
        for odd in ["", "soon", "-5", "-5m", "NaN", "inf", "1e300", "400y", "5 fortnights"] {
            assert!(read(odd).is_err(), "{odd:?} was read as {:?}", read(odd));
        }
    }

    #[test]
    fn lengths_are_shown_as_they_are_read() {
        for text in ["0s", "1s", "90s", "5m", "2h", "30d", "250ms", "1.5s"] {
            let length: Length = text.parse().unwrap();
            assert_eq!(length.to_string(), text);
        }
    }

    #[test]
    fn a_secret_is_never_shown() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "***");
    }
}
