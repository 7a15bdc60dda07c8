//! A webhook: one JSON object, sent to an address that somebody named.
//!
//! Invariants
//! - Sending ends within its time limit, whatever the other side does. It is tried once.
//! - The address is in no error and in no `Debug` text: it is often all that protects the service.
//!   A process that has one makes no core file.
//! - No redirect is followed, so what is sent stays with the named host.

use std::fmt;
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Url, redirect};
use thiserror::Error;
use windlass_engine::without_core_files;

/// An address that takes JSON.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook {
    address: Url,
    limit: Duration,
}

/// Why nothing was sent, or nobody took it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// It is no address of a web server.
    #[error("this is no address of a web server: {fault}")]
    Address {
        /// Why.
        fault: String,
    },
    /// The server refused what was sent.
    #[error("the server answered {status}")]
    Refused {
        /// Its answer.
        status: u16,
    },
    /// The server did not answer in time.
    #[error("the server did not answer within {} s", limit.as_secs_f64())]
    TooLate {
        /// How long it had.
        limit: Duration,
    },
    /// The server cannot be reached.
    #[error("the server cannot be reached: {cause}")]
    Unreachable {
        /// Why.
        cause: String,
    },
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Webhook").field(&self.host()).finish()
    }
}

impl Webhook {
    /// Takes an address, and how long sending may take.
    pub fn new(address: &str, limit: Duration) -> Result<Self, WebhookError> {
        without_core_files();
        let wrong = |fault: String| WebhookError::Address { fault };
        let address = Url::parse(address.trim()).map_err(|error| wrong(error.to_string()))?;
        match address.scheme() {
            "http" | "https" if address.has_host() => Ok(Self { address, limit }),
            _ => Err(wrong("it begins with neither https:// nor http://".into())),
        }
    }

    /// The host, which is all that may be shown.
    pub fn host(&self) -> &str {
        self.address.host_str().unwrap_or_default()
    }

    /// Sends a JSON object.
    pub fn send(&self, body: String) -> Result<(), WebhookError> {
        // The library panics without a provider. Another part of the program may have set the same.
        drop(rustls::crypto::ring::default_provider().install_default());
        let unreachable = |cause: String| WebhookError::Unreachable { cause };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| unreachable(error.to_string()))?;
        let sent = runtime.block_on(async {
            let sent = tokio::time::timeout(self.limit, self.post(body)).await;
            sent.unwrap_or(Err(WebhookError::TooLate { limit: self.limit }))
        });
        // The search for a host's name may hang: nobody waits for it.
        runtime.shutdown_background();
        sent
    }

    async fn post(&self, body: String) -> Result<(), WebhookError> {
        let unreachable = |error: reqwest::Error| WebhookError::Unreachable {
            cause: cause_of(&error.without_url()),
        };
        let client = Client::builder().redirect(redirect::Policy::none()).build();
        let request = client.map_err(unreachable)?.post(self.address.clone());
        let request = request.header(CONTENT_TYPE, "application/json").body(body);
        let answer = request.send().await.map_err(unreachable)?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(WebhookError::Refused {
                status: status.as_u16(),
            }),
        }
    }
}

/// The innermost cause: those around it only say that something failed.
fn cause_of(error: &dyn std::error::Error) -> String {
    let last = std::iter::successors(Some(error), |error| error.source()).last();
    last.map_or(String::new(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_web_servers_are_taken_and_none_is_shown() {
        let limit = Duration::from_secs(1);
        for wrong in [
            "",
            "example.com",
            "ftp://example.com/x",
            "https://",
            "file:///etc",
        ] {
            assert!(Webhook::new(wrong, limit).is_err(), "{wrong}");
        }
        let hook = Webhook::new("https://me:secret@example.com/T0/B0/token?key=x", limit).unwrap();
        let shown = format!("{hook:?}");
        assert_eq!(shown, "Webhook(\"example.com\")");
    }
}
