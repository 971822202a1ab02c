//! The harness itself: what other tests take for granted.

use std::time::Duration;

use lanekeeper_tests::{
    Direction, Flow, LATEST, NatsServer, NatsTrio, ServerBuilder, TcpProxy, VERSIONS, wait_until,
};

const DEADLINE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_server_of_each_version_starts_and_says_its_version() {
    for version in VERSIONS {
        let server = NatsServer::start(version).await;
        let client = server.client().await;
        assert!(client.server_info().version.starts_with(version), "{}", client.server_info().version);
        assert!(client.server_info().jetstream);
    }
}

#[tokio::test]
async fn a_killed_server_comes_back_with_its_port_and_its_store() {
    let mut server = NatsServer::start(LATEST).await;
    let url = server.url();
    let context = async_nats::jetstream::new(server.client().await);
    let config = async_nats::jetstream::stream::Config { name: "KEPT".into(), ..Default::default() };
    context.create_stream(config).await.expect("a stream can be created");
    server.kill();
    assert!(tokio::net::TcpStream::connect(server.address()).await.is_err());
    server.start_again().await;
    assert_eq!(server.url(), url);
    let context = async_nats::jetstream::new(server.client().await);
    wait_until(DEADLINE, "the stream to be there", || async { context.get_stream("KEPT").await }).await;
    server.restart_with(ServerBuilder::without_jetstream).await;
    assert!(!server.client().await.server_info().jetstream);
}

#[tokio::test]
async fn three_servers_form_one_cluster_and_survive_the_loss_of_one() {
    let mut trio = NatsTrio::start(LATEST).await;
    let client = async_nats::connect(trio.urls()).await.expect("a node accepts clients");
    let context = async_nats::jetstream::new(client);
    let config =
        async_nats::jetstream::stream::Config { name: "R3".into(), num_replicas: 3, ..Default::default() };
    wait_until(DEADLINE, "a replicated stream", || async { context.create_stream(config.clone()).await })
        .await;
    trio.nodes[2].kill();
    let context = async_nats::jetstream::new(trio.nodes[0].client().await);
    let publish = || async {
        context.publish("R3", "x".into()).await.map_err(|e| e.to_string())?.await.map_err(|e| e.to_string())
    };
    wait_until(DEADLINE, "a write with two of three nodes", publish).await;
}

#[tokio::test]
async fn the_proxy_forwards_holds_swallows_and_cuts() {
    let server = NatsServer::start(LATEST).await;
    let proxy = TcpProxy::start(server.address()).await;
    let client = async_nats::ConnectOptions::new()
        .ping_interval(Duration::from_millis(200))
        .connect(proxy.url())
        .await
        .expect("the proxy forwards");
    let direct = server.client().await;
    let mut seen = direct.subscribe("news").await.expect("it can subscribe");
    // An answer on the same connection proves that the server knows the subscription.
    direct.request("$JS.API.INFO", "".into()).await.expect("the server answers");
    wait_until(DEADLINE, "one open connection", || async { proxy.connections() == 1 }).await;

    proxy.set(Direction::ToServer, Flow::Hold);
    client.publish("news", "held".into()).await.expect("it is buffered");
    proxy.set(Direction::ToServer, Flow::Forward);
    let held = next(&mut seen).await;
    assert_eq!(held, "held");

    proxy.set(Direction::ToServer, Flow::Swallow);
    client.publish("news", "lost".into()).await.expect("it is sent");
    wait_until(DEADLINE, "the client to notice that nothing answers", || async {
        client.connection_state() == async_nats::connection::State::Disconnected
            || client.statistics().connects.load(std::sync::atomic::Ordering::Relaxed) > 1
    })
    .await;
    proxy.restore();
    // Only an answer proves that the connection is a new one.
    wait_until(DEADLINE, "the client to be back", || client.request("$JS.API.INFO", "".into())).await;
    client.publish("news", "after".into()).await.expect("it is sent");
    assert_eq!(next(&mut seen).await, "after");

    proxy.refuse();
    wait_until(DEADLINE, "no open connection", || async { proxy.connections() == 0 }).await;
}

async fn next(seen: &mut async_nats::Subscriber) -> String {
    use futures::StreamExt;
    let message = tokio::time::timeout(DEADLINE, seen.next()).await.expect("a message comes in time");
    String::from_utf8_lossy(&message.expect("the subscription lives").payload).into_owned()
}
