//! Connection strings as libpq takes them: keyword/value or URI. The service file, the PG*
//! environment and the password file complete them, in libpq's order.
//!
//!   string --> service file --> environment --> defaults --> password file --> `Conninfo`
//!
//! The `postgres` crate parses strings too. But it does not know services, the environment or
//! .pgpass, and it refuses keywords that people use. libpq's documentation says what each keyword
//! means, in the section "Database Connection Control Functions".
//!
//! Invariant: a process that has a password makes no core file.

mod address;
mod files;
mod settings;
mod text;
mod tls;

use std::time::Duration;

use crate::error::PostgresError;

use address::addresses;
pub(crate) use address::{Address, SOCKET_DIRECTORIES, socket_path};
pub(crate) use settings::Environment;
use settings::{Settings, apply_environment, check_demands, check_keywords, default, fault};
pub(crate) use tls::{ClientFiles, Roots, TlsMode, TlsRequest};
use windlass_engine::without_core_files;
use windlass_media::saturated;

const APPLICATION_NAME: &str = "windlass";
/// A connection string with everything filled in.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Conninfo {
    pub(crate) addresses: Vec<Address>,
    /// What must be encrypted, and which certificates are trusted.
    pub(crate) tls: TlsRequest,
    /// Why the password file is not used, as a sentence.
    pub(crate) skipped: Option<String>,
    /// Where the user said that the password is, as a sentence.
    pub(crate) password_place: Option<String>,
    /// The usual password file of the user who connects. If root starts a run, that is the owner of
    /// the database.
    password_file: String,
    settings: Settings,
}

impl Conninfo {
    /// Parses and completes a connection string with this process's environment.
    pub(crate) fn resolve(conninfo: &str) -> Result<Self, PostgresError> {
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid())
            .ok()
            .flatten();
        let environment = Environment {
            variable: &|name| std::env::var(name).ok(),
            home: user.as_ref().map(|user| user.dir.clone()),
            user: user.map(|user| user.name),
        };
        Self::complete(conninfo, &environment)
    }

    /// Parses a connection string and fills in what it leaves out.
    pub(crate) fn complete(
        conninfo: &str,
        environment: &Environment<'_>,
    ) -> Result<Self, PostgresError> {
        let mut settings = text::parse(conninfo)?;
        check_keywords(&settings)?;
        files::apply_service(&mut settings, environment)?;
        apply_environment(&mut settings, environment);
        check_demands(&settings)?;
        default(&mut settings, "dbname", || Some("postgres".into()));
        default(&mut settings, "user", || environment.user.clone());
        let addresses = addresses(&settings)?;
        let mut skipped = None;
        let password_place = files::password_place(&settings);
        if !settings.contains_key("password")
            && let Some(path) = files::password_file(&settings, environment)
        {
            skipped = files::skipped(&path, settings.contains_key("passfile"));
            let found = match skipped {
                None => files::password(&path, &settings, &addresses),
                Some(_) => None,
            };
            found.map(|password| settings.insert("password".into(), password));
        }
        if settings.contains_key("password") {
            without_core_files();
        }
        Ok(Self {
            addresses,
            skipped,
            password_place,
            password_file: files::usual(environment)
                .map_or("~/.pgpass".to_owned(), |path| path.display().to_string()),
            tls: TlsRequest::new(&settings, environment.home.as_deref())?,
            settings,
        })
    }

    /// What to do if the password is missing or wrong, in sentences.
    pub(crate) fn password_hint(&self) -> String {
        let skipped = self.skipped.as_ref();
        let skipped = skipped.map_or(String::new(), |why| format!("{why} "));
        match &self.password_place {
            Some(place) => format!("{skipped}{place}"),
            None => format!(
                "{skipped}Give the password of role {} in {} (mode 0600), in PGPASSFILE, or in \
                 PGPASSWORD.",
                self.get("user").unwrap_or_default(),
                self.password_file
            ),
        }
    }

    /// The resolved value of a keyword.
    pub(crate) fn get(&self, keyword: &str) -> Option<&str> {
        self.settings.get(keyword).map(String::as_str)
    }

    /// The client crate's configuration for one of the addresses.
    pub(crate) fn config(&self, address: &Address) -> Result<postgres::Config, PostgresError> {
        let mut config = postgres::Config::new();
        match address {
            Address::Socket { directory, port } => {
                config.host_path(directory).port(*port);
            }
            Address::Tcp { host, number, port } => {
                config.host(host).port(*port);
                number.map(|number| config.hostaddr(number));
            }
        }
        let text = |keyword| self.get(keyword).filter(|value| !value.is_empty());
        text("user").map(|user| config.user(user));
        text("password").map(|password| config.password(password));
        text("dbname").map(|name| config.dbname(name));
        text("options").map(|options| config.options(options));
        config.application_name(text("application_name").unwrap_or(APPLICATION_NAME));
        self.set_timing(&mut config)?;
        Ok(config)
    }

    /// How long a server may take to let us in, if that has a limit.
    pub(crate) fn connect_timeout(&self) -> Result<Option<Duration>, PostgresError> {
        let keyword = "connect_timeout";
        let seconds = self.get(keyword).map(|text| number(keyword, text));
        let seconds = seconds.transpose()?.filter(|seconds| *seconds > 0);
        Ok(seconds.map(Duration::from_secs))
    }

    fn set_timing(&self, config: &mut postgres::Config) -> Result<(), PostgresError> {
        let number = |keyword| {
            self.get(keyword)
                .map(|text| number(keyword, text))
                .transpose()
        };
        if let Some(limit) = self.connect_timeout()? {
            config.connect_timeout(limit);
        }
        // A copy takes hours, and the session is silent meanwhile; routers must see that it is
        // alive.
        config.keepalives(number("keepalives")?.unwrap_or(1) != 0);
        config.keepalives_idle(Duration::from_secs(
            number("keepalives_idle")?.unwrap_or(30),
        ));
        if let Some(seconds) = number("keepalives_interval")? {
            config.keepalives_interval(Duration::from_secs(seconds));
        }
        if let Some(count) = number("keepalives_count")? {
            config.keepalives_retries(saturated(count));
        }
        Ok(())
    }
}

/// Leaves the settings out, because one of them is the password.
impl std::fmt::Debug for Conninfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let addresses: Vec<_> = self.addresses.iter().map(Address::display).collect();
        write!(f, "Conninfo({})", addresses.join(", "))
    }
}

fn number(keyword: &str, text: &str) -> Result<u64, PostgresError> {
    match text.trim().parse::<u64>() {
        Ok(number) => Ok(number),
        Err(_) => fault(format!("{keyword} is {text:?}, not a number")),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "fixtures need no durability")]
mod tests;
