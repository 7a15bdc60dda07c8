//! The clock of a server, as its answers tell it. Ages of objects are judged by it: the clock of
//! this machine may be wrong, and would make what is new old. Whoever hears the answers counts the
//! requests, too: each of them costs money.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use windlass_engine::media::saturated;

/// The headers in which a server says that an object cannot be removed before some day.
const KEPT: [&str; 2] = [
    "x-amz-object-lock-retain-until-date",
    "x-ms-immutability-policy-until-date",
];

/// What the last answer of a server said, and when it came; and what was spent so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerClock {
    said: Arc<Mutex<Option<(Duration, Instant)>>>,
    counted: Arc<Counted>,
}

/// What was sent to a server, and what came back, since the client was made.
#[derive(Debug, Default)]
struct Counted {
    requests: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    /// Answers about objects that cannot be removed yet.
    kept: AtomicU64,
}

/// What requests to a bucket have cost, or may cost at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Requests, each try of one by itself.
    pub requests: u64,
    /// Bytes that were sent, without what stands above them.
    pub sent_bytes: u64,
    /// Bytes that the server announced in its answers. It announces none for lists.
    pub received_bytes: u64,
}

impl Spent {
    /// What was spent since `then`.
    pub(crate) fn since(self, then: Self) -> Self {
        Self {
            requests: self.requests - then.requests,
            sent_bytes: self.sent_bytes - then.sent_bytes,
            received_bytes: self.received_bytes - then.received_bytes,
        }
    }
}

impl ServerClock {
    /// The time of the server, in nanoseconds since 1970 UTC. That of this machine if no answer has
    /// said it.
    pub(crate) fn now_nanos(&self) -> i64 {
        let said = *self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let now = match said {
            Some((said, at)) => said + at.elapsed(),
            None => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
        };
        saturated(now.as_nanos())
    }

    fn hear(&self, answer: &HttpResponse) {
        let date = answer.headers().get("date");
        let seconds = date.and_then(|date| seconds_of(date.to_str().ok()?));
        if let Some(seconds) = seconds {
            let said = (Duration::from_secs(seconds), Instant::now());
            *self.said.lock().unwrap_or_else(PoisonError::into_inner) = Some(said);
        }
        if KEPT.iter().any(|name| answer.headers().contains_key(*name)) {
            self.counted.kept.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts the bytes of an answer. One to HEAD announces those that it does not have.
    fn receive(&self, answer: &HttpResponse) {
        let length = answer.headers().get("content-length");
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        let received = &self.counted.received_bytes;
        received.fetch_add(length.unwrap_or(0), Ordering::Relaxed);
    }

    fn count(&self, request: &HttpRequest) {
        let bytes = request.body().content_length() as u64;
        self.counted.requests.fetch_add(1, Ordering::Relaxed);
        self.counted.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// How many answers so far were about an object that cannot be removed yet.
    pub(crate) fn kept(&self) -> u64 {
        self.counted.kept.load(Ordering::Relaxed)
    }

    /// What was spent so far.
    pub(crate) fn spent(&self) -> Spent {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Spent {
            requests: read(&self.counted.requests),
            sent_bytes: read(&self.counted.sent_bytes),
            received_bytes: read(&self.counted.received_bytes),
        }
    }
}

/// Seconds since 1970 of a date as servers write it: `Sun, 06 Nov 1994 08:49:37 GMT`.
fn seconds_of(date: &str) -> Option<u64> {
    let (_, rest) = date.split_once(", ")?;
    let mut words = rest.split(' ');
    let day: u64 = words.next()?.parse().ok()?;
    let names = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let name = words.next()?;
    let month = names.iter().position(|one| *one == name)? as u64 + 1;
    let year: u64 = words.next()?.parse().ok()?;
    let mut time = words.next()?.split(':').map(str::parse::<u64>);
    let mut next = |limit| time.next()?.ok().filter(|number| *number <= limit);
    let (hour, minute, second) = (next(23)?, next(59)?, next(60)?);
    if words.next() != Some("GMT") || !(1..=31).contains(&day) || !(1970..=9999).contains(&year) {
        return None;
    }
    // Days since 1970: years begin with March, so that a leap day is the last of its year.
    let (years, months) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let days = years * 365 + years / 4 - years / 100 + years / 400 + (months * 153 + 2) / 5 + day;
    let days = days.checked_sub(719_469)?;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// Makes clients whose answers a clock hears.
#[derive(Debug)]
pub(crate) struct Heard(pub(crate) ServerClock);

impl HttpConnector for Heard {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        let clock = self.0.clone();
        Ok(HttpClient::new(HeardClient { client, clock }))
    }
}

#[derive(Debug)]
struct HeardClient {
    client: HttpClient,
    clock: ServerClock,
}

impl HttpService for HeardClient {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let has_body = request.method().as_str() != "HEAD";
            self.clock.count(&request);
            let answer = self.client.execute(request).await?;
            self.clock.hear(&answer);
            if has_body {
                self.clock.receive(&answer);
            }
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_servers_are_read_and_nonsense_is_not() {
        let read = seconds_of;
        assert_eq!(read("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(read("Tue, 29 Feb 2000 23:59:60 GMT"), Some(951_868_800));
        assert_eq!(read("Fri, 01 Mar 2024 00:00:00 GMT"), Some(1_709_251_200));
        for wrong in [
            "",
            "Thu, 01 Jan 1970 00:00:00",
            "Thu, 01 Jan 1969 00:00:00 GMT",
            "Thu, 32 Jan 1970 00:00:00 GMT",
            "Thu, 01 Foo 1970 00:00:00 GMT",
            "Thu, 01 Jan 1970 24:00:00 GMT",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
