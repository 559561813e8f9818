//! Reads the path and the request's fields of every RPC from the descriptors.

use std::collections::BTreeMap;

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorSet};

/// Limit on the depth of nested messages whose fields are listed.
const MAX_DEPTH: usize = 4;

/// An RPC.
#[derive(Debug, Clone)]
pub(crate) struct Rpc {
    /// As in the names of kinds: `kv.batch-get`.
    pub(crate) name: String,
    /// As it is called: `/torc.v1.Kv/BatchGet`.
    pub(crate) path: String,
    pub(crate) fields: Vec<Field>,
}

/// A field of a request, or of a nested message.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    /// `items.key`.
    pub(crate) name: String,
    /// The numbers of the fields that lead to it, ending with its own.
    pub(crate) path: Vec<u32>,
    pub(crate) is_repeated: bool,
    pub(crate) holds: Holds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Numbers encoded as varints.
    Varint,
    /// Numbers of eight bytes.
    Fixed,
    Bytes,
    Message,
}

/// Every RPC of every service.
pub(crate) fn rpcs() -> Result<Vec<Rpc>, prost::DecodeError> {
    let set = FileDescriptorSet::decode(torc_proto::FILE_DESCRIPTOR_SET)?;
    let mut messages = BTreeMap::new();
    for file in &set.file {
        for message in &file.message_type {
            messages.insert(format!(".{}.{}", file.package(), message.name()), message);
        }
    }
    let mut rpcs = Vec::new();
    for file in &set.file {
        for service in &file.service {
            for method in &service.method {
                let mut fields = Vec::new();
                if let Some(request) = messages.get(method.input_type()) {
                    add_fields(&messages, request, ("", &[]), &mut fields);
                }
                rpcs.push(Rpc {
                    name: format!("{}.{}", dashed(service.name()), dashed(method.name())),
                    path: format!("/{}.{}/{}", file.package(), service.name(), method.name()),
                    fields,
                });
            }
        }
    }
    Ok(rpcs)
}

fn add_fields(
    messages: &BTreeMap<String, &DescriptorProto>,
    of: &DescriptorProto,
    (before, path): (&str, &[u32]),
    into: &mut Vec<Field>,
) {
    if path.len() >= MAX_DEPTH {
        return;
    }
    for field in &of.field {
        let name = format!("{before}{}", field.name().replace('_', "-"));
        let path: Vec<u32> = path
            .iter()
            .copied()
            .chain([field.number() as u32])
            .collect();
        let holds = match field.r#type() {
            Type::Message => Holds::Message,
            Type::String | Type::Bytes => Holds::Bytes,
            Type::Fixed64 | Type::Sfixed64 | Type::Double => Holds::Fixed,
            _ => Holds::Varint,
        };
        if let (Holds::Message, Some(inner)) = (holds, messages.get(field.type_name())) {
            let inside = format!("{name}.");
            add_fields(messages, inner, (&inside, &path), into);
        }
        into.push(Field {
            name,
            path,
            is_repeated: field.label() == Label::Repeated,
            holds,
        });
    }
}

/// Converts `BatchGet` to `batch-get`.
fn dashed(name: &str) -> String {
    let mut dashed = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !dashed.is_empty() {
            dashed.push('-');
        }
        dashed.extend(letter.to_lowercase());
    }
    dashed
}

impl Field {
    /// A message in which only this field is set; `contents` includes the lengths or values as
    /// encoded.
    pub(crate) fn alone(&self, contents: &[u8]) -> Vec<u8> {
        let Some((own, outer)) = self.path.split_last() else {
            return Vec::new();
        };
        let mut message = Vec::new();
        varint(&mut message, u64::from(*own) << 3 | self.holds.wire_type());
        message.extend_from_slice(contents);
        enclosed(outer, message)
    }

    /// This many empty elements of a repeated field.
    pub(crate) fn many(&self, count: usize) -> Vec<u8> {
        let Some((own, outer)) = self.path.split_last() else {
            return Vec::new();
        };
        let mut element = Vec::new();
        if matches!(self.holds, Holds::Varint | Holds::Fixed) {
            // Packed, with one byte each, or eight.
            let width = if self.holds == Holds::Fixed { 8 } else { 1 };
            varint(&mut element, u64::from(*own) << 3 | 2);
            varint(&mut element, (count * width) as u64);
            element.resize(element.len() + count * width, 0);
            return enclosed(outer, element);
        }
        varint(&mut element, u64::from(*own) << 3 | 2);
        element.push(0);
        enclosed(outer, element.repeat(count))
    }
}

impl Holds {
    const fn wire_type(self) -> u64 {
        match self {
            Self::Varint => 0,
            Self::Fixed => 1,
            Self::Bytes | Self::Message => 2,
        }
    }
}

/// Wraps a message in others; `outer` has their field numbers, outermost first.
fn enclosed(outer: &[u32], mut message: Vec<u8>) -> Vec<u8> {
    for number in outer.iter().rev() {
        let mut around = Vec::with_capacity(message.len() + 16);
        varint(&mut around, u64::from(*number) << 3 | 2);
        varint(&mut around, message.len() as u64);
        around.append(&mut message);
        message = around;
    }
    message
}

pub(crate) fn varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_proto::v1;

    #[test]
    fn every_rpc_is_found_with_its_fields() {
        let rpcs = rpcs().unwrap();
        let of = |name: &str| rpcs.iter().find(|rpc| rpc.name == name).unwrap();
        let sketch = of("cluster.sketch-keys");
        assert_eq!(sketch.path, "/torc.v1.Cluster/SketchKeys");
        let weights = sketch.fields.iter();
        let mut weights = weights.filter(|field| field.name == "namespaces.weights");
        let weights = weights.next().unwrap();
        assert!(weights.is_repeated && weights.holds == Holds::Message);
        let made = v1::SketchKeysRequest::decode(&weights.many(3)[..]).unwrap();
        assert_eq!(made.namespaces[0].weights.len(), 3);
        let partitions = sketch
            .fields
            .iter()
            .find(|field| field.name == "partitions");
        let made = partitions.unwrap().many(5);
        let made = v1::SketchKeysRequest::decode(&made[..]).unwrap();
        assert_eq!(made.partitions, [0; 5]);
        let session = of("kv.session");
        let key = session.fields.iter().find(|field| field.name == "get.key");
        let made = v1::SessionRequest::decode(&key.unwrap().alone(b"\x01k")[..]).unwrap();
        assert!(matches!(
            made.operation,
            Some(v1::session_request::Operation::Get(get)) if &get.key[..] == b"k"
        ));
    }
}
