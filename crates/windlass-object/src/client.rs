//! Clients: one for each bucket, made of the configuration and the environment.
//!
//! Invariant: no secret is in an error, a log or a `Debug` text, nor in a core file.

mod credentials;

use std::fmt;
use std::fs;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::{BackoffConfig, Certificate, ClientOptions, ObjectStore, RetryConfig};
use tokio::runtime::Handle;
use windlass_engine::without_core_files;

use crate::clock::{Heard, ServerClock};
use crate::error::ObjectError;
use crate::location::{Location, Service};
use crate::settings::{BucketSettings, PART_BYTES_MAX};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// The slowest link that is not taken for a dead one, in bytes per second.
const SLOWEST_RATE: u64 = 256 * 1024;
/// How long any answer may take, besides its bytes.
const ANSWER: Duration = Duration::from_secs(30);

/// The deadline of who does not wait long.
const HURRY: Duration = Duration::from_secs(10);
/// The deadline of who can do without.
const IMPATIENCE: Duration = Duration::from_secs(2);

/// What a client does: objects, uploads of parts, and lists page by page.
pub(crate) trait Client: ObjectStore + MultipartStore + PaginatedListStore {}
impl<T: ObjectStore + MultipartStore + PaginatedListStore> Client for T {}

/// A bucket that requests can be sent to.
#[derive(Clone)]
pub(crate) struct Bucket {
    /// The bucket, with an empty key.
    pub(crate) location: Location,
    pub(crate) settings: BucketSettings,
    pub(crate) client: Arc<dyn Client>,
    pub(crate) runtime: Handle,
    /// The server's clock, as its answers tell it.
    pub(crate) clock: ServerClock,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bucket").field(&self.location).finish()
    }
}

impl Bucket {
    /// A client for the bucket of a location. It asks the server nothing yet.
    pub(crate) fn new(
        location: &Location,
        settings: BucketSettings,
        runtime: Handle,
    ) -> Result<Self, ObjectError> {
        // The client has the keys from now on.
        without_core_files();
        // The library panics without a provider. Another part of the program may have set the same.
        drop(rustls::crypto::ring::default_provider().install_default());
        let location = Location {
            key: String::new(),
            ..location.clone()
        };
        let clock = ServerClock::default();
        let make = Make {
            location: &location,
            settings: &settings,
            clock: &clock,
        };
        let client: Arc<dyn Client> = match location.service {
            Service::S3 => Arc::new(make.s3()?),
            Service::Google => make.google()?,
            Service::Azure => make.azure()?,
        };
        Ok(Self {
            location,
            settings,
            client,
            runtime,
            clock,
        })
    }
}

impl Bucket {
    /// The same bucket for somebody who does not wait long: a run that has failed, or a question
    /// whether the server is there at all.
    pub(crate) fn hurried(&self) -> Self {
        let mut hurried = self.clone();
        hurried.settings.deadline = Some(self.settings.deadline().min(HURRY));
        hurried
    }

    /// The same bucket for what need not be done at all costs.
    pub(crate) fn impatient(&self) -> Self {
        let mut impatient = self.clone();
        impatient.settings.deadline = Some(self.settings.deadline().min(IMPATIENCE));
        impatient
    }
}

/// Whether this is an address of Amazon's own S3, as no address is.
fn is_amazon(endpoint: Option<&str>) -> bool {
    let Some(endpoint) = endpoint else {
        return true;
    };
    let host = endpoint
        .split_once("://")
        .map_or(endpoint, |(_, host)| host);
    let host = host.split(['/', ':']).next().unwrap_or_default();
    let host = host.to_ascii_lowercase();
    let ends = [".amazonaws.com", ".amazonaws.com.cn"];
    ends.iter().any(|end| host.ends_with(end))
}

/// What the environment says of S3. The token of a session belongs to the keys beside it: whoever
/// has keys from elsewhere goes without, because servers refuse both together.
fn of_environment(with_token: bool) -> AmazonS3Builder {
    let mut builder = AmazonS3Builder::new();
    for (name, value) in std::env::vars_os() {
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else {
            continue;
        };
        let key = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>();
        let key = key.ok().filter(|_| name.starts_with("AWS_"));
        if let Some(key) = key.filter(|key| with_token || *key != AmazonS3ConfigKey::Token) {
            builder = builder.with_config(key, value);
        }
    }
    builder
}

/// What clients are made of.
struct Make<'a> {
    location: &'a Location,
    settings: &'a BucketSettings,
    clock: &'a ServerClock,
}

impl Make<'_> {
    fn s3(&self) -> Result<AmazonS3, ObjectError> {
        let of_file = self.credentials()?.into_iter();
        let of_file = of_file.filter_map(|(name, value)| {
            let key = name.parse::<AmazonS3ConfigKey>();
            Some((key.ok()?, value))
        });
        let of_file: Vec<_> = of_file.collect();
        let has_keys = of_file
            .iter()
            .any(|(key, _)| *key == AmazonS3ConfigKey::AccessKeyId);
        let mut builder = of_environment(!has_keys)
            .with_bucket_name(&self.location.bucket)
            .with_http_connector(Heard(self.clock.clone()))
            .with_retry(self.retry());
        for (key, value) in of_file {
            builder = builder.with_config(key, value);
        }
        if let Some(region) = &self.settings.region {
            builder = builder.with_region(region);
        }
        let of_environment = builder
            .get_config_value(&AmazonS3ConfigKey::S3Endpoint)
            .or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Endpoint));
        let endpoint = self.settings.endpoint.clone().or(of_environment);
        let is_virtual = self.settings.path_style == Some(false);
        if let Some(endpoint) = &endpoint {
            // In this style the library takes the endpoint as that of the bucket.
            let endpoint = match is_virtual {
                true => endpoint.replacen("://", &format!("://{}.", self.location.bucket), 1),
                false => endpoint.clone(),
            };
            builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
        }
        if self.settings.path_style.is_some() {
            builder = builder.with_virtual_hosted_style_request(is_virtual);
        }
        let is_asked = self.settings.checksums;
        let of_environment = builder.get_config_value(&AmazonS3ConfigKey::Checksum);
        if is_asked.unwrap_or(is_amazon(endpoint.as_deref())) && of_environment.is_none() {
            // The signature has this hash of the body anyway, so it is computed only once.
            builder = builder.with_checksum_algorithm(Checksum::SHA256);
        }
        let options = self.options(endpoint.as_deref())?;
        let built = builder.with_client_options(options).build();
        built.map_err(|error| self.fault(&error))
    }

    fn google(&self) -> Result<Arc<dyn Client>, ObjectError> {
        let mut builder = GoogleCloudStorageBuilder::from_env()
            .with_bucket_name(&self.location.bucket)
            .with_http_connector(Heard(self.clock.clone()))
            .with_retry(self.retry());
        if let Some(file) = &self.settings.credentials_file {
            builder = builder.with_service_account_path(file.to_string_lossy());
        }
        let endpoint = self.settings.endpoint.as_deref();
        if let Some(endpoint) = endpoint {
            builder = builder.with_base_url(endpoint);
        }
        let options = self.options(endpoint)?;
        let built = builder.with_client_options(options).build();
        Ok(Arc::new(built.map_err(|error| self.fault(&error))?))
    }

    fn azure(&self) -> Result<Arc<dyn Client>, ObjectError> {
        let mut builder = MicrosoftAzureBuilder::from_env()
            .with_container_name(&self.location.bucket)
            .with_http_connector(Heard(self.clock.clone()))
            .with_retry(self.retry());
        for (name, value) in self.credentials()? {
            if let Ok(key) = name.parse::<AzureConfigKey>() {
                builder = builder.with_config(key, value);
            }
        }
        let of_environment = builder.get_config_value(&AzureConfigKey::Endpoint);
        let endpoint = self.settings.endpoint.clone().or(of_environment);
        if let Some(endpoint) = &endpoint {
            builder = builder.with_endpoint(endpoint.clone());
        }
        let options = self.options(endpoint.as_deref())?;
        let built = builder.with_client_options(options).build();
        Ok(Arc::new(built.map_err(|error| self.fault(&error))?))
    }

    /// The library tries again only for a moment. What takes longer is tried by `request.rs`, which
    /// signs anew.
    fn retry(&self) -> RetryConfig {
        RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(50),
                max_backoff: Duration::from_secs(1),
                base: 2.0,
            },
            max_retries: 2,
            retry_timeout: self.settings.deadline().min(Duration::from_secs(120)),
        }
    }

    fn options(&self, endpoint: Option<&str>) -> Result<ClientOptions, ObjectError> {
        let largest = self.settings.part_bytes.unwrap_or(PART_BYTES_MAX);
        let mut answer = ANSWER + Duration::from_secs(largest / SLOWEST_RATE);
        // Who asks for a short deadline wants to know soon that the server hangs.
        answer = answer.min(self.settings.deadline().max(Duration::from_secs(1)));
        let mut options = ClientOptions::new()
            .with_connect_timeout(CONNECT.min(self.settings.deadline()))
            .with_timeout(answer);
        if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
            options = options.with_allow_http(true);
        }
        let of_environment = std::env::var_os("AWS_CA_BUNDLE").map(Into::into);
        let file = self.settings.ca_file.clone().or(of_environment);
        if let Some(file) = file {
            let pem = self.read(&file)?;
            let found = Certificate::from_pem_bundle(&pem).map_err(|error| self.fault(&error))?;
            if found.is_empty() {
                return Err(self.setting(format!("{} has no certificate", file.display())));
            }
            for certificate in found {
                options = options.with_root_certificate(certificate);
            }
        }
        Ok(options)
    }

    /// The names and values of the file with the keys.
    fn credentials(&self) -> Result<Vec<(String, String)>, ObjectError> {
        let of_environment = || std::env::var_os("AWS_SHARED_CREDENTIALS_FILE").map(Into::into);
        // As with the service's own tools: keys in the environment come before a file of it.
        let has_keys = std::env::var_os("AWS_ACCESS_KEY_ID").is_some();
        let is_shared = !has_keys || self.settings.profile.is_some();
        let file = match (&self.settings.credentials_file, self.location.service) {
            (Some(file), _) => Some(file.clone()),
            (None, Service::S3) if is_shared => of_environment(),
            (None, _) => None,
        };
        let Some(file) = file else {
            return Ok(Vec::new());
        };
        let text = self.read(&file)?;
        let text = String::from_utf8_lossy(&text);
        let profile = self.settings.profile.clone();
        let profile = profile.or_else(|| std::env::var("AWS_PROFILE").ok());
        let profile = profile.as_deref().unwrap_or("default");
        let found = credentials::section(&text, profile);
        match found.is_empty() {
            true => Err(self.setting(format!("{} has no keys of [{profile}]", file.display()))),
            false => Ok(found),
        }
    }

    fn read(&self, file: &FilePath) -> Result<Vec<u8>, ObjectError> {
        fs::read(file).map_err(|source| ObjectError::SettingFile {
            bucket: self.location.bucket_name(),
            path: file.to_owned(),
            source,
        })
    }

    fn fault(&self, error: &object_store::Error) -> ObjectError {
        self.setting(crate::error::cause(error))
    }

    fn setting(&self, what: String) -> ObjectError {
        let bucket = self.location.bucket_name();
        ObjectError::Setting { bucket, what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Bucket {
        /// A bucket of a server that a test plays, without keys.
        pub(crate) fn unsigned(runtime: &tokio::runtime::Runtime, endpoint: String) -> Self {
            drop(rustls::crypto::ring::default_provider().install_default());
            let clock = ServerClock::default();
            let client = AmazonS3Builder::new()
                .with_bucket_name("shop")
                .with_endpoint(endpoint)
                .with_allow_http(true)
                .with_skip_signature(true)
                .with_http_connector(Heard(clock.clone()))
                .build();
            Self {
                location: Location::parse(FilePath::new("s3://shop")).unwrap(),
                settings: BucketSettings::default(),
                client: Arc::new(client.unwrap()),
                runtime: runtime.handle().clone(),
                clock,
            }
        }
    }

    #[test]
    fn only_amazon_gets_checksums_unasked() {
        assert!(is_amazon(None));
        for own in [
            "https://s3.eu-central-1.amazonaws.com",
            "https://S3.cn-north-1.amazonaws.com.cn:443/",
        ] {
            assert!(is_amazon(Some(own)), "{own}");
        }
        for other in [
            "https://s3.example.com:9000",
            "http://127.0.0.1:9000/s3.amazonaws.com",
            "https://amazonaws.com.example.com",
            "https://notamazonaws.com",
        ] {
            assert!(!is_amazon(Some(other)), "{other}");
        }
    }
}
