//! Two writers of one key at the same time.

use lanekeeper_tests::{Postgres, wait_until};
use lanekeeper_worker::sink::postgres::{WriteError, Written};
use tokio_postgres::{Client, IsolationLevel, error::SqlState};

use crate::{DEADLINE, fence, place, places};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_writers_the_higher_fence_stays_however_they_race() {
    let (server, client, places) = places().await;
    let (older, newer) = (server.client().await, server.client().await);
    let mut stale = 0;
    for round in 0..1_000_u64 {
        let (low, high) = (fence(1, 2 * round + 1), fence(1, 2 * round + 2));
        // A new row now and then, else one that was there.
        let aircraft = format!("N{}", round / 10);
        let [first, second] = [low, high].map(|fence| fence.to_string());
        let (old_values, new_values): ([&(dyn tokio_postgres::types::ToSql + Sync); 2], [_; 2]) =
            ([&aircraft, &first], [&aircraft as &(dyn tokio_postgres::types::ToSql + Sync), &second]);
        let (old, new) = if round % 2 == 0 {
            tokio::join!(places.apply(&older, low, &old_values), places.apply(&newer, high, &new_values))
        } else {
            let (new, old) =
                tokio::join!(places.apply(&newer, high, &new_values), places.apply(&older, low, &old_values));
            (old, new)
        };
        assert_eq!(new.unwrap(), Written::Applied, "round {round}");
        stale += usize::from(old.unwrap() == Written::Stale);
        assert_eq!(place(&client, &aircraft).await, format!("{high} {high}"), "round {round}");
    }
    println!("the older write came too late in {stale} of 1000 rounds");
}

/// A write in an open transaction, and another one of the same row that waits for it.
async fn one_waits_for_the_other(
    first: u64,
    second: u64,
    there: bool,
) -> (Result<Written, WriteError>, String) {
    let (server, mut client, places) = places().await;
    if there {
        let _ = places.apply(&client, fence(1, 1), &[&"N1", &"begin"]).await.unwrap();
    }
    let transaction = client.transaction().await.unwrap();
    let held = places.apply(&transaction, fence(1, first), &[&"N1", &"held"]).await.unwrap();
    assert_eq!(held, Written::Applied);
    let other = server.client().await;
    let waiting =
        tokio::spawn(async move { places.apply(&other, fence(1, second), &[&"N1", &"waited"]).await });
    wait_for_a_lock(&server).await;
    transaction.commit().await.unwrap();
    (waiting.await.unwrap(), place(&client, "N1").await)
}

async fn wait_for_a_lock(server: &Postgres) {
    let client = server.client().await;
    wait_until(DEADLINE, "the other write to wait", || waiters(&client)).await;
}

async fn waiters(client: &Client) -> bool {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 1
}

#[tokio::test]
async fn an_older_write_that_waited_for_a_newer_one_finds_itself_stale() {
    for there in [true, false] {
        let (written, row) = one_waits_for_the_other(3, 2, there).await;
        assert_eq!(written.unwrap(), Written::Stale, "a row was there: {there}");
        assert_eq!(row, format!("held {}", fence(1, 3)));
    }
}

#[tokio::test]
async fn a_newer_write_that_waited_for_an_older_one_is_applied_over_it() {
    for there in [true, false] {
        let (written, row) = one_waits_for_the_other(2, 3, there).await;
        assert_eq!(written.unwrap(), Written::Applied, "a row was there: {there}");
        assert_eq!(row, format!("waited {}", fence(1, 3)));
    }
}

#[tokio::test]
async fn in_a_stricter_isolation_the_one_that_waited_is_told_to_try_again() {
    let (server, client, places) = places().await;
    let _ = places.apply(&client, fence(1, 1), &[&"N1", &"begin"]).await.unwrap();
    let (mut first, mut second) = (server.client().await, server.client().await);
    let holder = first.transaction().await.unwrap();
    let _ = places.apply(&holder, fence(1, 3), &[&"N1", &"held"]).await.unwrap();
    let strict = second.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
    let waiter = strict.start().await.unwrap();
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&"N1", &"waited"];
    let waiting = places.apply(&waiter, fence(1, 2), &values);
    let commit = async {
        wait_for_a_lock(&server).await;
        holder.commit().await.unwrap();
    };
    let (refused, ()) = tokio::join!(waiting, commit);
    let WriteError::Postgres { error, .. } = refused.unwrap_err() else { panic!("the server refused it") };
    assert_eq!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE));
    waiter.rollback().await.unwrap();
    assert_eq!(places.apply(&second, fence(1, 2), &values).await.unwrap(), Written::Stale);
    assert_eq!(place(&client, "N1").await, format!("held {}", fence(1, 3)));
}
