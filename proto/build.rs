//! Compiles the interface with a pure-Rust protobuf compiler: no `protoc` is needed. Also generates
//! the message shapes that `src/codec.rs` needs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use prost::Message as _;
use tonic_prost_build::FileDescriptorSet;

type Failed = Box<dyn std::error::Error>;

fn main() -> Result<(), Failed> {
    let files = [
        "torc/v1/kv.proto",
        "torc/v1/cluster.proto",
        "torc/v1/link.proto",
        "torc/v1/replica.proto",
    ];
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(files, ["proto"])?;
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    std::fs::write(out.join("shapes.rs"), shapes(&descriptors)?)?;
    std::fs::write(out.join("access.rs"), access(&descriptors)?)?;
    tonic_prost_build::configure()
        .bytes(".")
        // Messages with secrets: see `src/secret.rs`.
        .skip_debug([
            "torc.v1.CreateTokenResponse",
            "torc.v1.EnrolNodeRequest",
            "torc.v1.EnrolNodeResponse",
            "torc.v1.GiveAuthorityResponse",
        ])
        .codec_path("crate::codec::BoundedCodec")
        .compile_fds(descriptors)?;
    Ok(())
}

/// The access that each call requires. A call that is missing here, or an entry without a call,
/// fails the build.
const ACCESS: [(&str, &str); 44] = [
    ("Kv/Get", "Read"),
    ("Kv/Put", "Write"),
    ("Kv/Delete", "Write"),
    ("Kv/BatchGet", "Read"),
    ("Kv/BatchPut", "Write"),
    ("Kv/Scan", "Read"),
    ("Kv/GetKey", "Read"),
    ("Kv/Session", "ReadOrWrite"),
    ("Cluster/GetTopology", "Client"),
    ("Cluster/Join", "Admin"),
    ("Cluster/Leave", "Admin"),
    ("Cluster/Replace", "Admin"),
    ("Cluster/Reweight", "Admin"),
    ("Cluster/AlterNamespace", "Admin"),
    ("Cluster/Abort", "Admin"),
    ("Cluster/CreateNamespace", "Admin"),
    ("Cluster/DropNamespace", "Admin"),
    ("Cluster/RaiseEpoch", "Admin"),
    ("Cluster/ChangeGeneration", "Admin"),
    ("Cluster/ListGenerations", "Observe"),
    ("Cluster/Status", "Observe"),
    ("Cluster/Flush", "Admin"),
    ("Cluster/Compact", "Admin"),
    ("Cluster/Explain", "Observe"),
    ("Cluster/HotKeys", "Observe"),
    ("Cluster/HotWindow", "Observe"),
    ("Cluster/SketchKeys", "Read"),
    ("Cluster/WriteBackup", "Admin"),
    ("Cluster/CreateToken", "Admin"),
    ("Cluster/ListTokens", "Admin"),
    ("Cluster/RevokeToken", "Admin"),
    ("Cluster/EnrolNode", "Anyone"),
    ("Cluster/GetAuthorities", "Observe"),
    ("Cluster/RotateAuthority", "Admin"),
    ("Replica/Identify", "Node"),
    ("Replica/Enlist", "Node"),
    ("Replica/CopySlices", "Node"),
    ("Replica/Summarize", "Node"),
    ("Replica/Link", "Node"),
    ("Replica/GiveAuthority", "Node"),
    ("TopologyGroup/AppendEntries", "Node"),
    ("TopologyGroup/InstallSnapshot", "Node"),
    ("TopologyGroup/Vote", "Node"),
    ("TopologyGroup/Propose", "Node"),
];

/// An expression for the function from a path to its [`ACCESS`].
fn access(descriptors: &FileDescriptorSet) -> Result<String, Failed> {
    let services = descriptors.file.iter().flat_map(|file| &file.service);
    let mut calls: Vec<String> = services
        .flat_map(|service| {
            let of = service.name().to_owned();
            let methods = service.method.iter();
            methods.map(move |method| format!("{of}/{}", method.name()))
        })
        .collect();
    let mut paths = BTreeMap::<&str, Vec<String>>::new();
    for (call, access) in ACCESS {
        let at = calls.iter().position(|known| known == call);
        let at = at.ok_or_else(|| format!("ACCESS has {call}, which is no call"))?;
        calls.swap_remove(at);
        let path = format!("\"/torc.v1.{call}\"");
        paths.entry(access).or_default().push(path);
    }
    if !calls.is_empty() {
        return Err(format!("ACCESS does not say who may call {calls:?}").into());
    }
    let mut code = "match path {\n".to_owned();
    for (access, paths) in paths {
        writeln!(code, "    {} => Some(Access::{access}),", paths.join(" | "))?;
    }
    code.push_str("    _ => None,\n}\n");
    Ok(code)
}

// From google/protobuf/descriptor.proto.
const LABEL_REPEATED: i32 = 3;
const TYPE_STRING: i32 = 9;
const TYPE_MESSAGE: i32 = 11;
const TYPE_BYTES: i32 = 12;

/// A `Shape` for each message of a service: its repeated fields, and its fields that are messages.
fn shapes(descriptors: &FileDescriptorSet) -> Result<String, Failed> {
    let mut code = String::new();
    let messages = descriptors.file.iter().flat_map(|file| &file.message_type);
    // Messages with nested messages belong to links: gRPC sees them as bytes, and `src/link` bounds
    // them.
    for message in messages.filter(|message| message.nested_type.is_empty()) {
        let name = message.name();
        let is_request = name.ends_with("Request");
        writeln!(
            code,
            "static {}: Shape = Shape {{ is_request: {is_request}, fields: &[",
            constant(name)
        )?;
        for field in &message.field {
            let is_repeated = field.label == Some(LABEL_REPEATED);
            let element = match (field.r#type, field.type_name().strip_prefix(".torc.v1.")) {
                (Some(TYPE_MESSAGE), Some(own)) => {
                    let shape = constant(own);
                    format!("Element::Message(&{shape}, size_of::<v1::{own}>())")
                }
                (Some(TYPE_MESSAGE), None) => return Err(format!("{name}: a foreign field").into()),
                (Some(TYPE_STRING | TYPE_BYTES), _) => "Element::Bytes".to_owned(),
                _ => "Element::Number".to_owned(),
            };
            writeln!(
                code,
                "    Field {{ number: {}, is_repeated: {is_repeated}, element: {element} }},",
                field.number()
            )?;
        }
        writeln!(code, "] }};")?;
        writeln!(
            code,
            "impl Shaped for v1::{name} {{ fn shape() -> &'static Shape {{ &{} }} }}",
            constant(name)
        )?;
    }
    Ok(code)
}

/// Turns `BatchGetRequest` into `BATCH_GET_REQUEST`.
fn constant(name: &str) -> String {
    let mut constant = String::new();
    for (at, letter) in name.chars().enumerate() {
        if letter.is_uppercase() && at > 0 {
            constant.push('_');
        }
        constant.push(letter.to_ascii_uppercase());
    }
    constant
}
