//! The address at which metrics are served.

use std::fmt;

use crate::error::OperationError;

/// `HOST:PORT`. Whether this machine has such an address shows when it is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsAddress(String);

impl MetricsAddress {
    /// Refuses a word that is an address on no machine.
    pub fn parse(text: &str) -> Result<Self, OperationError> {
        let parts = text.rsplit_once(':');
        let is_one = parts.is_some_and(|(host, port)| {
            let is_host = !host.is_empty() && !host.contains(char::is_whitespace);
            is_host && port.parse::<u16>().is_ok()
        });
        let address = text.to_owned();
        match is_one {
            true => Ok(Self(address)),
            false => Err(OperationError::MetricsAddress { address }),
        }
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for text in [
            "127.0.0.1:9187",
            "localhost:0",
            "[::1]:9187",
            "0.0.0.0:65535",
        ] {
            let address = MetricsAddress::parse(text);
            assert_eq!(address.ok().map(|it| it.to_string()).as_deref(), Some(text));
        }
        for text in [
            "",
            "nonsense",
            ":9187",
            "host:",
            "host:65536",
            "a b:1",
            "9187",
        ] {
            assert!(MetricsAddress::parse(text).is_err(), "{text}");
        }
    }
}
