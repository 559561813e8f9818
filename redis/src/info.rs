//! `INFO` and `CONFIG GET`: a node's description of itself for clients and tools.

use bytes::Bytes;
use torc_resp::{Pattern, Reply};

use crate::Server;

/// The version of Redis whose commands Torc implements.
pub(super) const REDIS_VERSION: &str = "7.2.0";

type Section = (&'static str, fn(&Server) -> Vec<(&'static str, String)>);

const SECTIONS: &[Section] = &[
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("Cluster", cluster),
];

/// The requested sections; all sections if none was named.
pub(super) fn info(server: &Server, wanted: &[Bytes]) -> Reply {
    let is_wanted = |name: &str| {
        let is = |wanted: &Bytes| {
            let all: [&[u8]; 3] = [b"all", b"default", b"everything"];
            wanted.eq_ignore_ascii_case(name.as_bytes())
                || all.iter().any(|all| wanted.eq_ignore_ascii_case(all))
        };
        wanted.is_empty() || wanted.iter().any(is)
    };
    let sections = SECTIONS.iter().filter(|(name, _)| is_wanted(name));
    let sections = sections.map(|(name, lines)| {
        let lines = lines(server).into_iter();
        let lines = lines.map(|(name, value)| format!("{name}:{value}\r\n"));
        format!("# {name}\r\n{}", lines.collect::<String>())
    });
    Reply::Text(sections.collect::<Vec<_>>().join("\r\n"))
}

fn server(server: &Server) -> Vec<(&'static str, String)> {
    let uptime = server.started.elapsed().as_secs();
    let port = server
        .options
        .address
        .rsplit_once(':')
        .map_or("0", |(_, port)| port);
    vec![
        ("redis_version", REDIS_VERSION.to_owned()),
        ("torc_version", server.options.version.clone()),
        ("redis_mode", "standalone".to_owned()),
        ("arch_bits", usize::BITS.to_string()),
        ("process_id", std::process::id().to_string()),
        ("tcp_port", port.to_owned()),
        ("uptime_in_seconds", uptime.to_string()),
        ("uptime_in_days", (uptime / 86_400).to_string()),
    ]
}

fn clients(server: &Server) -> Vec<(&'static str, String)> {
    let connections = server.metrics.connections.get();
    let most = server.options.max_connections;
    vec![
        ("connected_clients", connections.to_string()),
        ("maxclients", most.to_string()),
    ]
}

fn memory(server: &Server) -> Vec<(&'static str, String)> {
    let memory = server.node.resident_bytes();
    vec![
        ("used_memory", memory.to_string()),
        ("used_memory_rss", memory.to_string()),
        ("maxmemory", "0".to_owned()),
        ("maxmemory_policy", "noeviction".to_owned()),
        ("in_flight_bytes", server.node.charged_bytes().to_string()),
    ]
}

fn persistence(_: &Server) -> Vec<(&'static str, String)> {
    vec![("loading", "0".to_owned()), ("aof_enabled", "1".to_owned())]
}

fn stats(server: &Server) -> Vec<(&'static str, String)> {
    let resp = &server.metrics;
    vec![
        ("total_commands_processed", resp.commands().to_string()),
        ("combined_writes", resp.combined.get().to_string()),
        ("write_conflicts", resp.conflicts.get().to_string()),
    ]
}

fn replication(_: &Server) -> Vec<(&'static str, String)> {
    // Each node answers as if it were a standalone server.
    vec![
        ("role", "master".to_owned()),
        ("connected_slaves", "0".to_owned()),
    ]
}

fn cluster(_: &Server) -> Vec<(&'static str, String)> {
    vec![("cluster_enabled", "0".to_owned())]
}

/// Settings whose names match one of the globs.
pub(super) fn config(server: &Server, globs: Vec<Bytes>) -> Reply {
    let databases = server
        .options
        .databases
        .keys()
        .last()
        .map_or(1, |last| last + 1);
    let settings = [
        ("appendfsync", "always".to_owned()),
        ("appendonly", "yes".to_owned()),
        ("databases", databases.to_string()),
        ("maxclients", server.options.max_connections.to_string()),
        ("maxmemory", "0".to_owned()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("proto-max-bulk-len", torc_record::MAX_VALUE_LEN.to_string()),
        ("save", String::new()),
        ("tcp-keepalive", super::KEEPALIVE.as_secs().to_string()),
        ("timeout", "0".to_owned()),
    ];
    let globs = globs
        .into_iter()
        .map(|glob| glob.to_ascii_lowercase().into());
    let globs: Vec<_> = globs.map(Pattern::new).collect();
    let wanted = settings.into_iter().filter(|(name, _)| {
        let mut globs = globs.iter();
        globs.any(|glob| glob.matches(name.as_bytes()))
    });
    let pairs = wanted.map(|(name, value)| (Reply::text(name), Reply::text(value)));
    Reply::Map(pairs.collect())
}
