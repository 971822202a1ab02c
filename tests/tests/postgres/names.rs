//! Names as a database may have them.

use lanekeeper_worker::sink::postgres::{FencedUpsert, Written};

use crate::{fence, places};

/// Each used as schema, table, key, value and fence at once, where nothing but quotes tells them apart.
const ODD: [&str; 12] = [
    "order",
    "User",
    "with space",
    "dot.ted",
    "quo\"ted",
    "\"",
    "'; DROP TABLE places; --",
    "$1",
    "käse🧀",
    "EXCLUDED",
    "stored",
    // As long as a name can be.
    "a23456789b23456789c23456789d23456789e23456789f23456789g23456789",
];

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[tokio::test]
async fn any_name_that_a_table_can_have_is_written_to() {
    let (_server, client, _) = places().await;
    for (index, name) in ODD.iter().enumerate() {
        // The other columns need other names; these are as odd.
        let value = ODD[(index + 1) % ODD.len()];
        let fenced = ODD[(index + 2) % ODD.len()];
        let [table, key, set, column] = [name, name, value, fenced].map(quoted);
        client
            .batch_execute(&format!(
                "CREATE SCHEMA {table}; \
                 CREATE TABLE {table}.{table} ({key} text PRIMARY KEY, {set} text, {column} text NOT NULL)"
            ))
            .await
            .unwrap();
        let upsert = FencedUpsert::builder(name).schema(name).key(name).set(value).fence(fenced);
        let upsert = upsert.build().unwrap();
        let mut outcomes = Vec::new();
        for sequence in [1, 2, 1] {
            outcomes.push(upsert.apply(&client, fence(1, sequence), &[&"k", &"v"]).await.unwrap());
        }
        assert_eq!(outcomes, [Written::Applied, Written::Applied, Written::Stale], "{name}");
    }
    let places = client.query_one("SELECT count(*) FROM places", &[]).await.unwrap();
    assert_eq!(places.get::<_, i64>(0), 0, "the table is still there, and empty");
}

#[tokio::test]
async fn names_that_differ_only_in_their_case_are_different_columns() {
    let (_server, client, _) = places().await;
    client
        .batch_execute(r#"CREATE TABLE "Places" ("Key" text PRIMARY KEY, "key" text, fence text NOT NULL)"#)
        .await
        .unwrap();
    let upsert = FencedUpsert::builder("Places").key("Key").set("key").build().unwrap();
    assert_eq!(upsert.apply(&client, fence(1, 1), &[&"a", &"b"]).await.unwrap(), Written::Applied);
}

#[tokio::test]
async fn a_name_that_the_server_would_cut_off_is_refused_before_it_is_asked() {
    let (_server, client, _) = places().await;
    let long = "a".repeat(64);
    // What the server does with it: it takes another one.
    client.batch_execute(&format!("CREATE TABLE {long} (k text)")).await.unwrap();
    client.batch_execute(&format!("SELECT k FROM {}", "a".repeat(63))).await.unwrap();
    let refused = FencedUpsert::builder(&long).key("k").build().unwrap_err();
    assert_eq!((refused.field.as_str(), refused.value.contains(&long)), ("table", true));
}
