//! One writer: what is applied, what is stale, and what is an error.

use lanekeeper_worker::{
    Fence,
    sink::postgres::{FencedUpsert, WriteError, Written},
};
use tokio_postgres::error::SqlState;

use crate::{fence, place, places};

#[tokio::test]
async fn a_message_is_applied_once_and_never_over_a_later_one() {
    let (_server, client, places) = places().await;
    let write = async |fence: Fence, to: &str| places.apply(&client, fence, &[&"N1", &to]).await.unwrap();
    assert_eq!(write(fence(1, 5), "JFK").await, Written::Applied);
    assert_eq!(write(fence(1, 5), "repeat").await, Written::Stale);
    assert_eq!(write(fence(1, 4), "late").await, Written::Stale);
    assert_eq!(place(&client, "N1").await, format!("JFK {}", fence(1, 5)));
    assert_eq!(write(fence(1, 10), "LAX").await, Written::Applied);
    assert_eq!(write(fence(1, 9), "late").await, Written::Stale);
    // A stream made anew begins with sequence 1.
    assert_eq!(write(fence(2, 1), "BOS").await, Written::Applied);
    assert_eq!(write(fence(1, u64::MAX), "late").await, Written::Stale);
    assert_eq!(write(fence(u32::MAX, u64::MAX), "SFO").await, Written::Applied);
    assert_eq!(place(&client, "N1").await, format!("SFO {}", fence(u32::MAX, u64::MAX)));
    // Another key knows nothing of it.
    let other = places.apply(&client, fence(1, 1), &[&"N2", &"JFK"]).await.unwrap();
    assert_eq!(other, Written::Applied);
}

#[tokio::test]
async fn a_sum_counts_each_message_once() {
    let (_server, client, _) = places().await;
    client
        .batch_execute("CREATE TABLE miles (aircraft text PRIMARY KEY, miles bigint, fence char(31))")
        .await
        .unwrap();
    let miles = FencedUpsert::builder("miles").key("aircraft").sum("miles").build().unwrap();
    for (sequence, distance) in [(1, 100_i64), (2, 20), (2, 20), (1, 100), (3, 3), (2, 20)] {
        let _ = miles.apply(&client, fence(1, sequence), &[&"N1", &distance]).await.unwrap();
    }
    let row = client.query_one("SELECT miles, fence FROM miles", &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 123);
    assert_eq!(row.get::<_, String>(1), fence(1, 3).to_string());
}

#[tokio::test]
async fn a_row_without_a_fence_is_older_than_any_message() {
    let (_server, client, places) = places().await;
    client
        .batch_execute(
            "ALTER TABLE places ALTER fence DROP NOT NULL; \
             INSERT INTO places VALUES ('N1', 'before', NULL), ('N2', 'before', '')",
        )
        .await
        .unwrap();
    for aircraft in ["N1", "N2"] {
        let written = places.apply(&client, fence(1, 1), &[&aircraft, &"JFK"]).await.unwrap();
        assert_eq!(written, Written::Applied, "{aircraft}");
        assert_eq!(place(&client, aircraft).await, format!("JFK {}", fence(1, 1)));
    }
}

#[tokio::test]
async fn a_key_of_several_columns_and_values_that_are_null_are_as_any_other() {
    let (_server, client, _) = places().await;
    client
        .batch_execute(
            "CREATE TABLE legs (aircraft text, day int, place text, note text, fence varchar(31) NOT NULL, \
             UNIQUE (aircraft, day))",
        )
        .await
        .unwrap();
    let legs = FencedUpsert::builder("legs").key("aircraft").key("day").set("place").set("note");
    let legs = legs.build().unwrap();
    let none: Option<&str> = None;
    let (one, two) = (1_i32, 2_i32);
    for (sequence, day) in [(1, &one), (2, &two), (3, &one)] {
        let written = legs.apply(&client, fence(1, sequence), &[&"N1", day, &"JFK", &none]).await.unwrap();
        assert_eq!(written, Written::Applied);
    }
    let rows = client.query("SELECT day, note FROM legs ORDER BY day", &[]).await.unwrap();
    let rows: Vec<(i32, Option<String>)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(rows, [(1, None), (2, None)]);
}

#[tokio::test]
async fn several_tables_are_written_together_or_not_at_all() {
    let (_server, mut client, places) = places().await;
    client
        .batch_execute(
            r#"CREATE TABLE fences (key text PRIMARY KEY, fence text COLLATE "C" NOT NULL);
               CREATE TABLE arrivals (aircraft text, place text)"#,
        )
        .await
        .unwrap();
    let fences = FencedUpsert::builder("fences").key("key").build().unwrap();
    let mut handled = Vec::new();
    for (sequence, fails) in [(1, false), (2, true), (2, false), (1, false), (2, false)] {
        let transaction = client.transaction().await.unwrap();
        let written = fences.apply(&transaction, fence(1, sequence), &[&"N1"]).await.unwrap();
        if written == Written::Applied {
            let number = format!("place {sequence}");
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&"N1", &number];
            transaction.execute("INSERT INTO arrivals VALUES ($1, $2)", &values).await.unwrap();
            let _ = places.apply(&transaction, fence(1, sequence), &values).await.unwrap();
        }
        if !fails {
            transaction.commit().await.unwrap();
        }
        handled.push(written);
    }
    assert_eq!(
        handled,
        [Written::Applied, Written::Applied, Written::Applied, Written::Stale, Written::Stale],
        "what failed is not remembered as applied"
    );
    let rows = client.query("SELECT place FROM arrivals ORDER BY place", &[]).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<String>>(), ["place 1", "place 2"]);
    assert_eq!(place(&client, "N1").await, format!("place 2 {}", fence(1, 2)));
}

#[tokio::test]
async fn what_cannot_be_written_names_the_table_and_why() {
    let (_server, client, places) = places().await;
    let few = places.apply(&client, fence(1, 1), &[&"N1"]).await.unwrap_err();
    assert_eq!(few.to_string(), "1 values were given for places: it must be 2, the key columns first");

    client.batch_execute("CREATE TABLE loose (aircraft text, fence text)").await.unwrap();
    let loose = FencedUpsert::builder("loose").key("aircraft").build().unwrap();
    let error = loose.apply(&client, fence(1, 1), &[&"N1"]).await.unwrap_err();
    let said = "the write to loose failed: there is no unique or exclusion constraint matching the ON CONFLICT \
                specification (42P10)";
    assert_eq!(error.to_string(), said);

    let nowhere = FencedUpsert::builder("nowhere").key("aircraft").build().unwrap();
    let WriteError::Postgres { error, .. } = nowhere.apply(&client, fence(1, 1), &[&"N1"]).await.unwrap_err()
    else {
        panic!("the server refused it");
    };
    assert_eq!(error.code(), Some(&SqlState::UNDEFINED_TABLE));

    let checked = "CREATE TABLE checked (k text PRIMARY KEY, v text CHECK (v <> 'secret'), fence text)";
    client.batch_execute(checked).await.unwrap();
    let checked = FencedUpsert::builder("checked").key("k").set("v").build().unwrap();
    let error = checked.apply(&client, fence(1, 1), &[&"k", &"secret"]).await.unwrap_err().to_string();
    assert!(error.contains("check constraint") && !error.contains("secret"), "no value is told: {error}");
}
