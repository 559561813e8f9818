//! The console in a real browser, with a real cluster.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use torc_testkit::redis::Redis;

use crate::browser::Browser;
use crate::join::fill;
use crate::processes::{Cluster, http_get, until};

/// A key chosen by an attacker.
const HOSTILE: &str = "<img src=x onerror=\"document.title='owned'\">";

async fn during_a_join() -> Cluster {
    let with = |zone: &str| {
        let zone = format!("--zone={zone}");
        // Slow, so that the join is still running while the test examines the page.
        let fixed = [
            "--replicas=3",
            "--hot-keys-interval-s=1",
            "--transfer-mib-per-s=1",
        ];
        fixed
            .map(str::to_owned)
            .into_iter()
            .chain([zone])
            .collect::<Vec<_>>()
    };
    let extra = with("east");
    let extra: Vec<&str> = extra.iter().map(String::as_str).collect();
    let mut cluster = Cluster::start_with(3, &extra).await;
    let client = cluster.client().await;
    fill(&client, 24_000).await;
    client.put(HOSTILE, "v").await.unwrap();
    assert!(cluster.kvctl(&["flush"]).status.success());
    let extra = with("west");
    let extra: Vec<&str> = extra.iter().map(String::as_str).collect();
    let spare = cluster.spare_with("node-4", &extra).await;
    let address = cluster.nodes[spare].grpc.to_string();
    let joined = cluster.kvctl(&["join-node", &address, "--no-wait"]);
    assert!(joined.status.success(), "{joined:?}");
    cluster
}

/// Sends requests until it is dropped, most of them for the hostile key.
struct Traffic(tokio::task::JoinHandle<()>);

impl Traffic {
    async fn start(cluster: &Cluster) -> Self {
        let client = cluster.client().await;
        Self(tokio::spawn(async move {
            for number in (0..300).cycle() {
                // Some fail while a node is down; only the display matters here.
                let _ = client.get(HOSTILE).await;
                let _ = client.get(HOSTILE).await;
                let _ = client.get(format!("filler-{number}")).await;
                let _ = client.put(format!("filler-{number}"), vec![1; 300]).await;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }))
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The state of the page once it shows figures.
const FIGURES: &str = "document.querySelectorAll('#nodes tbody tr').length === 4 \
    && document.querySelectorAll('#ring-picture path.fill').length > 96 \
    && document.querySelector('#hot tbody').innerText.includes('onerror') \
    && document.querySelector('#rates path.s1').getAttribute('d').length > 12 \
    && document.querySelectorAll('#heat tbody tr').length > 2";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_console_shows_a_cluster_during_a_join_and_no_key_becomes_markup() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let mut cluster = during_a_join().await;
    let _traffic = Traffic::start(&cluster).await;
    let url = format!("http://{}/", cluster.nodes[0].http);
    browser.look(1360, "light");
    browser.open(&url);
    browser.until("there are figures", FIGURES).await;
    let joins = "document.querySelector('#change').innerText.startsWith('join of node 4') \
        && document.querySelector('#change progress').value > 0 \
        && document.querySelectorAll('#ring-picture line.moving').length > 0";
    browser.until("the join is told and drawn", joins).await;
    // The join does not last until the end of this test.
    browser.shoot("light");
    let text = |browser: &mut Browser, of: &str| {
        let text = browser.value(&format!("document.querySelector('{of}').innerText"));
        text.as_str().unwrap().to_owned()
    };
    assert_eq!(text(&mut browser, "#live"), "Live");
    let summary = text(&mut browser, "#summary");
    assert!(summary.contains("bits per sealed key"), "{summary}");
    let nodes = text(&mut browser, "#nodes");
    assert!(
        nodes.contains("west") && nodes.contains("joining"),
        "{nodes}"
    );
    let reserved = "document.querySelector('#generations').innerText.includes('reserved') \
        && !document.querySelector('#generations-card').hidden";
    assert_eq!(browser.value(reserved), false, "there is none");
    let create = ["namespace", "create", "pages", "--mode", "static"];
    assert!(cluster.kvctl(&create).status.success());
    let to = cluster.dir.path().join("reservation");
    let reserve = [
        "generation",
        "reserve",
        "pages",
        "--to",
        to.to_str().unwrap(),
    ];
    assert!(cluster.kvctl(&reserve).status.success());
    browser.until("the generation is shown", reserved).await;
    let hot = text(&mut browser, "#hot tbody tr:first-child");
    assert!(hot.starts_with(HOSTILE), "the hottest key, as it is: {hot}");
    let course = "document.querySelector('#hot tbody tr:first-child svg.spark polyline') \
        ?.getAttribute('points').split(' ').some((point) => Number(point.split(',')[1]) < 19)";
    browser
        .until("the course of its accesses is drawn", course)
        .await;

    let explain = "document.querySelector('#explain-key').value = KEY; \
        document.querySelector('#explain-form').requestSubmit()";
    let key = serde_json::to_string(HOSTILE).unwrap();
    browser.value(&explain.replace("KEY", &key));
    let told = "document.querySelector('#explained').innerText.includes('a read needs 2 of nodes') \
        && document.querySelector('#ring-picture path.found') !== null";
    browser.until("the key is explained and marked", told).await;
    assert!(text(&mut browser, "#explained").contains(HOSTILE));
    let page = text(&mut browser, "main");
    assert!(
        !page.contains("null")
            && !page.contains("[object")
            && !page.contains("undefined")
            && !page.contains("NaN"),
        "{page}"
    );
    let images = browser.value("document.querySelectorAll('main img').length");
    assert_eq!(images, 0, "no key became an element");
    assert_eq!(browser.value("document.title"), "Torc console");
    usable_without_a_mouse(&mut browser);
    let fits = "document.documentElement.scrollWidth <= innerWidth";
    assert_eq!(browser.value(fits), true, "nothing is cut off");

    browser.look(1360, "dark");
    let dark = "getComputedStyle(document.body).colorScheme !== null \
        && getComputedStyle(document.documentElement).backgroundColor === 'rgb(15, 20, 27)'";
    browser.until("it is dark", dark).await;
    browser.shoot("dark");
    browser.look(360, "light");
    browser.until("it fits a phone", fits).await;
    browser.shoot("phone");
    assert_eq!(browser.complaints, Vec::<String>::new());

    cluster.nodes[0].kill_9();
    let lost = "document.querySelector('#live').innerText.startsWith('Connection lost') \
        && document.querySelector('main').classList.contains('stale')";
    browser
        .until("it is said that the stream is lost", lost)
        .await;
    cluster.nodes[0].start().unwrap();
    cluster.nodes[0].ready().await.unwrap();
    let back = "document.querySelector('#live').innerText === 'Live' \
        && !document.querySelector('main').classList.contains('stale')";
    browser.until("the stream is back", back).await;
}

fn usable_without_a_mouse(browser: &mut Browser) {
    let unlabelled = "[...document.querySelectorAll('input, select, button')]\
        .filter((it) => !it.labels?.length && !it.innerText).length";
    assert_eq!(browser.value(unlabelled), 0, "each control has a name");
    let roles = browser.roles();
    let has = |role: &str, name: &str| {
        roles
            .iter()
            .any(|(its, named)| its == role && named.contains(name))
    };
    for (role, name) in [
        ("banner", ""),
        ("main", ""),
        ("contentinfo", ""),
        ("status", ""),
        ("heading", "Hot keys"),
        ("region", "Nodes"),
        ("table", "The ring in figures"),
        ("image", "Ring of 1024 partitions"),
        ("image", "Memory of all nodes"),
        ("textbox", "Key"),
        ("combobox", "Window"),
    ] {
        assert!(has(role, name), "no {role} `{name}`: {roles:?}");
    }
    browser.value("document.querySelector('#rates').focus()");
    let outline = browser.value("getComputedStyle(document.querySelector('.skip')).position");
    assert_eq!(outline, "absolute", "there is a way past the header");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_console_shows_is_json_too() {
    let cluster = Cluster::start_with(
        2,
        &["--replicas=2", "--partitions=64", "--hot-keys-interval-s=1"],
    )
    .await;
    let client = cluster.client().await;
    let http = cluster.nodes[1].http;
    let json = async |path: &str| -> serde_json::Value {
        let (status, body) = http_get(http, path).await;
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    };
    until("every node counts accesses", async || {
        let (status, body) = http_get(http, "/hot-keys").await;
        let told: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
        let nodes = told["nodes"].as_array().cloned().unwrap_or_default();
        status == 200 && nodes.len() == 2 && nodes.iter().all(|node| node["problem"].is_null())
    })
    .await;
    let mut redis = Redis::connect(cluster.nodes[1].resp).await;
    until(
        "both are in the history, and the put in the heat",
        async || {
            client.put(HOSTILE, "v").await.unwrap();
            assert_eq!(redis.told("PING").await, "+PONG");
            let history = json("/console/history").await;
            let samples = history["samples"].as_array().unwrap().clone();
            let has = |rate: &str| samples.iter().any(|it| it[rate].as_f64() > Some(0.0));
            let state = json("/console/state").await;
            let heat = state["heat_milli_per_s"].as_array().unwrap().clone();
            let is_warm = heat.len() == 64 && heat.iter().any(|it| it.as_u64() > Some(0));
            has("writes_per_s") && has("redis_per_s") && is_warm
        },
    )
    .await;
    let history = json("/console/history").await;
    assert_eq!(history["most_samples"], 720);
    let key = "%3Cimg%20src%3Dx%20onerror%3D%22document.title%3D%27owned%27%22%3E";
    let explained = json(&format!("/console/explain?key={key}")).await;
    let output = cluster.kvctl(&["explain", HOSTILE, "--output", "json"]);
    let by_kvctl: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (field, value) in by_kvctl.as_object().unwrap() {
        if !["members", "excluded", "hot"].contains(&field.as_str()) {
            assert_eq!(explained[field], *value, "{field}");
        }
    }
    for (path, status) in [
        ("/console/explain", 400),
        ("/console/explain?key=", 400),
        ("/console/explain?key=k&namespace=none", 404),
        ("/console/history?node=x", 400),
        ("/console/none", 404),
    ] {
        assert_eq!(http_get(http, path).await.0, status, "{path}");
    }
}

/// Requests the live state; returns the status line and the connection.
async fn listen(to: std::net::SocketAddr) -> (String, BufReader<TcpStream>) {
    let mut stream = BufReader::new(TcpStream::connect(to).await.unwrap());
    let request = b"GET /console/events HTTP/1.1\r\nHost: test\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    (line, stream)
}

#[tokio::test(flavor = "multi_thread")]
async fn viewers_have_places_and_give_them_back() {
    let cluster = Cluster::start_with(1, &["--partitions=64"]).await;
    let http = cluster.nodes[0].http;
    let mut viewers = Vec::new();
    for _ in 0..32 {
        let (line, stream) = listen(http).await;
        assert!(line.contains(" 200 "), "{line}");
        viewers.push(stream);
    }
    let (line, _) = listen(http).await;
    assert!(line.contains(" 503 "), "{line}");
    let mut lines = viewers.pop().unwrap().lines();
    let mut states = 0;
    while states < 2 {
        let line = lines.next_line().await.unwrap().expect("it goes on");
        states += usize::from(line.starts_with("data: {\"at_ms\":"));
    }
    drop((viewers, lines));
    until("there are places again", async || {
        listen(http).await.0.contains(" 200 ")
    })
    .await;
}
