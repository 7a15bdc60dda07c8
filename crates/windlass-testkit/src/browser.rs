//! A real browser that looks at pages: headless Chromium, controlled over a pipe.
//!
//!   test --> check_page --> Browser (DevTools protocol, JSON ended by zero bytes) --> Chromium
//!
//! Each page is checked at the width of a telephone and at the width of a desktop screen, in light
//! and in dark. Everything that would disturb a reader is a failure: an error on the console,
//! something loaded from elsewhere, a body that scrolls sideways, text that is cut off, too small,
//! or on top of other text.

#![allow(
    clippy::unwrap_used,
    reason = "a browser that does not do its part ends the test"
)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

/// Long enough for the slowest machine: a browser that is silent for this long is broken.
const PATIENCE: Duration = Duration::from_secs(120);
/// The widths of a telephone and of a desktop screen, in CSS pixels.
pub const WIDTHS: [u64; 2] = [360, 1280];

/// A browser with one page.
pub struct Browser {
    process: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: Option<String>,
    last: u64,
    /// The events of the page since it was opened: messages, and requests for files.
    heard: Vec<Value>,
    _home: TempDir,
}

/// A page as it is shown.
#[derive(Debug, Default)]
pub struct Look {
    /// What would disturb a reader; empty when all is well.
    pub faults: Vec<String>,
    /// The number of visible charts.
    pub charts: u64,
    /// The number of visible tables.
    pub tables: u64,
    /// The page's text.
    pub text: String,
}

/// Opens a page in every width and scheme, and panics with the list of all faults. The page must
/// show `charts` charts. Returns the page's text.
pub fn check_page(path: &Path, charts: u64) -> String {
    let mut browser = Browser::start();
    let mut text = String::new();
    for width in WIDTHS {
        for scheme in ["light", "dark"] {
            let look = browser.look(path, width, scheme);
            let place = format!("{}, {width} pixels wide, {scheme}", path.display());
            assert!(look.faults.is_empty(), "{place}: {:#?}", look.faults);
            assert_eq!(look.charts, charts, "{place}: charts that can be seen");
            text = look.text;
        }
    }
    text
}

impl Browser {
    /// Starts Chromium; Debian's package is `chromium`.
    pub fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        // Chromium speaks on descriptors 3 and 4. A shell can connect these to the pipes.
        let script = "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >&2";
        let mut process = Command::new("sh")
            .args([
                "-c",
                script,
                "chromium",
                "--headless",
                "--remote-debugging-pipe",
            ])
            // Tests run as root in containers, and open only their own pages.
            .args(["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"])
            .args(["--no-first-run", "--disable-background-networking"])
            .arg(format!("--user-data-dir={}", home.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (to, from) = (
            process.stdin.take().unwrap(),
            process.stdout.take().unwrap(),
        );
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(from).split(0) {
                let message = serde_json::from_slice(&message.unwrap()).unwrap();
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        let mut browser = Self {
            process,
            to,
            from: receiver,
            session: None,
            last: 0,
            heard: Vec::new(),
            _home: home,
        };
        browser.attach();
        browser
    }

    fn attach(&mut self) {
        let target = self.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = self.call("Target.attachToTarget", attach);
        self.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        self.call("Page.setLifecycleEventsEnabled", json!({"enabled": true}));
    }

    /// Opens a page in a window of this width, in the `light` or `dark` scheme.
    pub fn look(&mut self, path: &Path, width: u64, scheme: &str) -> Look {
        let window = json!({
            "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.call("Emulation.setDeviceMetricsOverride", window);
        let scheme = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", scheme);
        self.heard.clear();
        let url = format!("file://{}", path.canonicalize().unwrap().display());
        let opened = self.call("Page.navigate", json!({"url": url}));
        assert!(opened["errorText"].is_null(), "open {url}: {opened}");
        // The load of this page, and not that of an earlier one, which may be reported late.
        let loaded = |event: &Value| {
            let of = &event["params"];
            event["method"] == "Page.lifecycleEvent"
                && of["name"] == "load"
                && of["loaderId"] == opened["loaderId"]
        };
        while !self.heard.iter().any(loaded) {
            let message = self.hear();
            self.heard.push(message);
        }
        let seen = self.call(
            "Runtime.evaluate",
            json!({"expression": LOOK_SCRIPT, "returnByValue": true}),
        );
        let seen = &seen["result"]["value"];
        let list = seen["faults"]
            .as_array()
            .expect("the script that looks at the page failed");
        let words = |fault: &Value| fault.as_str().unwrap().to_owned();
        let mut faults: Vec<_> = list.iter().map(words).collect();
        faults.extend(self.heard.iter().filter_map(|event| complaint(event, &url)));
        Look {
            faults,
            charts: seen["charts"].as_u64().unwrap(),
            tables: seen["tables"].as_u64().unwrap(),
            text: seen["text"].as_str().unwrap().to_owned(),
        }
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.to
            .write_all(format!("{message}\0").as_bytes())
            .unwrap();
        loop {
            let mut answer = self.hear();
            if answer["id"] == self.last {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].take();
            }
            self.heard.push(answer);
        }
    }

    fn hear(&self) -> Value {
        let message = self.from.recv_timeout(PATIENCE);
        message.expect("no word from chromium: is Debian's package `chromium` installed?")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The process may have ended by itself.
        self.process.kill().unwrap_or_default();
        self.process.wait().unwrap();
    }
}

/// What is wrong with the page according to an event of the browser.
fn complaint(event: &Value, url: &str) -> Option<String> {
    let of = &event["params"];
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(format!("exception: {}", of["exceptionDetails"])),
        "Runtime.consoleAPICalled" if of["type"] == "error" => {
            Some(format!("console: {}", of["args"]))
        }
        "Log.entryAdded" => Some(format!("log: {}", of["entry"])),
        "Network.requestWillBeSent" => {
            let asked = of["request"]["url"].as_str()?;
            let own = asked == url || asked.starts_with("data:");
            (!own).then(|| format!("loads {asked}"))
        }
        _ => None,
    }
}

/// Looks at the page as a reader would. Two texts may touch, because lines of a paragraph do.
const LOOK_SCRIPT: &str = r#"(() => {
  const faults = [], root = document.documentElement;
  const wide = Math.max(root.scrollWidth, document.body.scrollWidth);
  if (wide > root.clientWidth) faults.push(`the body is ${wide} wide in ${root.clientWidth}`);
  const seen = all => [...document.querySelectorAll(all)].filter(one => {
    const box = one.getBoundingClientRect();
    return box.width > 0 && box.height > 0;
  });
  const charts = seen('svg[role="img"]');
  for (const chart of charts) {
    const name = chart.getAttribute('aria-label');
    if (!name) faults.push('a chart without a label');
    const frame = chart.getBoundingClientRect();
    const texts = [...chart.querySelectorAll('text')].map(text =>
      [text.textContent, text.getBoundingClientRect()]);
    texts.forEach(([words, box], index) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 ||
          box.bottom > frame.bottom + 1) faults.push(`${name}: "${words}" is cut off`);
      if (box.height < 10) faults.push(`${name}: "${words}" is ${box.height} high`);
      for (const [others, other] of texts.slice(index + 1)) {
        const across = Math.min(box.right, other.right) - Math.max(box.left, other.left);
        const down = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
        if (across > 1 && down > 4) faults.push(`${name}: "${words}" and "${others}" overlap`);
      }
    });
  }
  return {faults, charts: charts.length, tables: seen('table').length,
    text: document.body.innerText};
})()"#;
