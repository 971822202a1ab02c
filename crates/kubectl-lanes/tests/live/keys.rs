//! Which keys take the lanes' time, from real workers. A port cannot be forwarded here, where no kubelet is.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use lanekeeper_nats::ConnectSettings;
use lanekeeper_tests::wait_until;
use lanekeeper_worker::{HandlerError, Message, Worker, handler};
use serde_json::json;
use tokio::sync::oneshot;

use crate::{
    calling::plugin,
    rig::{DEADLINE, Rig},
    workers::make_pod,
};

#[tokio::test]
async fn the_keys_that_take_the_lanes_time_are_shown_with_their_share() {
    let (rig, operator) = Rig::start("keys").await;
    rig.create("orders", rig.spec(1)).await.unwrap();
    rig.wait_lanes("orders").await;
    let words = plugin(&rig, "keys orders").await.refusal();
    assert!(words.contains("set orders has no running worker"), "{words}");
    let words = plugin(&rig, "keys nope").await.refusal();
    assert!(words.contains("there is no set nope"), "{words}");

    // The port is free a moment before it is used.
    let admin = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let pods = make_pod(&rig, "orders-0-a", 0).await;
    let connect = ConnectSettings::new([rig.nats.url()], "worker");
    let worker =
        Worker::builder(rig.name("orders"), 0, "ORDERS", connect).pod("orders-0-a").admin(admin).build();
    let slow = handler(|message: Arc<Message>| async move {
        // The hot key fails once: its first attempt took time as well.
        let hot = message.key() == "hot";
        tokio::time::sleep(Duration::from_millis(if hot { 40 } else { 1 })).await;
        if hot && message.attempt() == 1 { Err(HandlerError::retry("once")) } else { Ok(()) }
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(worker.run_until(slow, async move {
        let _ = stopped.await;
    }));
    let context = async_nats::jetstream::new(rig.nats.client().await);
    for key in ["a", "b", "hot", "c"] {
        context.publish(format!("orders.{key}"), "x".into()).await.unwrap().await.unwrap();
    }
    let ask = format!("keys orders --worker {admin} -o json");
    let found = wait_until(DEADLINE, "all keys to be handled", || async {
        let found = plugin(&rig, &ask).await.json();
        let keys = found["keys"].as_array().cloned().unwrap_or_default();
        if keys.len() == 4 { Ok(found) } else { Err(format!("{found}")) }
    })
    .await;
    let hot = &found["keys"][0];
    assert_eq!(
        (&hot["key"], &hot["partition"], &hot["handlings"]),
        (&json!("hot"), &json!(0), &json!(2)),
        "{found}"
    );
    let (took, all) = (hot["microseconds"].as_u64().unwrap(), hot["ofMicroseconds"].as_u64().unwrap());
    assert!(took >= 80_000 && took < all, "{found}");
    let text =
        plugin(&rig, &format!("keys orders --worker {admin} --worker 127.0.0.1:1 --top 1")).await.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].starts_with("PARTITION   KEY   OF ITS LANE'S TIME"), "{text}");
    assert!(lines[1].starts_with("0           hot   "), "{text}");
    assert!(lines[2].starts_with("Not asked: --worker 127.0.0.1:1: "), "{text}");

    // A pod that runs, as far as the API server knows: that its port cannot be forwarded is said.
    let running = json!({"status": {"phase": "Running"}});
    let patched = pods.patch_status("orders-0-a", &PatchParams::default(), &Patch::Merge(&running)).await;
    patched.map(|_: Pod| ()).expect("a pod's status can be set");
    let words = plugin(&rig, "keys orders").await.refusal();
    assert!(
        words.contains("no worker could be asked: pod orders-0-a: port 9797 cannot be forwarded"),
        "{words}"
    );
    let _ = stop.send(());
    task.await.expect("the worker ends").expect("it ends well");
    operator.stop().await;
}
