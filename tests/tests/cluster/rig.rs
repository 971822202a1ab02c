//! The rig itself: a publisher that keeps order over broken connections, and journals read while they grow.

use std::{sync::Arc, time::Duration};

use async_nats::jetstream;
use futures::TryStreamExt;
use lanekeeper_tests::{
    Direction, Flow, LATEST, NatsServer, TcpProxy,
    flights::{
        HANDLER_PORT, STREAM, SUBJECT,
        data::{Message, numbered},
        journals::Journals,
        publish::Publisher,
        reach::Reach,
    },
    kubectl::pod_is_ready,
    wait_until,
};
use serde_json::json;

use crate::{PODS, machine::beside_others, story::Story};

async fn stream(context: &jetstream::Context) -> jetstream::stream::Stream {
    let config = jetstream::stream::Config {
        name: STREAM.into(),
        subjects: vec![format!("{SUBJECT}.*")],
        ..Default::default()
    };
    context.create_stream(config).await.unwrap()
}

async fn stored(stream: &jetstream::stream::Stream, count: usize) -> Vec<String> {
    let consumer = stream.create_consumer(jetstream::consumer::pull::OrderedConfig::default()).await.unwrap();
    let mut messages = consumer.messages().await.unwrap();
    let mut found = Vec::new();
    while found.len() < count {
        let message = messages.try_next().await.unwrap().unwrap();
        found.push(String::from_utf8(message.payload.to_vec()).unwrap());
    }
    found
}

#[tokio::test]
async fn a_publisher_whose_connection_breaks_again_and_again_stores_everything_once_and_in_order() {
    let server = NatsServer::start(LATEST).await;
    let direct = jetstream::new(server.client().await);
    let stream = stream(&direct).await;
    let proxy = Arc::new(TcpProxy::start(server.address()).await);
    let client = async_nats::connect(proxy.url()).await.unwrap();
    let context = jetstream::ContextBuilder::new().ack_timeout(Duration::from_secs(1)).build(client);
    let publisher = Publisher::new(context, STREAM, SUBJECT);
    let messages = numbered(10, 500);

    publisher
        .publish(0, &messages, |count| match count {
            // With messages on their way to the server, and answers on their way back.
            700 | 2500 | 4100 => proxy.cut(),
            1500 => drop(tokio::spawn(lose_answers(proxy.clone(), stream.clone(), 1600))),
            _ => {}
        })
        .await
        .unwrap();

    let bodies: Vec<String> = messages.iter().map(|one| one.body.clone()).collect();
    assert_eq!(stored(&stream, messages.len()).await, bodies);
    let state = stream.get_info().await.unwrap().state;
    assert_eq!(state.messages, messages.len() as u64, "nothing is stored twice");
}

/// The server stores what comes, and its answers are lost until it has stored so many.
async fn lose_answers(proxy: Arc<TcpProxy>, stream: jetstream::stream::Stream, until: u64) {
    proxy.set(Direction::ToClient, Flow::Swallow);
    wait_until(PODS, "messages to be stored", || async {
        let info = stream.get_info().await.map_err(|error| error.to_string())?;
        if info.state.messages >= until { Ok(()) } else { Err(format!("{} are", info.state.messages)) }
    })
    .await;
    proxy.cut();
    proxy.set(Direction::ToClient, Flow::Forward);
}

#[tokio::test]
async fn a_publisher_that_is_not_alone_notices_and_stops() {
    let server = NatsServer::start(LATEST).await;
    let context = jetstream::new(server.client().await);
    stream(&context).await;
    let publisher = Publisher::new(context.clone(), STREAM, SUBJECT);
    context.publish(format!("{SUBJECT}.stranger"), "not ours".into()).await.unwrap().await.unwrap();
    let messages: Vec<Message> = numbered(1, 3);
    let error =
        tokio::time::timeout(Duration::from_secs(90), publisher.publish(0, &messages, |_| {})).await.unwrap();
    let words = format!("{:#}", error.unwrap_err());
    assert!(words.contains("is somebody else publishing?"), "{words}");
}

#[tokio::test]
async fn journals_are_read_on_from_where_they_were_left() {
    let _shared = beside_others().await;
    let story = Story::begin("journals", 1).await;
    let mut pod = story.set["spec"]["worker"]["podTemplate"].clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"] = json!({"name": "alone", "namespace": story.namespace, "labels": {"app": "alone"}});
    story.kubectl.apply(&[pod]).unwrap();
    let address = wait_until(PODS, "the handler's pod", || async {
        let pods =
            story.kubectl.pods(&story.namespace, "app=alone").await.map_err(|error| error.to_string())?;
        let pod = pods.first().filter(|pod| pod_is_ready(pod)).ok_or("it is not ready")?;
        pod["status"]["podIP"].as_str().map(str::to_owned).ok_or_else(|| "it has no address".to_owned())
    })
    .await;
    post(&address, 1).await;
    let mut journals = Journals::follow(&story.kubectl, &story.namespace, "app=alone", 1).await.unwrap();
    assert_eq!(journals.entries(), [], "what was there before does not count");
    journals.read_on().await.unwrap();
    assert_eq!(journals.handled(), 0, "there is nothing new");
    for sequence in [2, 3, 3] {
        post(&address, sequence).await;
    }
    journals.read_on().await.unwrap();
    let numbers: Vec<u64> = journals.entries().iter().map(|entry| entry.number).collect();
    assert_eq!((numbers, journals.handled()), (vec![2, 3, 3], 2));
}

#[tokio::test]
async fn a_forwarded_way_to_nats_comes_back_after_its_pod_was_replaced() {
    let _shared = beside_others().await;
    let story = Story::begin("forward", 1).await;
    stream(&story.jetstream).await;
    let reach = Reach::forwarded(&story.kubectl, &story.namespace).await.unwrap();
    assert!(reach.address().starts_with("nats://127.0.0.1:"), "{}", reach.address());
    let publisher = Publisher::new(jetstream::new(reach.connect().await.unwrap()), STREAM, SUBJECT);
    let messages = numbered(10, 40);
    publisher.publish(0, &messages[..200], |_| {}).await.unwrap();
    story.run(&["delete", "pod", "nats-0", "--grace-period=1"]);
    publisher.publish(200, &messages[200..], |_| {}).await.unwrap();
    let bodies: Vec<String> = messages.iter().map(|one| one.body.clone()).collect();
    let found =
        wait_until(PODS, "the stream to be readable", || async { story.jetstream.get_stream(STREAM).await })
            .await;
    assert_eq!(stored(&found, messages.len()).await, bodies);
}

/// One departure as the lane sends it, by the plainest client there is.
async fn post(address: &str, sequence: u64) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let body = format!(r#"{{"key":"N1","number":{sequence}}}"#);
    let request = format!(
        "POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\nce-id: F/{sequence}\r\nce-subject: flights.N1\r\n\
         ce-partitionkey: N1\r\nce-sequence: {sequence}\r\nlane-partition: 0\r\nlane-attempt: 1\r\n\
         lane-fence: 0000000001-{sequence:020}\r\n\r\n{body}",
        body.len()
    );
    // A container that runs need not listen yet.
    let mut connection = wait_until(PODS, "the handler to listen", || async {
        tokio::net::TcpStream::connect((address, HANDLER_PORT)).await.map_err(|error| error.to_string())
    })
    .await;
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
}
