//! All SQL of the guide on fencing, as it is written there, by the psql of a real server.

use std::{collections::BTreeMap, fs, path::Path};

use lanekeeper_tests::Postgres;

use crate::fence;

/// The page's blocks of one language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let opening = format!("```{language}\n");
    text.split(&opening).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// The page's only SQL that begins so.
fn sql(beginning: &str) -> String {
    let mut found = blocks("fencing.md", "sql");
    found.retain(|block| block.starts_with(beginning));
    assert_eq!(found.len(), 1, "blocks that begin with '{beginning}'");
    found.remove(0)
}

/// Tables by the page's own statements.
async fn database(tables: &[&str]) -> Postgres {
    let server = Postgres::start().await;
    for table in tables {
        server.psql(&sql(&format!("CREATE TABLE {table} ")), &[]).unwrap();
    }
    server
}

/// A message for an aircraft: its fence's sequence, and what the statement needs besides.
fn run(server: &Postgres, script: &str, sequence: u64, more: &[(&str, &str)]) -> String {
    let fence = fence(1, sequence).to_string();
    let variables = [&[("aircraft", "N10156"), ("fence", fence.as_str())], more].concat();
    server.psql(script, &variables).unwrap()
}

#[tokio::test]
async fn one_row() {
    let server = database(&["places"]).await;
    let write = |sequence, place| run(&server, &sql("INSERT INTO places"), sequence, &[("place", place)]);
    assert_eq!(write(2, "JFK"), "INSERT 0 1");
    assert_eq!(write(2, "repeat"), "INSERT 0 0");
    assert_eq!(write(1, "late"), "INSERT 0 0");
    assert_eq!(write(3, "Martha's Vineyard"), "INSERT 0 1");
    let row = server.psql("SELECT place, fence FROM places", &[]).unwrap();
    assert_eq!(row, format!("Martha's Vineyard|{}", fence(1, 3)));
    // After the incarnation is lost.
    assert_eq!(server.psql(&sql("UPDATE places"), &[]).unwrap(), "UPDATE 1");
    assert_eq!(write(1, "BOS"), "INSERT 0 1");
}

#[tokio::test]
async fn a_table_that_was_there_before() {
    let server = Postgres::start().await;
    let before = "CREATE TABLE places (aircraft text PRIMARY KEY, place text); INSERT INTO places VALUES ('N10156', 'JFK')";
    server.psql(before, &[]).unwrap();
    server.psql(&sql("ALTER TABLE places"), &[]).unwrap();
    assert_eq!(run(&server, &sql("INSERT INTO places"), 1, &[("place", "LAX")]), "INSERT 0 1");
    assert_eq!(server.psql("SELECT place FROM places", &[]).unwrap(), "LAX");
}

#[tokio::test]
async fn a_sum() {
    let server = database(&["miles"]).await;
    let add =
        |sequence, distance| run(&server, &sql("INSERT INTO miles"), sequence, &[("distance", distance)]);
    let changed =
        [(1, "100"), (2, "20"), (2, "20"), (1, "100"), (3, "3")].map(|(at, distance)| add(at, distance));
    assert_eq!(changed, ["INSERT 0 1", "INSERT 0 1", "INSERT 0 0", "INSERT 0 0", "INSERT 0 1"]);
    assert_eq!(server.psql("SELECT miles FROM miles", &[]).unwrap(), "123");
}

#[tokio::test]
async fn several_tables_in_one_transaction() {
    let server = database(&["fences"]).await;
    let more = "CREATE TABLE arrivals (aircraft text, place text, fence text); \
                CREATE TABLE visits (place text, visits int); INSERT INTO visits VALUES ('JFK', 0); \
                CREATE TABLE departures (aircraft text); INSERT INTO departures VALUES ('N10156')";
    server.psql(more, &[]).unwrap();
    let (first, rest) = (sql("BEGIN"), sql("INSERT INTO arrivals"));
    let handle = |sequence| {
        // What the page says in words: no row, roll back.
        let script = format!(
            "{first}\nSELECT :ROW_COUNT = 0 AS stale \\gset\n\\if :stale\nROLLBACK;\n\\else\n{rest}\n\\endif\n"
        );
        run(&server, &script, sequence, &[("place", "JFK")])
    };
    let applied = "BEGIN\nINSERT 0 1\nINSERT 0 1\nUPDATE 1\nDELETE 1\nCOMMIT";
    let stale = "BEGIN\nINSERT 0 0\nROLLBACK";
    assert_eq!(handle(2), applied);
    assert_eq!(handle(2), stale);
    assert_eq!(handle(1), stale);
    assert_eq!(handle(3), applied.replace("DELETE 1", "DELETE 0"));
    assert_eq!(server.psql("SELECT visits FROM visits", &[]).unwrap(), "2");
}

#[tokio::test]
async fn a_session_that_is_frozen_inside_a_transaction_is_ended() {
    let server = database(&["fences"]).await;
    server.psql(&sql("ALTER ROLE"), &[]).unwrap();
    let told = server.psql("SHOW idle_in_transaction_session_timeout", &[]).unwrap();
    assert_eq!(told, "5s", "sessions of the role have it from their start");
}

#[tokio::test]
async fn rows_that_are_only_added() {
    let server = database(&["events"]).await;
    let add = |sequence, event| run(&server, &sql("INSERT INTO events"), sequence, &[("event", event)]);
    let changed = [(1, "a"), (3, "c"), (2, "b"), (3, "c")].map(|(at, event)| add(at, event));
    assert_eq!(changed, ["INSERT 0 1", "INSERT 0 1", "INSERT 0 1", "INSERT 0 0"]);
    let read = server.psql("SELECT event FROM events ORDER BY fence", &[]).unwrap();
    assert_eq!(read, "a\nb\nc");
}

#[test]
fn every_statement_of_the_guide_is_run_here() {
    let tried = [
        "CREATE TABLE places ",
        "INSERT INTO places",
        "ALTER TABLE places",
        "CREATE TABLE miles ",
        "INSERT INTO miles",
        "CREATE TABLE fences ",
        "BEGIN",
        "INSERT INTO arrivals",
        "ALTER ROLE",
        "CREATE TABLE events ",
        "INSERT INTO events",
        "UPDATE places",
    ];
    let blocks = blocks("fencing.md", "sql");
    for (block, beginning) in blocks.iter().zip(tried) {
        assert!(block.starts_with(beginning), "'{block}' is not tried");
    }
    assert_eq!(blocks.len(), tried.len());
}

#[test]
fn the_statement_in_other_languages_is_the_one_that_is_run() {
    let statement = sql("INSERT INTO places");
    for (language, opening, closing) in [("python", "%(", ")s"), ("go", "@", "")] {
        let names = ["aircraft", "place", "fence"];
        let named: BTreeMap<_, _> =
            names.map(|name| (format!(":'{name}'"), format!("{opening}{name}{closing}"))).into();
        let expected = named.iter().fold(statement.clone(), |text, (from, to)| text.replace(from, to));
        let program = blocks("fencing.md", language).remove(0);
        assert!(program.contains(&expected), "the {language} block does not hold:\n{expected}");
    }
    for block in blocks("handlers.md", "sql") {
        assert!(blocks("fencing.md", "sql").contains(&block), "not in the guide:\n{block}");
    }
}
