//! Headless Chromium, controlled through two named pipes with its DevTools protocol: JSON messages
//! that end with a zero byte.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::processes::TIMEOUT;

/// A browser with one page. Dropping it ends the browser.
pub(crate) struct Browser {
    child: Child,
    to: File,
    from: Receiver<Value>,
    session: Option<String>,
    calls: u64,
    /// Errors and warnings of the page.
    pub(crate) complaints: Vec<String>,
    _dir: TempDir,
}

fn installed() -> Option<&'static str> {
    let is_there = |name: &&str| {
        let mut version = Command::new(name);
        version.arg("--version").stdout(Stdio::null());
        version.stderr(Stdio::null()).status().is_ok()
    };
    ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(is_there)
}

impl Browser {
    /// `None`, with the reason printed, if there is no Chromium.
    pub(crate) fn start() -> Option<Self> {
        let Some(program) = installed() else {
            eprintln!("skipped: there is no chromium (Debian: apt-get install chromium)");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        let [to, from] = ["to", "from"].map(|name| dir.path().join(name));
        let made = Command::new("mkfifo").args([&to, &from]).status().unwrap();
        assert!(made.success());
        // Opening a pipe for reading and writing does not block.
        let open = |path: &Path| File::options().read(true).write(true).open(path).unwrap();
        let (to_it, from_it) = (open(&to), open(&from));
        let child = Command::new("sh")
            .args([
                "-c",
                r#"to=$1 from=$2; shift 2; exec "$@" 3<"$to" 4>"$from""#,
                "sh",
            ])
            .args([&to, &from])
            .args([program, "--headless=new", "--remote-debugging-pipe"])
            .args(["--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
            .arg(format!(
                "--user-data-dir={}",
                dir.path().join("profile").display()
            ))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(from_it).split(0) {
                let message = serde_json::from_slice(&message.unwrap()).unwrap();
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            child,
            to: to_it,
            from: receiver,
            session: None,
            calls: 0,
            complaints: Vec::new(),
            _dir: dir,
        };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", &attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        Some(browser)
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&message).unwrap();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap();
        loop {
            let answer = self.from.recv_timeout(TIMEOUT).expect(method);
            if answer["id"] == self.calls {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            let is_complaint = match answer["method"].as_str() {
                Some("Runtime.exceptionThrown") => true,
                Some("Log.entryAdded") => answer["params"]["entry"]["level"] == "error",
                _ => false,
            };
            if is_complaint {
                self.complaints.push(answer["params"].to_string());
            }
        }
    }

    pub(crate) fn open(&mut self, url: &str) {
        self.call("Page.navigate", &json!({ "url": url }));
    }

    /// Sets the page's width and colour scheme.
    pub(crate) fn look(&mut self, width: u32, scheme: &str) {
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call(
            "Emulation.setEmulatedMedia",
            &json!({ "features": features }),
        );
    }

    /// The value of a JavaScript expression.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.call("Runtime.evaluate", &params);
        let thrown = &answer["exceptionDetails"];
        assert!(thrown.is_null(), "{expression}: {thrown}");
        answer["result"]["value"].take()
    }

    /// Waits until an expression is true.
    pub(crate) async fn until(&mut self, what: &str, expression: &str) {
        let deadline = Instant::now() + TIMEOUT;
        while self.value(expression) != true {
            if Instant::now() >= deadline {
                let page = self.value("document.body.innerText");
                panic!("waited in vain until {what}: {page}");
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }

    /// The accessibility tree: the role and name of each node.
    pub(crate) fn roles(&mut self) -> Vec<(String, String)> {
        let tree = self.call("Accessibility.getFullAXTree", &json!({}));
        let nodes = tree["nodes"].as_array().unwrap().iter();
        let text = |value: &Value| value["value"].as_str().unwrap_or_default().to_owned();
        let told = nodes.filter(|node| node["ignored"] != true);
        told.map(|node| (text(&node["role"]), text(&node["name"])))
            .collect()
    }

    /// Saves a picture of the whole page in the directory `TORC_TEST_SHOTS`, if it is set.
    pub(crate) fn shoot(&mut self, name: &str) {
        let Some(dir) = std::env::var_os("TORC_TEST_SHOTS") else {
            return;
        };
        let params = json!({ "format": "png", "captureBeyondViewport": true });
        let shot = self.call("Page.captureScreenshot", &params);
        let bytes = STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(Path::new(&dir).join(format!("{name}.png")), bytes).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let close = b"{\"id\":0,\"method\":\"Browser.close\"}\0";
        // All its processes end with the main process.
        if self.to.write_all(close).is_err() || std::thread::panicking() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
