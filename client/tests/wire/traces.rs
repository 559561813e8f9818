//! The trace contexts that nodes get, and the spans that the application gets.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use torc_client::{Client, ClientSpan, Condition, ErrorKind, PutOptions, TraceContext};

use crate::cluster::Cluster;

fn told(cluster: &Cluster) -> Vec<Option<TraceContext>> {
    std::mem::take(&mut *cluster.nodes[0].traces.lock().unwrap())
}

fn parent(is_sampled: bool) -> TraceContext {
    TraceContext::new([7; 16], [1; 8], is_sampled).unwrap()
}

#[tokio::test]
async fn operations_are_carried_out_on_behalf_of_the_applications_span() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    client.put("key", "value").await.unwrap();
    client.batch_get(["key"]).await.unwrap();
    assert_eq!(told(&cluster), [None, None], "nobody asked for a trace");
    for is_sampled in [true, false] {
        let traced = client.with_trace(parent(is_sampled));
        traced.put("key", "value").await.unwrap();
        traced.get("key").await.unwrap();
        traced.delete("key").await.unwrap();
        traced.batch_get(["key"]).await.unwrap();
        assert_eq!(told(&cluster), [Some(parent(is_sampled)); 4]);
    }
    let sampled = client.with_sampling();
    sampled.get("key").await.unwrap();
    sampled.get("key").await.unwrap();
    let traces: Vec<_> = told(&cluster).into_iter().map(Option::unwrap).collect();
    assert!(traces.iter().all(TraceContext::is_sampled));
    assert_ne!(traces[0].trace_id(), traces[1].trace_id());
}

#[tokio::test]
async fn an_application_that_wants_them_is_told_the_clients_spans() {
    let cluster = Cluster::formed(1).await;
    let spans = Arc::<Mutex<Vec<ClientSpan>>>::default();
    let seen = Arc::clone(&spans);
    let client = Client::builder()
        .endpoints([cluster.endpoint(0)])
        .deadline(Duration::from_secs(60))
        .on_span(move |span| seen.lock().unwrap().push(span))
        .connect()
        .await
        .unwrap();
    client.put("key", "value").await.unwrap();
    let unsampled = client.with_trace(parent(false));
    unsampled.put("key", "value").await.unwrap();
    assert!(spans.lock().unwrap().is_empty(), "nothing is sampled");
    told(&cluster);

    let traced = client.with_trace(parent(true));
    traced.get("key").await.unwrap();
    let absent = PutOptions {
        condition: Some(Condition::IfAbsent),
        ..PutOptions::default()
    };
    let refused = traced.put_with("key", "value", absent).await.unwrap_err();
    client.with_sampling().get("key").await.unwrap();
    let spans = std::mem::take(&mut *spans.lock().unwrap());
    let sent: Vec<_> = told(&cluster).into_iter().map(Option::unwrap).collect();
    let of_client: Vec<_> = spans.iter().map(|span| span.context).collect();
    assert_eq!(of_client, sent, "nodes are told the client's span");
    let named: Vec<_> = spans.iter().map(|span| (span.name, span.error)).collect();
    let read = ("client read", None);
    assert_eq!(refused.kind(), ErrorKind::ConditionNotMet);
    assert_eq!(named, [read, ("client write", Some(refused.kind())), read]);
    for span in &spans[..2] {
        assert_eq!(span.context.trace_id(), parent(true).trace_id());
        assert_eq!(span.parent, Some(parent(true).span_id()));
        assert_ne!(span.context.span_id(), parent(true).span_id());
    }
    assert_eq!(spans[2].parent, None, "it begins a trace");
}
