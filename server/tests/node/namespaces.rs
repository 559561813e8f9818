//! Namespaces with different numbers of replicas than the cluster's, as clients in any language see
//! them: real nodes, real sockets.

use crate::common::{Servers, entries_of, settings, until, value_of};
use bytes::Bytes;
use futures::StreamExt as _;
use torc_proto::v1::{
    CreateNamespaceRequest, DropNamespaceRequest, ExplainRequest, GetRequest, NamespaceMode,
    PartitionState, PutRequest, ScanRequest, ScanResponse,
};
use torc_proto::{Fault, Reason, ScanPosition};
use torc_server::Node;
use torc_server::config::RawSettings;

const KEYS: usize = 40;
/// Partitions of a layer.
const PARTITIONS: u32 = 64;

async fn create(
    servers: &Servers,
    name: &str,
    mode: NamespaceMode,
    replicas: u32,
) -> Result<(), Fault> {
    let request = CreateNamespaceRequest {
        name: name.to_owned(),
        mode: mode.into(),
        replicas,
    };
    let created = servers.cluster(1).await.create_namespace(request).await;
    let created = created.map_err(|status| Fault::from_status(&status))?;
    assert_eq!(created.into_inner().namespace.unwrap().replicas, replicas);
    Ok(())
}

fn get(namespace: &str, key: &str) -> GetRequest {
    GetRequest {
        namespace: namespace.to_owned(),
        key: key.to_owned().into(),
        ..GetRequest::default()
    }
}

async fn put(servers: &Servers, index: usize, namespace: &str, key: &str) {
    let mut kv = servers.kv(index).await;
    until("the node knows the namespace and writes", async || {
        let request = PutRequest {
            namespace: namespace.to_owned(),
            key: key.to_owned().into(),
            value: format!("{namespace} {key}").into(),
            ..PutRequest::default()
        };
        kv.put(request).await.is_ok()
    })
    .await;
}

async fn partition_of(servers: &Servers, namespace: &str, key: &str) -> PartitionState {
    let request = ExplainRequest {
        namespace: namespace.to_owned(),
        key: key.to_owned().into(),
        ..ExplainRequest::default()
    };
    let explained = servers.cluster(0).await.explain(request).await;
    let explained = explained.unwrap().into_inner();
    let partition = explained.partition.unwrap();
    let holds = explained.replicas.iter().filter(|replica| replica.found);
    assert_eq!(holds.count(), partition.nodes.len(), "{namespace} {key}");
    partition
}

/// Checks that every node gets and lists everything in every namespace, and nothing else.
async fn check(servers: &Servers, namespaces: &[&str]) {
    for index in 0..servers.nodes.len() {
        let mut kv = servers.kv(index).await;
        for namespace in namespaces {
            let wanted = (0..KEYS).map(|n| (format!("k{n:02}"), format!("{namespace} k{n:02}")));
            let wanted: Vec<_> = wanted.collect();
            for (key, value) in &wanted {
                let got = value_of(&mut kv, get(namespace, key)).await;
                assert_eq!(got.as_ref(), Some(value), "node {index}");
            }
            let listed = entries_of(&mut kv, namespace).await;
            assert_eq!(listed, wanted, "{namespace} listed by node {index}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_have_as_many_replicas_as_their_namespace_through_a_join_and_a_restart() {
    let mut servers = Servers::start().await;
    create(&servers, "one", NamespaceMode::Linearizable, 1)
        .await
        .unwrap();
    create(&servers, "two", NamespaceMode::Eventual, 2)
        .await
        .unwrap();
    let refused = create(&servers, "four", NamespaceMode::Linearizable, 4).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.reason, Reason::Refused, "{refused:?}");
    assert!(
        refused.message.contains("the cluster has 3."),
        "{refused:?}"
    );

    let namespaces = ["default", "one", "two"];
    for number in 0..KEYS {
        for namespace in namespaces {
            put(&servers, number % 3, namespace, &format!("k{number:02}")).await;
        }
    }
    check(&servers, &namespaces).await;
    for (namespace, replicas, layer) in [("default", 3, 0), ("one", 1, 1), ("two", 2, 2)] {
        let partition = partition_of(&servers, namespace, "k07").await;
        assert_eq!(partition.nodes.len(), replicas, "{namespace}");
        assert_eq!(partition.partition / PARTITIONS, layer, "{namespace}");
    }

    servers.join().await;
    create(&servers, "four", NamespaceMode::Linearizable, 4)
        .await
        .unwrap();
    for number in 0..KEYS {
        put(&servers, number % 4, "four", &format!("k{number:02}")).await;
    }
    let namespaces = ["default", "one", "two", "four"];
    check(&servers, &namespaces).await;
    let mut on_the_newcomer = [0; 4];
    for (namespace, count) in namespaces.into_iter().zip(&mut on_the_newcomer) {
        for number in 0..KEYS {
            let partition = partition_of(&servers, namespace, &format!("k{number:02}")).await;
            *count += usize::from(partition.nodes.contains(&4));
        }
    }
    let all_have_some = on_the_newcomer.iter().all(|count| *count > 0);
    assert!(
        all_have_some && on_the_newcomer[3] == KEYS,
        "{on_the_newcomer:?}"
    );

    servers.nodes.remove(0).stop().await.unwrap();
    let settings = settings(servers.dir.path().join("1"));
    let again = Node::start(settings.check().unwrap()).await.unwrap();
    servers.nodes.insert(0, again);
    servers.formed().await;
    check(&servers, &namespaces).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_namespace_answers_nobody_and_its_records_are_deleted() {
    let servers = Servers::start().await;
    let namespaces = [
        ("one", NamespaceMode::Linearizable, 1),
        ("urls", NamespaceMode::Linearizable, 3),
        ("logs", NamespaceMode::Eventual, 3),
    ];
    for (namespace, mode, replicas) in namespaces {
        create(&servers, namespace, mode, replicas).await.unwrap();
        for number in 0..KEYS {
            put(&servers, number % 3, namespace, &format!("k{number:02}")).await;
        }
    }
    for number in 0..KEYS {
        put(&servers, 0, "default", &format!("k{number:02}")).await;
    }
    let mut cluster = servers.cluster(2).await;
    for (name, ..) in namespaces {
        let name = name.to_owned();
        let dropped = cluster.drop_namespace(DropNamespaceRequest { name }).await;
        assert!(dropped.unwrap().into_inner().unconfirmed.is_empty());
    }
    for index in 0..3 {
        let mut kv = servers.kv(index).await;
        for name in ["one", "urls", "logs", "~2", "~3"] {
            let refused = kv.get(get(name, "k00")).await.unwrap_err();
            let refused = Fault::from_status(&refused);
            assert_eq!(refused.reason, Reason::NoSuchNamespace, "{name} by {index}");
        }
    }
    for (namespace, mode, replicas) in namespaces {
        create(&servers, namespace, mode, replicas).await.unwrap();
    }
    for index in 0..3 {
        let mut kv = servers.kv(index).await;
        for (name, ..) in namespaces {
            assert_eq!(entries_of(&mut kv, name).await, [], "{name} by {index}");
            assert_eq!(value_of(&mut kv, get(name, "k00")).await, None);
        }
    }
    until("each record was deleted once", async || {
        let name = "torc_dropped_records_deleted_total";
        let mut deleted = 0;
        for index in 0..3 {
            deleted += servers.metric(index, name).await;
        }
        deleted == (namespaces.len() * KEYS) as u64
    })
    .await;
    check(&servers, &["default"]).await;
}

/// The messages of a scan without values, from a cursor on.
async fn scan(servers: &Servers, namespace: &str, after: Bytes) -> Vec<ScanResponse> {
    let request = ScanRequest {
        namespace: namespace.to_owned(),
        after,
        keys_only: true,
        ..ScanRequest::default()
    };
    let pages = servers.kv(0).await.scan(request).await.unwrap();
    let pages = pages.into_inner().map(Result::unwrap);
    pages.collect().await
}

fn keys_of(pages: &[ScanResponse]) -> Vec<Bytes> {
    let entries = pages.iter().flat_map(|page| &page.entries);
    entries.map(|entry| entry.key.clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_names_no_key_of_another_namespace_and_the_scan_continues_from_it() {
    let dir = tempfile::tempdir().unwrap();
    let settings = RawSettings {
        bootstrap: Some(true),
        partitions: Some(1),
        replicas: Some(1),
        ..settings(dir.path().to_owned())
    };
    let nodes = vec![Node::start(settings.check().unwrap()).await.unwrap()];
    let servers = Servers { nodes, dir };
    servers.formed().await;
    let other = CreateNamespaceRequest {
        name: "other".to_owned(),
        ..CreateNamespaceRequest::default()
    };
    let created = servers.cluster(0).await.create_namespace(other).await;
    created.unwrap();
    // A page of the store has about three values.
    let value = Bytes::from(vec![b'v'; 400 << 10]);
    for number in 0..24 {
        for namespace in ["default", "other"] {
            let key = format!("{namespace} {number}");
            put(&servers, 0, namespace, &key).await;
            let request = PutRequest {
                namespace: namespace.to_owned(),
                key: key.into(),
                value: value.clone(),
                ..PutRequest::default()
            };
            servers.kv(0).await.put(request).await.unwrap();
        }
    }
    for (namespace, prefix) in [("default", "default "), ("other", "other ")] {
        let pages = scan(&servers, namespace, Bytes::new()).await;
        let keys = keys_of(&pages);
        assert_eq!(keys.len(), 24, "{namespace}");
        let mut read = 0;
        for page in &pages {
            read += page.entries.len();
            if let ScanPosition::After { key, .. } = ScanPosition::from_bytes(&page.cursor).unwrap()
            {
                assert!(key.as_bytes().starts_with(prefix.as_bytes()), "{key:?}");
            }
            let rest = scan(&servers, namespace, page.cursor.clone()).await;
            assert_eq!(keys_of(&rest), keys[read..], "{namespace} after {read}");
        }
        assert!(pages.len() > 6, "{} pages", pages.len());
    }
}
